// `tutti doctor` on this very process, and its checks.
#include "cli/doctor_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/doctor_checks.hpp"
#include "command.hpp"
#include "tutti/tutti.hpp"

namespace tutti::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

testing::Outcome doctor(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "doctor");
  return testing::run_command([](CLI::App& app, int& code) { add_doctor_command(app, code); },
                              std::move(arguments));
}

TEST(DoctorCommand, TellsTheCommunicatorsOfAProcess) {
  auto ranks = Communicator::for_threads(2);
  ASSERT_TRUE(ranks.ok());
  std::vector<float> data(3, 1.0F);
  auto work =
      (*ranks)[0].all_reduce_async(data.data(), data.data(), 3, DataType::float32, ReduceOp::max);
  ASSERT_TRUE(work.ok());
  const testing::Outcome outcome = doctor({std::to_string(getpid())});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("rank 0 of 2 over memory"), HasSubstr("rank 1 of 2"),
                                 HasSubstr("now: all_reduce #1: 3 x float, max; for"),
                                 HasSubstr("now: no calls yet")));
  std::vector<float> other(3, 1.0F);
  auto answer =
      (*ranks)[1].all_reduce_async(other.data(), other.data(), 3, DataType::float32, ReduceOp::max);
  EXPECT_TRUE(answer.ok() && work->wait().ok() && answer->wait().ok());
  const testing::Outcome json = doctor({std::to_string(getpid()), "--json"});
  const auto parsed = nlohmann::json::parse(json.out);
  const auto& communicators = parsed.at("processes").at(0).at("communicators");
  ASSERT_EQ(communicators.size(), 2U);
  EXPECT_EQ(communicators[0].at("calls").at(0).at("state"), "ok");
  EXPECT_EQ(communicators[0].at("job"), communicators[1].at("job"));
}

TEST(DoctorCommand, WithoutAProcessTellsJobsAndChecksTheMachine) {
  auto ranks = Communicator::for_threads(2);
  ASSERT_TRUE(ranks.ok());
  const testing::Outcome outcome = doctor({});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("2 ranks over memory"), HasSubstr("this machine:"),
                                 HasSubstr("memory files")));
}

TEST(DoctorCommand, SaysWhyItCannotLookInto) {
  const testing::Outcome outcome = doctor({"4194304"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("there is no such process"));
  EXPECT_EQ(doctor({"x"}).exit_code, 2);
}

TEST(DoctorChecks, FindMisspeltSettings) {
  const auto settings = [](const base::Environment& environment) {
    for (const Check& check : check_machine(environment))
      if (check.name == "settings") return check;
    return Check{};
  };
  EXPECT_TRUE(settings({}).good);
  EXPECT_THAT(settings({{"TUTTI_WAIT", "spin"}}).found, HasSubstr("TUTTI_WAIT"));
  const Check wrong = settings({{"TUTTI_WIAT", "spin"}});
  EXPECT_FALSE(wrong.good);
  EXPECT_THAT(wrong.found, HasSubstr("did you mean TUTTI_WAIT"));
}

}  // namespace
}  // namespace tutti::cli
