// pipeline_schedule_test.cc: that our schedules take exactly the time and keep exactly the
// activations that theory says, that impossible ones are refused, and that text gives back what it
// was made from.
#include "training/plan/pipeline_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "training/plan/pipeline_clock.hpp"
#include "training/plan/pipeline_drawing.hpp"
#include "training/plan/pipeline_generators.hpp"
#include "training/plan/pipeline_text.hpp"
#include "training/plan/pipeline_validator.hpp"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// F = 1 and B = 2, as backward computes twice as much as forward.
constexpr Durations kUsual{1, 1, 1, 0};
// F = B = 2, as the charts of tutorials.
constexpr Durations kEqual{2, 1, 1, 0};

PipelineChart timed(const PipelineSchedule& schedule, const Durations& durations) {
  Result<PipelineChart> chart = run_clock(schedule, durations);
  EXPECT_TRUE(chart.ok()) << chart.status().to_string();
  return chart.ok() ? *std::move(chart) : PipelineChart{};
}

PipelineFigures clocked(const PipelineSchedule& schedule, const Durations& durations) {
  return figures_of(timed(schedule, durations));
}

std::string error_of(const PipelineSchedule& schedule) {
  const Status status = validate(schedule);
  EXPECT_FALSE(status.ok()) << "a schedule that should have been refused";
  return status.message();
}

std::vector<PipelineSchedule> all_schedules(int ranks, int micro_batches) {
  std::vector<PipelineSchedule> made = {
      naive_schedule(ranks, micro_batches), gpipe_schedule(ranks, micro_batches),
      one_f_one_b_schedule(ranks, micro_batches), zero_bubble_h1_schedule(ranks, micro_batches)};
  for (int chunks = 1; chunks <= 4 && micro_batches % ranks == 0; ++chunks)
    made.push_back(interleaved_schedule(ranks, micro_batches, chunks));
  return made;
}

template <typename Body>
void for_each_size(Body body) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) body(ranks, micro_batches);
}

TEST(PipelineScheduleTest, AllAreValidInOrderAndTimedRightly) {
  for_each_size([](int ranks, int micro_batches) {
    for (const PipelineSchedule& schedule : all_schedules(ranks, micro_batches)) {
      SCOPED_TRACE(schedule.name + " of " + std::to_string(ranks) + ", " +
                   std::to_string(micro_batches));
      ASSERT_TRUE(validate(schedule).ok()) << validate(schedule).to_string();
      EXPECT_TRUE(accumulates_in_order(schedule));
      for (const Durations& durations : {kUsual, kEqual, Durations{5, 7, 3, 2}}) {
        const PipelineChart chart = timed(schedule, durations);
        EXPECT_EQ(chart.schedule(), schedule);
        const Status valid = validate(chart, durations);
        ASSERT_TRUE(valid.ok()) << valid.to_string();
        const std::int64_t each = durations.forward + durations.of(Action::backward);
        EXPECT_THAT(figures_of(chart).work, Each(each * micro_batches * schedule.chunks_per_rank));
      }
    }
  });
}

// Huang et al. (2019): 4 stages and 4 micro-batches: 16 units of work in 28, or 12 in 21.
TEST(PipelineScheduleTest, FourStagesAndFourMicroBatchesUse16Of28) {
  for (const PipelineSchedule& schedule : {gpipe_schedule(4, 4), one_f_one_b_schedule(4, 4)}) {
    const PipelineFigures equal = clocked(schedule, kEqual);
    EXPECT_THAT(equal.work, Each(16));
    EXPECT_EQ(equal.makespan, 28);
    const PipelineFigures usual = clocked(schedule, kUsual);
    EXPECT_THAT(usual.work, Each(12));
    EXPECT_EQ(usual.makespan, 21);
    EXPECT_DOUBLE_EQ(usual.efficiency(), 16.0 / 28.0);
    EXPECT_DOUBLE_EQ(usual.bubble_overhead(), 3.0 / 4.0);
  }
}

TEST(PipelineScheduleTest, NaiveUsesOneRankAtATime) {
  for_each_size([](int ranks, int micro_batches) {
    const PipelineFigures figures = clocked(naive_schedule(ranks, micro_batches), kUsual);
    EXPECT_EQ(figures.makespan, 3 * ranks * micro_batches);
    EXPECT_EQ(figures.makespan, figures.total_work);  // efficiency 1 / ranks
    EXPECT_THAT(figures.live, Each(1));
  });
  EXPECT_EQ(naive_schedule(4, 1).ranks, gpipe_schedule(4, 1).ranks);
  EXPECT_DOUBLE_EQ(clocked(naive_schedule(4, 1), kUsual).efficiency(), 0.25);
}

TEST(PipelineScheduleTest, GpipeAnd1f1bTakeTheSameTimeButNotTheSameMemory) {
  for_each_size([](int ranks, int micro_batches) {
    const PipelineFigures gpipe = clocked(gpipe_schedule(ranks, micro_batches), kUsual);
    const PipelineFigures alternating = clocked(one_f_one_b_schedule(ranks, micro_batches), kUsual);
    EXPECT_EQ(gpipe.makespan, (micro_batches + ranks - 1) * 3);
    EXPECT_EQ(alternating.makespan, gpipe.makespan);
    EXPECT_THAT(gpipe.live, Each(micro_batches));
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(alternating.live[static_cast<std::size_t>(rank)],
                std::min(ranks - rank, micro_batches));
  });
}

// Narayanan et al. (2021), section 2.2.2: bubble by ideal time is (p - 1) / (v m).
TEST(PipelineScheduleTest, InterleavingDividesTheBubble) {
  const PipelineFigures example = clocked(interleaved_schedule(4, 8, 2), kUsual);
  EXPECT_EQ((example.makespan - example.work[0]) * 16, 3 * example.work[0]);
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int rounds = 1; rounds <= 3; ++rounds)
      for (int chunks = 1; chunks <= 4; ++chunks) {
        const int micro_batches = ranks * rounds;
        const PipelineFigures figures =
            clocked(interleaved_schedule(ranks, micro_batches, chunks), kUsual);
        EXPECT_EQ((figures.makespan - figures.work[0]) * chunks * micro_batches,
                  (ranks - 1) * figures.work[0])
            << ranks << " ranks, " << micro_batches << " micro-batches, " << chunks << " chunks";
      }
}

// Megatron's order on the first of two ranks with two chunks: two micro-batches through the first
// chunk, the same two through the second, and so on.
TEST(PipelineScheduleTest, InterleavedTakesTurnsAsMegatron) {
  EXPECT_EQ(schedule_csv(interleaved_schedule(2, 4, 2)),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

// Qi et al. (2023), section 2.3 and table 2: the bubble is (p - 1)(F + I - W), the peak that of
// 1F1B. With m < p there is not enough to fill in, and (p - m) W is left.
TEST(PipelineScheduleTest, ZeroBubbleH1IsAsThePaperSays) {
  for_each_size([](int ranks, int micro_batches) {
    for (const Durations& times : {Durations{1, 1, 1, 0}, Durations{3, 4, 2, 0},
                                   Durations{10, 11, 9, 0}, Durations{2, 2, 1, 0}}) {
      const PipelineFigures figures = clocked(zero_bubble_h1_schedule(ranks, micro_batches), times);
      const std::int64_t unfilled = std::max(ranks - micro_batches, 0) * times.backward_weight;
      EXPECT_EQ(
          figures.makespan - figures.work[0],
          (ranks - 1) * (times.forward + times.backward_input - times.backward_weight) + unfilled)
          << ranks << " ranks, " << micro_batches << " micro-batches";
      EXPECT_THAT(figures.live, Each(std::min(ranks, micro_batches)));
    }
  });
}

// A third of 1F1B's, where the three take the same.
TEST(PipelineScheduleTest, ZeroBubbleH1HasAThirdOfTheBubble) {
  const PipelineFigures split = clocked(zero_bubble_h1_schedule(4, 8), kUsual);
  const PipelineFigures whole = clocked(one_f_one_b_schedule(4, 8), kUsual);
  EXPECT_EQ(whole.makespan - whole.work[0], 9);
  EXPECT_EQ(split.makespan - split.work[0], 3);
  EXPECT_EQ(*std::max_element(split.live.begin(), split.live.end()),
            *std::max_element(whole.live.begin(), whole.live.end()));
}

TEST(PipelineScheduleTest, MessagesTakeTimeBetweenRanksOnly) {
  EXPECT_EQ(clocked(gpipe_schedule(3, 1), {1, 1, 1, 10}).makespan, 3 + 6 + 4 * 10);
  EXPECT_EQ(clocked(interleaved_schedule(1, 2, 3), {1, 1, 1, 10}).makespan, 3 * 2 * 3);
}

TEST(PipelineScheduleTest, PeaksMayBeWeighedByChunk) {
  const std::vector<Action> actions = {{Action::forward, 0, 0},         {Action::forward, 1, 0},
                                       {Action::backward_input, 1, 0},  {Action::forward, 0, 1},
                                       {Action::backward_weight, 1, 0}, {Action::backward, 0, 0},
                                       {Action::forward, 1, 1}};
  EXPECT_EQ(peak_live(actions), 3);
  const double weights[] = {100, 7};
  EXPECT_EQ(peak_live(actions, weights), 207);
}

TEST(PipelineScheduleTest, NamesAndCountsAreChecked) {
  for (const std::string& name : schedule_names()) {
    const Result<PipelineSchedule> made = make_schedule(name, 2, 4);
    ASSERT_TRUE(made.ok()) << name;
    EXPECT_EQ(made->name, name);
  }
  const auto error = [](std::string_view name, int ranks, int micro_batches, int chunks) {
    const Result<PipelineSchedule> made = make_schedule(name, ranks, micro_batches, chunks);
    EXPECT_FALSE(made.ok());
    return made.status().message();
  };
  EXPECT_THAT(error("zb-v", 2, 4, 1), HasSubstr("naive, gpipe, 1f1b, interleaved, zb-h1"));
  EXPECT_THAT(error("interleaved", 4, 6, 2), HasSubstr("6 micro-batches % 4 ranks = 2, not 0"));
  EXPECT_THAT(error("1f1b", 4, 6, 2), HasSubstr("one chunk"));
  EXPECT_THAT(error("gpipe", 0, 6, 1), HasSubstr("0 ranks"));
  EXPECT_THAT(error("gpipe", 2, -1, 1), HasSubstr("-1 micro-batches"));
  const int huge = 2'000'000'000;
  EXPECT_THAT(error("interleaved", huge, huge, huge), HasSubstr("more than"));
  EXPECT_FALSE(run_clock(gpipe_schedule(1, 1), {-1, 1, 1, 0}).ok());
}

PipelineSchedule changed(PipelineSchedule schedule, int rank, std::size_t index, Action action) {
  schedule.ranks[static_cast<std::size_t>(rank)][index] = action;
  return schedule;
}

TEST(PipelineScheduleTest, WhatIsNotAScheduleIsRefused) {
  const PipelineSchedule good = one_f_one_b_schedule(2, 2);  // 0F0,0F1,0B0,0B1 / 1F0,1B0,1F1,1B1
  EXPECT_THAT(error_of(changed(good, 0, 1, {Action::forward, 0, 0})), HasSubstr("0F0 comes twice"));
  EXPECT_THAT(error_of(changed(good, 0, 1, {Action::forward, 0, 2})), HasSubstr("micro-batch 2"));
  EXPECT_THAT(error_of(changed(good, 0, 1, {Action::forward, 1, 1})), HasSubstr("chunk 1"));
  EXPECT_THAT(error_of(changed(good, 1, 0, {Action::backward, 0, 0})),
              HasSubstr("1B0 comes before the forward"));
  EXPECT_THAT(error_of(changed(good, 1, 1, {Action::backward_weight, 0, 0})),
              HasSubstr("1W0 comes before the backward of input"));
  EXPECT_THAT(error_of(changed(good, 1, 1, {Action::backward_input, 0, 0})),
              HasSubstr("1W0 is missing"));
  PipelineSchedule both = good;
  both.ranks[1].push_back({Action::backward_input, 0, 1});
  EXPECT_THAT(error_of(both), HasSubstr("1I1 comes after a whole backward"));
  PipelineSchedule short_of_one = good;
  short_of_one.ranks[1].pop_back();
  EXPECT_THAT(error_of(short_of_one), HasSubstr("1B1 is missing"));
  EXPECT_THAT(error_of({"none", 1, 1, {}}), HasSubstr("without ranks"));
  EXPECT_THAT(error_of({"none", 0, 1, {{}}}), HasSubstr("0 chunks"));
  EXPECT_THAT(error_of({"none", 1, 2'000'000'000, {{}}}), HasSubstr("limit"));
}

TEST(PipelineScheduleTest, RanksThatWaitForEachOtherAreToldApart) {
  PipelineSchedule stuck = one_f_one_b_schedule(2, 2);
  // Rank 0 wants micro-batch 0 back before it sends micro-batch 1, which rank 1 wants first.
  std::swap(stuck.ranks[0][1], stuck.ranks[0][2]);
  stuck.ranks[1] = {{Action::forward, 0, 1},
                    {Action::forward, 0, 0},
                    {Action::backward, 0, 0},
                    {Action::backward, 0, 1}};
  EXPECT_THAT(error_of(stuck), AllOf(HasSubstr("rank 0's 0B0 waits for 1B0 of rank 1"),
                                     HasSubstr("rank 1's 1F1 waits for 0F1 of rank 0")));
  EXPECT_FALSE(run_clock(stuck, kUsual).ok());
}

TEST(PipelineScheduleTest, DescendingBackwardsAreValidButNotInOrder) {
  PipelineSchedule descending = gpipe_schedule(3, 4);
  for (std::vector<Action>& actions : descending.ranks)
    std::reverse(actions.begin() + 4, actions.end());
  EXPECT_TRUE(validate(descending).ok());
  EXPECT_FALSE(accumulates_in_order(descending));
}

// A chart that tutorials copy from each other, F = B = 2: each rank goes backward as soon as it is
// through with its own forwards, the first one at 8, while the last one's forwards end at 14.
PipelineChart impossible_chart() {
  PipelineChart chart{"copied", 1, 4, {}};
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<TimedAction>& lane = chart.ranks.emplace_back();
    std::int64_t time = 2 * rank;
    const auto add = [&](Action::Kind kind, int micro_batch) {
      lane.push_back({{kind, 0, micro_batch}, time, time + 2});
      time += 2;
    };
    for (int i = 0; i < 4; ++i) add(Action::forward, i);
    for (int i = 3; i >= 0; --i) add(Action::backward, i);
  }
  return chart;
}

TEST(PipelineScheduleTest, AGradientBeforeTheLossIsRefused) {
  const PipelineChart chart = impossible_chart();
  EXPECT_TRUE(validate(chart.schedule()).ok()) << "the order alone is possible";
  const Status status = validate(chart, kEqual);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0's 0B3 starts at 8"),
                                      HasSubstr("rank 3's 3F3, which it needs, ends at 14")));
  // Drawn with times that are possible, it takes 28 like any other order.
  EXPECT_EQ(clocked(chart.schedule(), kEqual).makespan, 28);
}

TEST(PipelineScheduleTest, ClaimedTimesAreChecked) {
  const PipelineChart good = timed(one_f_one_b_schedule(2, 2), {1, 1, 1, 1});
  const auto error = [&](std::size_t rank, std::size_t index, std::int64_t start,
                         std::int64_t end) {
    PipelineChart bad = good;
    bad.ranks[rank][index].start = start;
    bad.ranks[rank][index].end = end;
    return validate(bad, {1, 1, 1, 1}).message();
  };
  ASSERT_TRUE(validate(good, {1, 1, 1, 1}).ok());
  EXPECT_THAT(error(0, 1, 0, 1), HasSubstr("0F1 starts at 0, but the rank is busy until 1"));
  EXPECT_THAT(error(0, 1, 1, 3), HasSubstr("0F1 is from 1 to 3, but takes 1"));
  EXPECT_THAT(error(0, 1, 1, 0), HasSubstr("0F1 is from 1 to 0"));
  EXPECT_THAT(error(0, 0, -1, 0), HasSubstr("starts at -1"));
  EXPECT_THAT(error(1, 0, 1, 2),
              HasSubstr("1F0 starts at 1, but rank 0's 0F0, which it needs, ends at 1 and travels "
                        "for 1"));
}

TEST(PipelineScheduleTest, CsvRoundTrips) {
  for (const int ranks : {1, 2, 4, 7}) {
    for (const PipelineSchedule& schedule : all_schedules(ranks, 2 * ranks)) {
      const Result<PipelineSchedule> read =
          parse_schedule_csv(schedule.name, schedule_csv(schedule));
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      EXPECT_EQ(*read, schedule);
      const PipelineChart chart = timed(schedule, {3, 5, 2, 1});
      const Result<PipelineChart> again = parse_chart_csv(chart.name, chart_csv(chart));
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ(*again, chart);
    }
  }
}

TEST(PipelineScheduleTest, CsvOfOthersIsRead) {
  // With idle steps, spaces and a Windows line end.
  const Result<PipelineSchedule> read =
      parse_schedule_csv("theirs", "0F0, 0F1,,,0I0,0W0,0B1\r\n,1F0,1B0,1F1,1I1,1W1\n\n");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_TRUE(validate(*read).ok());
  EXPECT_EQ(read->ranks[0].size(), 5u);
  EXPECT_EQ(read->ranks[1][3], (Action{Action::backward_input, 0, 1}));
}

TEST(PipelineScheduleTest, CsvErrorsNameLineAndCell) {
  const auto error = [](std::string_view text) {
    const Result<PipelineSchedule> read = parse_schedule_csv("bad", text);
    EXPECT_EQ(read.status().code(), StatusCode::corrupt_data) << text;
    return read.status().message();
  };
  EXPECT_THAT(error("0F0,0B0\n1F0,1X0\n"), HasSubstr("line 2, cell 2: '1X0'"));
  EXPECT_THAT(error("0F0,0SEND_F0\n"), HasSubstr("line 1, cell 2"));
  EXPECT_THAT(error("0F0\n2F0\n"), HasSubstr("stage 2 is on rank 0 of 2"));
  EXPECT_THAT(error("0F\n"), HasSubstr("'0F'"));
  EXPECT_THAT(error("0F0x\n"), HasSubstr("'0F0x'"));
  EXPECT_THAT(error("-1F0\n"), HasSubstr("'-1F0'"));
  EXPECT_THAT(error("0F99999999999999999999\n"), HasSubstr("cell 1"));
  EXPECT_THAT(error("0F0@1-2\n"), HasSubstr("is not like '2F3'"));
  EXPECT_THAT(error(""), HasSubstr("without lines"));
  EXPECT_THAT(error(std::string(20000, '\n') + "0F0"), HasSubstr("lines"));
  EXPECT_LT(error(std::string(100000, 'z')).size(), 200u);
  for (const char* text : {"0F0", "0F0@", "0F0@1", "0F0@1-", "0F0@-1-2", "0F0@1-2-3"})
    EXPECT_FALSE(parse_chart_csv("bad", text).ok()) << text;
}

TEST(PipelineDrawingTest, CharactersShowWhoDoesWhatWhen) {
  EXPECT_EQ(draw_text(timed(gpipe_schedule(2, 2), {10, 10, 10, 0})),
            "gpipe: 2 ranks, 2 micro-batches; time 90, bubble 33.3 %\n"
            "rank 0 |F0 F1 .. .. .. B0 == B1 ==\n"
            "rank 1 |.. F0 F1 B0 == B1 == .. ..\n");
  EXPECT_THAT(draw_text(timed(interleaved_schedule(2, 2, 2), kUsual)), HasSubstr("|0F0 0F1 2F0"));
}

TEST(PipelineDrawingTest, LongChartsGoOnBelow) {
  const std::string text = draw_text(timed(one_f_one_b_schedule(4, 12), kUsual), 40);
  std::size_t longest = 0, begin = text.find('\n') + 1;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  EXPECT_LE(longest, 40u);
  EXPECT_THAT(text, AllOf(HasSubstr("\nfrom 8\n"), HasSubstr("F11"), HasSubstr("B11")));
}

// 10,000 ranks x 10^15 - 1 cells are more than an int64 can tell.
TEST(PipelineDrawingTest, WhatIsTooLongIsNotDrawnHoweverLong) {
  PipelineChart chart{"long", 1, 1, std::vector<std::vector<TimedAction>>(10'000)};
  chart.ranks[0].push_back({{Action::forward, 0, 0}, 0, 1});
  chart.ranks[0].push_back({{Action::backward, 0, 0}, 1, 999'999'999'999'999});
  EXPECT_THAT(draw_text(chart), HasSubstr("too long to draw"));
}

std::size_t occurrences(const std::string& text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++count;
  return count;
}

TEST(PipelineDrawingTest, TheSvgHasABoxForEveryAction) {
  for (const PipelineSchedule& schedule : all_schedules(16, 64)) {
    const PipelineChart chart = timed(schedule, kUsual);
    const std::string svg = draw_svg(chart);
    std::size_t actions = 0, kinds = schedule.name == "zb-h1" ? 3 : 2;
    for (const std::vector<TimedAction>& lane : chart.ranks) actions += lane.size();
    EXPECT_EQ(occurrences(svg, "fill-opacity"), actions);
    EXPECT_EQ(occurrences(svg, "<rect"), actions + 16 + kinds + 2);  // lanes, legend, background
    EXPECT_EQ(occurrences(svg, "<text"), occurrences(svg, "</text>"));
    EXPECT_EQ(occurrences(svg, ">rank 15</text>"), 1u);
    EXPECT_EQ(occurrences(svg, ">" + schedule.name + ": 16 ranks, 64 micro-batches"), 1u);
    // One micro-batch at a time takes so long that numbers do not fit its boxes.
    const std::size_t numbered = schedule.name == "naive" ? 0 : actions / 64;
    EXPECT_EQ(occurrences(svg, ">63</text>"), numbered);
    EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  }
}

TEST(PipelineDrawingTest, NamesCannotBreakTheSvg) {
  PipelineSchedule schedule = gpipe_schedule(1, 1);
  schedule.name = "<script>\"&";
  EXPECT_THAT(draw_svg(timed(schedule, kUsual)), HasSubstr("&lt;script&gt;&quot;&amp;"));
}

}  // namespace
}  // namespace tutti::training
