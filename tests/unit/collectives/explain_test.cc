// Explanations in words: what people must find in them.
#include "collectives/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/topology.hpp"

namespace tutti::collectives {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Explanation two_candidates() {
  Explanation explanation;
  explanation.query = {Collective::all_reduce, 1000, DataType::float32, 0};
  explanation.ranks = 4;
  Candidate ring;
  ring.algorithm = "ring";
  ring.settings = {2, 65536, true};
  ring.slices = 2;
  ring.predicted_us = 10;
  ring.limited_by = "a wire";
  Candidate tree;
  tree.algorithm = "tree";
  tree.predicted_us = 25;
  tree.limited_by = "another wire";
  Candidate other;
  other.algorithm = "hierarchical";
  other.not_possible = "one node only";
  explanation.candidates = {ring, tree, other};
  explanation.bandwidth_bound_us = 5;
  explanation.bandwidth_origin = "a cut";
  return explanation;
}

TEST(Explain, SaysWhatWasChosenAndWhy) {
  const std::string text = to_text(two_candidates());
  EXPECT_THAT(text, HasSubstr("all_reduce of 3.91 KiB (1000 x float), 4 ranks"));
  EXPECT_THAT(text, HasSubstr("* ring "));
  EXPECT_THAT(text, HasSubstr("50.0%"));
  EXPECT_THAT(text, HasSubstr("a wire"));
  EXPECT_THAT(text, HasSubstr("choice: ring, direct: 2.5 times as quick as tree, staged"));
  EXPECT_THAT(text, HasSubstr("hierarchical      not possible: one node only"));
  EXPECT_THAT(text, HasSubstr("* links"));
  EXPECT_THAT(text, HasSubstr("a cut"));
  EXPECT_THAT(text, Not(HasSubstr("root")));
}

TEST(Explain, CloseRacesAreCalledSo) {
  Explanation explanation = two_candidates();
  explanation.candidates[1].predicted_us = 10.01;
  EXPECT_THAT(reason(explanation), HasSubstr("about as quick as tree"));
  explanation.candidates.resize(1);
  EXPECT_THAT(reason(explanation), HasSubstr("the only candidate"));
}

// Sizes and factors are those that nccl-tests prints.
TEST(Explain, SizesAreThoseOfNcclTests) {
  const PlanQuery gather = query_of_size(Collective::all_gather, DataType::float32, 0, 4, 4096);
  EXPECT_EQ(gather.count, 256u);
  EXPECT_EQ(size_bytes(gather, 4), 4096u);
  EXPECT_EQ(query_of_size(Collective::all_reduce, DataType::float64, 0, 4, 4096).count, 512u);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::broadcast, 4), 1);
}

TEST(Explain, TimesHaveFittingUnits) {
  EXPECT_EQ(format_time(0.25), "0.25 us");
  EXPECT_EQ(format_time(1234.5), "1234 us");
  EXPECT_EQ(format_time(12345), "12.35 ms");
  EXPECT_EQ(format_time(2.5e6), "2.5 s");
}

}  // namespace
}  // namespace tutti::collectives
