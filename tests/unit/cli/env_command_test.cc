// env_command_test.cc: the list of settings is whole and keeps secrets.
#include "cli/env_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config.hpp"

namespace tutti::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DescribeSettings, ListsAllWithTheirValues) {
  const std::string text =
      describe_settings({{"TUTTI_CHANNELS", "7"}, {"TUTTI_JOB_SECRET", "feedface"}});
  for (const auto& variable : base::config_variables()) {
    EXPECT_THAT(text, HasSubstr(variable.name));
    EXPECT_THAT(text, HasSubstr(variable.help));
  }
  EXPECT_THAT(text, HasSubstr("set to 7"));
  EXPECT_THAT(text, HasSubstr("default 600000"));
  EXPECT_THAT(text, Not(HasSubstr("feedface")));
}

}  // namespace
}  // namespace tutti::cli
