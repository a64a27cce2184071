// What a child says reaches its parent, whatever becomes of the child.
#include "cli/ask_child.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "cli/doctor_checks.hpp"

namespace tutti::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds kPatience{60};

TEST(AskChild, ReturnsWhatTheChildFound) {
  EXPECT_TRUE(ask_child([] { return Status(); }, kPatience).ok());
  const Status refused(StatusCode::unsupported, "no such library");
  EXPECT_EQ(ask_child([&] { return refused; }, kPatience), refused);
  const Status empty(StatusCode::corrupt_data, "");
  EXPECT_EQ(ask_child([&] { return empty; }, kPatience), empty);
}

TEST(AskChild, CutsALongAnswer) {
  const Status found =
      ask_child([] { return Status(StatusCode::internal, std::string(100'000, 'x')); }, kPatience);
  EXPECT_EQ(found.code(), StatusCode::internal);
  EXPECT_EQ(found.message(), std::string(4095, 'x'));
}

TEST(AskChild, NamesTheSignalThatTheChildDiedOf) {
  for (const int signal : {SIGSEGV, SIGILL, SIGKILL}) {
    const Status found = ask_child(
        [&] {
          raise(signal);
          return Status();
        },
        kPatience);
    EXPECT_EQ(found.code(), StatusCode::internal);
    EXPECT_THAT(found.message(), HasSubstr("signal " + std::to_string(signal)));
  }
}

TEST(AskChild, TellsAChildThatEndsWithoutAWord) {
  const Status found = ask_child([]() -> Status { _exit(0); }, kPatience);
  EXPECT_EQ(found.code(), StatusCode::internal);
  EXPECT_THAT(found.message(), HasSubstr("without a word"));
}

TEST(AskChild, DoesNotWaitForEver) {
  const Status found = ask_child(
      [] {
        while (true) pause();
        return Status();
      },
      milliseconds(50));
  EXPECT_EQ(found.code(), StatusCode::timeout);
  EXPECT_THAT(found.message(), HasSubstr("50 ms"));
}

// What is tried for the doctor must not stay in its process: neither threads nor signal handlers.
TEST(DoctorChecks, DoNotOpenUcxInThisProcess) {
  bool told = false;
  for (const Check& check : check_machine({})) told = told || check.name == "transports";
  EXPECT_TRUE(told);
  EXPECT_EQ(dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace tutti::cli
