// run_command_test.cc: where the options of `tutti run` end and the program begins.
#include "cli/run_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CutRunArguments, CutsAtTheFirstDashes) {
  const auto cut = cut_run_arguments({"run", "-n", "2", "--", "prog", "-n", "--", "x"});
  EXPECT_TRUE(cut.has_dashes);
  EXPECT_THAT(cut.for_us, ElementsAre("run", "-n", "2"));
  EXPECT_THAT(cut.after_dashes, ElementsAre("prog", "-n", "--", "x"));
}

TEST(CutRunArguments, LeavesTheRestAlone) {
  const auto without = cut_run_arguments({"run", "-n", "2", "prog"});
  EXPECT_FALSE(without.has_dashes);
  EXPECT_THAT(without.for_us, ElementsAre("run", "-n", "2", "prog"));
  const auto other = cut_run_arguments({"topo", "--", "x"});
  EXPECT_FALSE(other.has_dashes);
  EXPECT_THAT(other.for_us, ElementsAre("topo", "--", "x"));
  EXPECT_THAT(cut_run_arguments({}).for_us, IsEmpty());
}

}  // namespace
}  // namespace tutti::cli
