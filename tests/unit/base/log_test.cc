// log_test.cc: which lines a log writes at which level.
#include "base/log.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace tutti::base {
namespace {

// What a log of this level writes when all of its functions are called.
std::string written_at(LogLevel level, const std::string& who) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const Log log(level, who, ends[1]);
  log.error("a");
  log.warn("b");
  log.info("c");
  log.debug("d");
  close(ends[1]);
  std::array<char, 256> buffer{};
  const ssize_t size = read(ends[0], buffer.data(), buffer.size());
  close(ends[0]);
  return std::string(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
}

TEST(Log, WritesItsLevelAndThoseBefore) {
  EXPECT_EQ(written_at(LogLevel::error, ""), "tutti error: a\n");
  EXPECT_EQ(written_at(LogLevel::info, "rank 3"),
            "tutti rank 3 error: a\ntutti rank 3 warn: b\ntutti rank 3 info: c\n");
  EXPECT_EQ(written_at(LogLevel::debug, ""),
            "tutti error: a\ntutti warn: b\ntutti info: c\ntutti debug: d\n");
}

TEST(Log, TellsWhatItWouldSay) {
  EXPECT_TRUE(Log(LogLevel::warn).says(LogLevel::error));
  EXPECT_FALSE(Log(LogLevel::warn).says(LogLevel::info));
}

}  // namespace
}  // namespace tutti::base
