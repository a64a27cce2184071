// Schedules as text: round trips of everything in the table, goldens in tests/schedules, errors
// that name the line, and thousands of damaged texts.
#include "collectives/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "collectives/algorithms/table.hpp"
#include "collectives/expand.hpp"
#include "collectives/lowering.hpp"
#include "collectives/splitmix.hpp"
#include "collectives/verifier.hpp"

namespace tutti::collectives {
namespace {

using ::testing::HasSubstr;

// A schedule with one step that reads `index`.
std::string text_with_index(const std::string& index) {
  return "tutti schedule 1\nalgorithm test\ncollective broadcast\nranks 8\n\nprogram for 0-7\n"
         "  repeat 3\n    copy input[" +
         index + "] -> output[0]\n  end\n";
}

AffineIndex parsed_index(const std::string& text) {
  const Result<Schedule> schedule = parse_schedule(text_with_index(text));
  EXPECT_TRUE(schedule.ok()) << text << ": " << schedule.status().message();
  return schedule.ok() ? schedule->programs[0].parts[0].body[0].sources[0].index : AffineIndex();
}

TEST(Text, IndicesAreWrittenAsPeopleWouldAndReadBack) {
  const std::vector<std::pair<AffineIndex, std::string>> indices = {
      {0, "0"},
      {-7, "-7"},
      {AffineIndex::of_rank(), "r"},
      {AffineIndex::of_loop() + 2, "i+2"},
      {AffineIndex::of_rank() * 2 - AffineIndex::of_loop() - 1, "2*r-i-1"},
      {AffineIndex::of_rank() * -1, "-r"},
      {AffineIndex::of_rank() * -3 + AffineIndex::of_loop() * 2, "-3*r+2*i"},
      {(AffineIndex::of_rank() + 1) % 4, "(r+1)%4"},
      {(AffineIndex::of_rank() + 1) % 4 * 3 + 2, "2+3*(r+1)%4"},
      {AffineIndex::raw(-2, -3, 1, -1, 5, 4), "-2+-3*(r-i+5)%4"},
      {AffineIndex::raw(0, 5, 0, 0, 7, 0), "5*(7)"},
      {AffineIndex::raw(6, 1, 0, 0, -7, 3), "6+(-7)%3"},
      {AffineIndex::raw(1, 0, 0, 1, 0, 0), "1+0*(i)"},
  };
  for (const auto& [index, text] : indices) {
    EXPECT_EQ(to_text(index), text);
    EXPECT_EQ(parsed_index(text), index) << text;
  }
  EXPECT_EQ(parsed_index(" ( r + 1 ) % 4 "), (AffineIndex::of_rank() + 1) % 4);
}

TEST(Text, EveryAlgorithmComesBackUnchanged) {
  for (const Algorithm& algorithm : all_algorithms())
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const Result<Schedule> schedule = build(algorithm, ranks, 0, 2);
      if (!schedule.ok()) continue;
      const std::string text = to_text(*schedule);
      const Result<Schedule> again = parse_schedule(text);
      ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << text;
      EXPECT_EQ(*again, *schedule) << text;
    }
}

// Parts keep their borders, and what only programs by hand have survives as well.
TEST(Text, UnusualProgramsComeBackUnchanged) {
  Schedule schedule;
  schedule.algorithm = "odd_one-2";
  schedule.shape.ranks = 3;
  schedule.shape.chunks = 4;
  schedule.shape.scratch_blocks = 2;
  schedule.shape.message_chunks_max = 4;
  Operand range;
  range.buffer = Buffer::scratch;
  range.count = 4;
  Operand message;
  message.kind = Operand::Kind::message;
  message.index = AffineIndex::of_rank() + 1;
  message.count = 4;
  message.travel = Travel::queued;
  Operand pushed = message;
  pushed.travel = Travel::pushed;
  const Step step{StepKind::reduce, true, {range, message}, {range, pushed}};
  const Step strange{StepKind::copy, true, {}, {message}};
  schedule.programs = {
      Program{{Repeat{1, {step}}, Repeat{1, {step, strange}}, Repeat{1, {step}}}},
      Program{{Repeat{0, {step}}, Repeat{7, {}}, Repeat{1, {}}, Repeat{1, {step}}}}, Program{}};
  schedule.program_of_rank = {1, 0, 1};
  const Result<Schedule> again = parse_schedule(to_text(schedule));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, schedule) << to_text(schedule);
}

// Written by hand, a schedule need not say by which algorithm it is.
TEST(Text, ASchedulesNameIsOptional) {
  const auto algorithm = find_algorithm(Collective::all_reduce, "ring");
  Schedule schedule = *build(**algorithm, 3, 0);
  schedule.algorithm.clear();
  const Result<Schedule> again = parse_schedule(to_text(schedule));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, schedule);
}

TEST(Text, GoldensAreWhatTheTableTellsAndProved) {
  const auto folder = std::filesystem::path(TUTTI_TESTS_FOLDER) / "schedules";
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    const Result<Schedule> schedule = parse_schedule(text);
    ASSERT_TRUE(schedule.ok()) << entry.path() << ": " << schedule.status().message();
    const ScheduleShape& shape = schedule->shape;
    const auto algorithm = find_algorithm(shape.collective, schedule->algorithm);
    ASSERT_TRUE(algorithm.ok()) << algorithm.status().message();
    const Result<Schedule> told = build(**algorithm, shape.ranks, shape.root, 2);
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(to_text(*told), text) << entry.path();
    std::vector<ExpandedProgram> programs;
    for (Rank rank = 0; rank < shape.ranks; ++rank) programs.push_back(expand(*schedule, rank));
    EXPECT_EQ(verify(shape, programs).reason, "");
    ++seen;
  }
  EXPECT_GE(seen, 4);
}

void expect_error(const std::string& text, const std::string& message) {
  const Result<Schedule> schedule = parse_schedule(text);
  ASSERT_FALSE(schedule.ok()) << text;
  EXPECT_EQ(schedule.status().code(), StatusCode::corrupt_data);
  EXPECT_THAT(schedule.status().message(), HasSubstr(message)) << text;
}

TEST(Text, ErrorsNameTheLine) {
  const std::string head = "tutti schedule 1\nranks 4\n";
  expect_error("", "line 0: expected 'tutti schedule 1'");
  expect_error("tutti schedule 2\n", "line 1: expected 'tutti schedule 1', found 'tutti sched");
  expect_error("tutti schedule 12\n", "line 1: expected the end of the line, found '2'");
  expect_error(head, "line 2: expected a program");
  expect_error(head + "rank 4\n", "line 3: expected algorithm, collective");
  expect_error(head + "collective all_reuse\n", "line 3:");
  expect_error(head + "chunks 0\n", "line 3: expected a larger number");
  expect_error(head + "chunks 99999999999\n", "line 3: expected a number up to");
  expect_error(head + "ranks x\n", "line 3: expected a number, found 'x'");
  expect_error(head + "program for 0-2\n", "expected a program for rank 3");
  expect_error(head + "program for 0-4\n", "line 3: expected a number up to 3");
  expect_error(head + "program for 0-3 2\n", "line 3: expected rank 2 in one program only");
  const std::string program = head + "# a comment\nprogram for 0-3\n";
  expect_error(program + "  send input[0] -> to 1\n", "line 5: expected copy, reduce, finish");
  expect_error(program + "  copy input[0] to 1\n", "line 5: expected '->', found 'to 1'");
  expect_error(program + "  copy from 1 -> from 2\n", "expected input, output, scratch or to");
  expect_error(program + "  copy input[r%4] -> to 1\n", "parentheses around");
  expect_error(program + "  copy input[(r)%0] -> to 1\n", "a modulus of at least 1");
  expect_error(program + "  copy input[r+r] -> to 1\n", "each of r and i at most once");
  expect_error(program + "  copy input[0 : 1] -> to 1\n", "a count of at least 2");
  expect_error(program + "  copy input[16777216*(16777216*r)] -> to 1\n", "indices up to");
  expect_error(program + "  copy input[0] -> to 1 2\n", "line 5: expected the end of the line");
  expect_error(program + "  end\n", "line 5: expected a loop that it ends");
  expect_error(program + "  repeat 2\n  repeat 2\n", "line 6: expected loops that are not nested");
  expect_error(program + "  repeat 2\n", "expected 'end' of the loop first");
  expect_error(program + "  repeat 9999999\n  copy input[0] -> to 1\n", "line 6: expected at most");
  expect_error(program + "  repeat -1\n", "line 5: expected a number of times");
}

// Whatever is done to a text, reading it gives an error or a schedule that comes back unchanged.
TEST(Text, DamagedTextsNeverDoHarm) {
  SplitMix dice(1);
  const char signs[] = "0123456789+-*()[]%:,>ri\n #abz\x01\xff";
  int parsed = 0;
  for (const Algorithm& algorithm : all_algorithms()) {
    const Result<Schedule> schedule = build(algorithm, 4, 0, 2);
    if (!schedule.ok()) continue;
    const std::string text = to_text(*schedule);
    for (int i = 0; i < 300; ++i) {
      std::string damaged = text;
      for (int fault = dice.below(3); fault >= 0; --fault) {
        const auto place = static_cast<std::size_t>(dice.below(static_cast<int>(damaged.size())));
        const char sign = signs[dice.below(static_cast<int>(sizeof signs - 1))];
        const auto length = static_cast<std::size_t>(dice.below(20));
        switch (dice.below(4)) {
          case 0:
            damaged[place] = sign;
            break;
          case 1:
            damaged.insert(place, 1, sign);
            break;
          case 2:
            damaged.erase(place, length);
            break;
          default:
            damaged.insert(place, damaged.substr(damaged.size() / 2, length));
            break;
        }
      }
      const Result<Schedule> result = parse_schedule(damaged);
      if (!result.ok()) {
        EXPECT_THAT(result.status().message(), HasSubstr("line "));
        continue;
      }
      ++parsed;
      EXPECT_EQ(to_text(*parse_schedule(to_text(*result))), to_text(*result)) << damaged;
      for (Rank rank = 0; rank < std::min(result->shape.ranks, 8); ++rank)
        EXPECT_GE(unroll(*result, rank).size(), 0U);
    }
  }
  EXPECT_GE(parsed, 100);
}

TEST(Text, ProgramsForReadersShowDependenciesAndForms) {
  const Result<const Algorithm*> algorithm = find_algorithm(Collective::all_reduce, "direct");
  ASSERT_TRUE(algorithm.ok());
  const Result<Schedule> schedule = build(**algorithm, 2, 0);
  ASSERT_TRUE(schedule.ok());
  const std::string expanded = to_text(expand(*schedule, 0));
  EXPECT_THAT(expanded, HasSubstr("   0  copy input[1] -> to 1\n"));
  EXPECT_THAT(expanded, HasSubstr("   1  finish input[0], from 1 -> output[0], to 1\n"));
  EXPECT_THAT(expanded, HasSubstr("   2  copy from 1 -> output[1]   after 0\n"));
  const std::string lowered = to_text(lower(*schedule, 0));
  EXPECT_THAT(lowered, HasSubstr("rank 0 of 2, all_reduce\npeer 1: 2 sent, 2 received\n"));
  EXPECT_THAT(lowered, HasSubstr("copy input[1] -> to 1 #0 pull my input[1]"));
  EXPECT_THAT(lowered, HasSubstr("to 1 #1 push its output[0]"));
  EXPECT_THAT(lowered, HasSubstr("after 0 (fused)"));
}

}  // namespace
}  // namespace tutti::collectives
