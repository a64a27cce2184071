// Short programs: that they say what the program says that they were made of, and that calls which
// have one take turns with calls that have none.
#include "runtime/short_program.hpp"

#include <gtest/gtest.h>

#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "runtime/executor.hpp"
#include "transport/memory/transport.hpp"
#include "unit/runtime/world.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;
using collectives::Geometry;

constexpr int kRanks = 6;
constexpr std::size_t kElementBytes = 4;

CallProgram make(const collectives::Algorithm& algorithm, int ranks, Rank rank) {
  const auto schedule = collectives::build(algorithm, ranks, 0);
  return CallProgram(
      std::make_shared<collectives::LoweredProgram>(collectives::lower(*schedule, rank)));
}

// A range of chunks is one piece of memory, whatever its chunks' sizes are.
std::size_t elements_of(const CallProgram& program, const CallStep& step, const Geometry& whole) {
  const std::int32_t first = program.operand(step.in_memory).chunk;
  const auto last = whole.of(first + step.pieces - 1, 0, 0);
  return last.begin + last.count - whole.of(first, 0, 0).begin;
}

// Whether a step copies the rank's own memory into messages, and perhaps elsewhere.
bool sends_own_memory(const CallProgram& program, const CallStep& step) {
  if (step.kind != StepKind::copy || program.sources(step)[0].is_message) return false;
  bool sends = false;
  for (const CallOperand& destination : program.destinations(step)) sends |= destination.is_message;
  return sends;
}

TEST(ShortProgram, SaysWhatTheProgramSays) {
  // So that some messages are as long, and some longer.
  constexpr std::size_t kAtOnceBytes = 3 * kElementBytes;
  int compared = 0;
  int at_once = 0;
  for (const collectives::Algorithm& algorithm : collectives::all_algorithms()) {
    if (!algorithm.shape(kRanks, 0, 1).ok()) continue;
    SCOPED_TRACE(std::string(to_string(algorithm.collective)) + " " + std::string(algorithm.name));
    const CallProgram program = make(algorithm, kRanks, 4);
    if (!ShortProgram::fits(program)) continue;
    const Geometry whole(13, program.lowered().shape.chunks, 1, 1);
    ShortProgram made;
    made.lay_out(program, whole, kElementBytes, kAtOnceBytes);
    ASSERT_EQ(made.steps().size(), program.steps().size());
    for (std::size_t s = 0; s < made.steps().size(); ++s) {
      const CallStep& from = program.steps()[s];
      const ShortStep& to = made.steps()[s];
      EXPECT_EQ(to.kind, from.kind);
      EXPECT_EQ(to.finish, from.finish);
      EXPECT_EQ(to.elements, elements_of(program, from, whole));
      std::uint64_t depends = 0;
      std::uint64_t fused = 0;
      for (std::uint32_t d = from.depends; d < from.depends_end; ++d) {
        const auto& dependency = program.dependencies()[d];
        depends |= std::uint64_t{1} << dependency.step;
        fused |= std::uint64_t{dependency.fused} << dependency.step;
      }
      EXPECT_EQ(to.depends, depends);
      EXPECT_EQ(to.fused, fused);
      EXPECT_EQ(to.may_land, from.may_land);
      EXPECT_EQ(to.may_offer, from.may_offer);
      EXPECT_EQ(to.sends_at_once,
                sends_own_memory(program, from) && to.elements * kElementBytes <= kAtOnceBytes);
      at_once += to.sends_at_once ? 1 : 0;
      ASSERT_EQ(to.sources, from.sources);
      ASSERT_EQ(to.destinations, from.destinations);
      ASSERT_EQ(to.end, from.end);
      for (std::uint32_t i = to.sources; i < to.end; ++i)
        EXPECT_EQ(made.offset(i), whole.of(program.operand(i).chunk, 0, 0).begin * kElementBytes);
    }
    EXPECT_EQ(static_cast<std::size_t>(__builtin_popcountll(made.all())), made.steps().size());
    made.clear();
    EXPECT_TRUE(made.empty());
    ++compared;
  }
  EXPECT_GT(compared, 10);
  EXPECT_GT(at_once, 0);
}

TEST(ShortProgram, OnlyFewStepsFitAWord) {
  const auto ring = collectives::find_algorithm(Collective::all_reduce, "ring");
  EXPECT_TRUE(ShortProgram::fits(make(**ring, kRanks, 0)));
  EXPECT_FALSE(ShortProgram::fits(make(**ring, 64, 0)));
}

// ---- Two ranks that call ----

class TwoRanks : public ::testing::Test {
 protected:
  static constexpr std::size_t kFrameBytes = 1024;

  TwoRanks() {
    transport::TransportOptions options;
    options.size = 2;
    options.channel_count = 1;
    options.frame_bytes_max = kFrameBytes;
    options.queue_bytes = 2 * kFrameBytes;
    const auto world = transport::MemoryWorld::make(options);
    const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "direct");
    auto programs = collectives::lower_all(*collectives::build(**algorithm, 2, 0, 1));
    for (Rank r = 0; r < 2; ++r) {
      transports_.push_back(transport::make_memory_transport(world, r));
      executors_.push_back(std::make_unique<Executor>(*transports_.back()));
      plans_.push_back({"direct",
                        {1, kFrameBytes, false},
                        std::make_shared<collectives::LoweredProgram>(std::move(programs[idx(r)])),
                        42});
    }
  }

  void start(std::size_t count, bool direct = false) {
    ++sequence_;
    for (collectives::Plan& plan : plans_) plan.settings.direct = direct;
    for (Rank r = 0; r < 2; ++r) {
      auto& data = data_[idx(r)];
      data.resize(count);
      for (std::size_t i = 0; i < count; ++i) data[i] = contribution(r, i);
      auto* memory = reinterpret_cast<std::byte*>(data.data());
      const Signature signature{
          sequence_, Collective::all_reduce, DataType::int64, ReduceOp::sum, direct, 0, count, 42};
      ASSERT_TRUE(executors_[idx(r)]
                      ->start(Call::signed_as(signature, memory, memory), plans_[idx(r)])
                      .ok());
    }
  }

  void expect_sums() {
    for (const auto& data : data_)
      for (std::size_t i = 0; i < data.size(); ++i)
        ASSERT_EQ(data[i], contribution(0, i) + contribution(1, i)) << i;
  }

  void finish() {
    for (int round = 0; round < 1000; ++round)
      for (std::size_t r = 0; r < 2; ++r) {
        ASSERT_TRUE(transports_[r]->poll().ok());
        executors_[r]->advance();
        ASSERT_TRUE(executors_[r]->status().ok()) << executors_[r]->status().to_string();
      }
    ASSERT_TRUE(executors_[0]->done() && executors_[1]->done());
    expect_sums();
  }

  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<collectives::Plan> plans_;
  std::vector<std::int64_t> data_[2];
  std::uint32_t sequence_ = 0;
};

// Each call leaves the other kind nothing but the connections.
TEST_F(TwoRanks, WholeAndCutCallsTakeTurns) {
  for (const std::size_t count : {1U, 1U, 700U, 3U, 700U, 701U, 0U, 5U, 300U, 1U}) {
    SCOPED_TRACE(count);
    start(count);
    finish();
  }
}

TEST_F(TwoRanks, DirectAndStagedCallsTakeTurns) {
  for (const std::size_t count : {1U, 0U, 5U, 700U, 100U, 300U, 1U})
    for (const bool direct : {true, false, true, true}) {
      SCOPED_TRACE(count);
      start(count, direct);
      finish();
    }
}

TEST_F(TwoRanks, DirectCallsLinger) {
  start(2, true);
  finish();
  start(2, true);
  executors_[0]->advance();
  EXPECT_FALSE(executors_[0]->linger(10)) << "nobody has come";
  EXPECT_EQ(executors_[0]->awaited().what, "rank 1 to make the same call");
  executors_[1]->advance();
  EXPECT_TRUE(executors_[0]->linger(10));
  for (std::size_t turn = 0; turn < 10; ++turn) executors_[turn % 2]->linger(1);
  EXPECT_TRUE(executors_[0]->done() && executors_[1]->done());
  expect_sums();
}

TEST_F(TwoRanks, LingeringSeesAMessageWithoutAPoll) {
  start(2);
  finish();  // now they are connected
  start(2);
  executors_[0]->advance();
  EXPECT_FALSE(executors_[0]->linger(10)) << "nothing came";
  EXPECT_EQ(executors_[0]->awaited().what, "rank 1 to make the same call");
  executors_[1]->advance();
  EXPECT_TRUE(executors_[0]->linger(10));
  for (std::size_t turn = 0; turn < 10; ++turn) executors_[turn % 2]->linger(1);
  EXPECT_TRUE(executors_[0]->done() && executors_[1]->done());
  EXPECT_FALSE(executors_[0]->linger(10)) << "there is nothing left to do";
  expect_sums();
}

// Whatever a rank waits for in a small call, it is the other's; so where both run on one core it
// should be given away each time.
TEST_F(TwoRanks, MissesTheRankThatNeedsItsCore) {
  executors_[0]->share_core_with({false, true});
  for (const bool direct : {false, true}) {
    SCOPED_TRACE(direct);
    start(2, direct);
    finish();
    start(2, direct);
    if (direct) executors_[1]->advance();  // it has come, and no more than that
    executors_[0]->advance();
    int missed = 0;
    while (!executors_[0]->done()) {
      ASSERT_LT(missed, 10);
      while (executors_[0]->linger(1)) {
      }
      if (executors_[0]->done()) break;
      EXPECT_TRUE(executors_[0]->misses_neighbour());
      ++missed;
      executors_[1]->advance();
    }
    EXPECT_GT(missed, 0);
    EXPECT_FALSE(executors_[1]->misses_neighbour()) << "has none";
    finish();
  }
}

// Three ranks that make calls of one element.
class ThreeRanks : public ::testing::Test {
 protected:
  static constexpr int kSize = 3;

  void make(Collective collective, std::string_view name, bool direct = false) {
    transport::TransportOptions options;
    options.size = kSize;
    options.channel_count = 1;
    options.frame_bytes_max = 1024;
    options.queue_bytes = 2048;
    const auto world = transport::MemoryWorld::make(options);
    const auto algorithm = collectives::find_algorithm(collective, name);
    ASSERT_TRUE(algorithm.ok());
    auto programs = collectives::lower_all(*collectives::build(**algorithm, kSize, 0, 1));
    executors_.clear();
    plans_.clear();
    transports_.clear();
    for (Rank r = 0; r < kSize; ++r) {
      transports_.push_back(transport::make_memory_transport(world, r));
      executors_.push_back(std::make_unique<Executor>(*transports_.back()));
      plans_.push_back({std::string(name),
                        {1, options.frame_bytes_max, direct},
                        std::make_shared<collectives::LoweredProgram>(std::move(programs[idx(r)])),
                        42});
      data_[r] = r + 1;
      calls_[r] = 0;
    }
    signature_ = {0, collective, DataType::int32, ReduceOp::sum, direct, 0, 1, 42};
  }

  void start(Rank r) {
    signature_.sequence = static_cast<std::uint32_t>(++calls_[r]);
    auto* memory = reinterpret_cast<std::byte*>(&data_[r]);
    const Call call = Call::signed_as(signature_, memory, memory);
    ASSERT_TRUE(executors_[idx(r)]->start(call, plans_[idx(r)]).ok());
  }

  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<collectives::Plan> plans_;
  Signature signature_;
  std::int32_t data_[kSize] = {};
  int calls_[kSize] = {};
};

// A root sends to each peer as soon as that one has room, whatever the others have.
TEST_F(ThreeRanks, SendToWhoHasRoom) {
  constexpr int kCalls = 100;  // more than a queue holds
  make(Collective::broadcast, "direct");
  const auto take_turn = [&](Rank r) {
    Executor& executor = *executors_[idx(r)];
    ASSERT_TRUE(transports_[idx(r)]->poll().ok());
    if (calls_[r] > 0) executor.advance();
    ASSERT_TRUE(executor.status().ok()) << executor.status().to_string();
    if (!executor.done()) return;
    if (calls_[r] > 0) {
      ASSERT_EQ(data_[r], 1000 + calls_[r]) << r;
    }
    if (calls_[r] == kCalls) return;
    if (r == 0) data_[0] = 1001 + calls_[0];
    start(r);
  };
  for (int turn = 0; turn < 5 * kCalls; ++turn) take_turn(0);
  const int begun = calls_[0];
  EXPECT_LT(begun, kCalls) << "the queues should be full";
  EXPECT_EQ(executors_[0]->awaited().all, (std::vector<Rank>{1, 2}));
  for (int turn = 0; turn < 2; ++turn) take_turn(1);
  take_turn(0);
  EXPECT_EQ(executors_[0]->awaited().all, std::vector<Rank>{2}) << "rank 1 has got it";
  for (int turn = 0; turn < 5 * kCalls; ++turn) take_turn(1);
  take_turn(0);
  for (int turn = 0; turn < 5; ++turn) take_turn(1);
  EXPECT_EQ(calls_[1], begun + 1) << "rank 1 got all, though rank 2 took nothing";
  for (int turn = 0; turn < 5 * kCalls; ++turn)
    for (Rank r = 0; r < kSize; ++r) take_turn(r);
  for (Rank r = 0; r < kSize; ++r) EXPECT_TRUE(calls_[r] == kCalls && executors_[idx(r)]->done());
}

// While rank 2, which needs the core of rank 0, is missed, what came of rank 1 is not looked at.
TEST_F(ThreeRanks, NeighboursAreLookedAtFirst) {
  for (const bool direct : {false, true}) {
    SCOPED_TRACE(direct);
    make(Collective::all_reduce, direct ? "direct" : "one_shot", direct);
    Executor& mine = *executors_[0];
    mine.share_core_with({false, false, true});
    start(0);
    start(1);
    for (const std::size_t r : {1U, 0U, 1U}) {
      ASSERT_TRUE(transports_[r]->poll().ok());
      executors_[r]->advance(false);
    }
    EXPECT_FALSE(mine.linger(10));
    EXPECT_TRUE(mine.misses_neighbour());
    EXPECT_EQ(mine.awaited().what, "rank 1 to make the same call");
    mine.advance();
    EXPECT_EQ(mine.awaited().what.find("rank 1 to make"), std::string::npos) << "it has come";
    start(2);
    for (int turn = 0; turn < 100; ++turn)
      for (Rank r = 0; r < kSize; ++r) {
        ASSERT_TRUE(transports_[idx(r)]->poll().ok());
        executors_[idx(r)]->advance();
      }
    for (Rank r = 0; r < kSize; ++r) EXPECT_TRUE(executors_[idx(r)]->done() && data_[r] == 6);
  }
}

TEST_F(TwoRanks, CutCallsDoNotLinger) {
  start(700);
  EXPECT_FALSE(executors_[0]->may_linger());
  executors_[0]->advance();
  executors_[1]->advance();
  EXPECT_FALSE(executors_[0]->linger(10));
  finish();
}

}  // namespace
}  // namespace tutti::runtime
