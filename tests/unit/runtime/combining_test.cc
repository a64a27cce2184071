// Groups of ranks that combine in shared memory: whoever comes when, all get the sums of the call
// that they make; that calls made so give what others give; and that what is not as expected is an
// error or goes by messages.
#include "runtime/combining.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu.hpp"
#include "tutti/tutti.hpp"
#include "unit/runtime/processes.hpp"
#include "unit/runtime/rounds.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

// ---- The memory ----

class SharedLines {
 public:
  explicit SharedLines(int ranks)
      : bytes_(Combining::memory_bytes(ranks)), lines_(bytes_ / sizeof(Line) + 1) {}
  std::span<std::byte> all() { return std::as_writable_bytes(std::span(lines_)).first(bytes_); }

 private:
  struct alignas(256) Line {
    std::array<std::byte, 256> bytes = {};
  };
  std::size_t bytes_;
  std::vector<Line> lines_;
};

// A rank that adds up numbers of its own again and again, one small step at a time.
class Adder {
 public:
  Adder(SharedLines& lines, Rank rank, int ranks)
      : view_(lines.all(), rank, ranks), rank_(rank), ranks_(ranks) {}

  std::uint64_t calls() const { return calls_; }

  // One thing that it can do now, unless it waits.
  void step() {
    if (stage_ == Stage::away) return begin();
    if (stage_ == Stage::lays) return lay();
    if (stage_ == Stage::leads) return lead();
    if (!view_.misses_sum()) return end();
    view_.find_next();
  }

 private:
  enum class Stage { away, lays, leads, waits };

  // The same on all ranks.
  std::size_t numbers() const { return std::array{1UL, 3UL, 4UL, 300UL}[calls_ % 4]; }
  int group_size() const { return calls_ % 7 < 5 || ranks_ % 4 != 0 ? 2 : ranks_ / 2; }
  std::uint64_t number(Rank rank, std::size_t i) const {
    return calls_ * 1000 + static_cast<std::uint64_t>(rank) * 10 + i;
  }
  std::array<std::byte, kArrivalBytes> record() const {
    std::array<std::byte, kArrivalBytes> record = {};
    std::memcpy(record.data(), &calls_, sizeof calls_);
    return record;
  }
  bool is_of_this_call(Combining::Record theirs) const {
    return std::ranges::equal(theirs, record());
  }
  static std::uint64_t at(const std::byte* numbers, std::size_t i) {
    std::uint64_t value = 0;
    std::memcpy(&value, numbers + i * sizeof value, sizeof value);
    return value;
  }

  void begin() {
    view_.group_into(group_size(), std::vector<bool>(static_cast<std::size_t>(ranks_)));
    view_.begin(numbers() * sizeof(std::uint64_t));
    stage_ = view_.comes_last() ? Stage::leads : Stage::lays;
  }

  void lay() {
    for (std::size_t i = 0; i < numbers(); ++i) {
      const std::uint64_t mine = number(rank_, i);
      std::memcpy(view_.part() + i * sizeof mine, &mine, sizeof mine);
    }
    stage_ = view_.lay(record()) ? Stage::leads : Stage::waits;
    EXPECT_TRUE(view_.has_laid(rank_));
  }

  void lead() {
    const Rank first = view_.own_group() * group_size();
    for (std::size_t i = 0; i < numbers(); ++i) {
      std::uint64_t sum = number(rank_, i);
      for (Rank rank = first; rank < first + group_size(); ++rank)
        if (rank != rank_) sum += at(view_.part_of(rank), i);
      std::memcpy(view_.sum() + i * sizeof sum, &sum, sizeof sum);
    }
    for (Rank rank = first; rank < first + group_size(); ++rank)
      EXPECT_TRUE(rank == rank_ || is_of_this_call(view_.record_of_part(rank)));
    view_.show(record());
    stage_ = Stage::waits;
  }

  void end() {
    for (std::size_t i = 0; i < numbers(); ++i) {
      std::uint64_t sum = 0;
      std::uint64_t right = 0;
      for (int group = 0; group < view_.groups(); ++group) sum += at(view_.sum_of(group), i);
      for (Rank rank = 0; rank < ranks_; ++rank) right += number(rank, i);
      ASSERT_EQ(sum, right) << "rank " << rank_ << ", call " << calls_ << ", number " << i;
    }
    for (int group = 0; group < view_.groups(); ++group)
      EXPECT_TRUE(is_of_this_call(view_.record_of_sum(group)));
    ++calls_;
    stage_ = Stage::away;
  }

  Combining view_;
  Rank rank_;
  int ranks_;
  std::uint64_t calls_ = 0;
  Stage stage_ = Stage::away;
};

// In any order of their steps: every reuse of a place comes after all have read what was there.
TEST(Combining, AnyOrderOfStepsGivesTheSums) {
  std::mt19937 dice(11);
  for (const int ranks : {4, 6, 8})
    for (int world = 0; world < 10; ++world) {
      SharedLines lines(ranks);
      std::vector<Adder> adders;
      for (Rank rank = 0; rank < ranks; ++rank) adders.emplace_back(lines, rank, ranks);
      // One of them is often slow, and another one often quick.
      const std::size_t slow = dice() % adders.size();
      const std::size_t quick = dice() % adders.size();
      for (int step = 0; step < 60'000; ++step) {
        std::size_t who = dice() % adders.size();
        if (who == slow && dice() % 8 != 0) who = quick;
        adders[who].step();
        if (HasFatalFailure()) return;
      }
      const auto [least, most] =
          std::ranges::minmax(adders, {}, [](const Adder& adder) { return adder.calls(); });
      EXPECT_GT(least.calls(), 100U);
      EXPECT_LE(most.calls(), least.calls() + 1) << "all begin a call before any ends it";
    }
}

TEST(Combining, ThreadsGetTheSums) {
  constexpr int kRanks = 4;
  constexpr std::uint64_t kCalls = 500;
  SharedLines lines(kRanks);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      Adder adder(lines, rank, kRanks);
      while (adder.calls() < kCalls && !HasFatalFailure()) {
        adder.step();
        std::this_thread::yield();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Combining, NeedsEnoughMemory) {
  SharedLines lines(4);
  EXPECT_TRUE(Combining(lines.all(), 0, 4).possible());
  EXPECT_FALSE(Combining(lines.all().first(lines.all().size() - 1), 0, 4).possible());
  EXPECT_FALSE(Combining({}, 0, 4).possible());
  for (const int ranks : {1, 2, 3, 7, 64, 1000})
    EXPECT_LE(Combining::memory_bytes(ranks), static_cast<std::size_t>(ranks) * kSharedBytesEach);
}

// The planner's bound is the memory's: what is planned to combine does.
TEST(Combining, HoldsWhatIsPlanned) {
  const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "combining");
  EXPECT_EQ((*algorithm)->combined_bytes, Combining::kBytesMax);
}

// ---- Ranks of one thread ----

Calls combining(int group) {
  Calls calls{Collective::all_reduce, "combining", false, false, 8192};
  calls.group = group;
  return calls;
}

int always(Rank) { return 1000; }

TEST(CombiningCalls, GiveWhatOthersGive) {
  for (const auto& [ranks, group] : {std::pair(4, 2), {6, 2}, {6, 3}, {8, 2}, {8, 4}, {9, 3}})
    for (const std::size_t count : {0UL, 1UL, 2UL, 3UL, 4UL, 13UL, 512UL, 513UL, 2503UL, 16384UL})
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(count));
        Rounds rounds(combining(group), ranks, count, in_place);
        rounds.all_the_general_way();
        EXPECT_TRUE(rounds.executor(0).is_combining());
        for (int call = 2; call < 12; ++call) EXPECT_EQ(rounds.together(always), ranks) << call;
        rounds.all_the_general_way();
      }
}

// From which rank on they come does not matter: the last one of all finds all there.
TEST(CombiningCalls, WhoComesLastLeads) {
  Rounds rounds(combining(4), 8, 5, false);
  rounds.all_the_general_way();
  for (int call = 0; call < 40; ++call) EXPECT_GE(rounds.again(call % 8), 1);
}

TEST(CombiningCalls, AnyoneMayBeLate) {
  std::mt19937 dice(7);
  for (const auto& [ranks, group] : {std::pair(4, 2), {8, 4}})
    for (const std::size_t count : {2UL, 100UL, 3000UL}) {
      Rounds rounds(combining(group), ranks, count, dice() % 2 == 0);
      for (int call = 0; call < 200; ++call) {
        const auto general = static_cast<Rank>(dice() % 12);
        rounds.together([&](Rank) { return static_cast<int>(dice() % 3); }, general);
        if (HasFatalFailure()) return;
      }
    }
}

// What does not fit goes by messages, as the program says.
TEST(CombiningCalls, WhatIsTooLongGoesByMessages) {
  constexpr std::size_t kMost = Combining::kBytesMax / sizeof(std::int64_t);
  for (const std::size_t count : {kMost, kMost + 1}) {
    Calls calls = combining(2);
    calls.frame_bytes = Combining::kBytesMax * 2;
    Rounds rounds(calls, 4, count, false);
    rounds.all_the_general_way();
    EXPECT_EQ(rounds.executor(0).is_combining(), count == kMost);
    rounds.all_the_general_way();
  }
}

TEST(CombiningCalls, AreOfCallsThatAreLikeTheLatestOne) {
  Rounds rounds(combining(2), 4, 5, true);
  EXPECT_FALSE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0))) << "none was made";
  rounds.all_the_general_way();
  expect_only_like_the_latest(rounds);
}

TEST(CombiningCalls, SayWhomTheyWaitFor) {
  Rounds rounds(combining(2), 4, 5, false);
  rounds.all_the_general_way();
  rounds.count_a_call();
  Executor& executor = rounds.executor(1);
  ASSERT_TRUE(executor.start(rounds.next(1), rounds.plan(1)).ok());
  EXPECT_EQ(executor.awaited().all, (std::vector<Rank>{0, 2, 3}));
  EXPECT_EQ(executor.awaited().what, "data from rank 0");
  ASSERT_TRUE(rounds.executor(3).start(rounds.next(3), rounds.plan(3)).ok());
  EXPECT_EQ(executor.awaited().all, (std::vector<Rank>{0, 2}));
  ASSERT_TRUE(rounds.executor(0).start(rounds.next(0), rounds.plan(0)).ok());
  EXPECT_EQ(executor.awaited().all, (std::vector<Rank>{2}));
}

// A sleep ends by the sum that is awaited, and who shows one wakes sleepers.
TEST(CombiningCalls, WakeWhoSleeps) {
  Rounds rounds(combining(2), 4, 5, false, [] { return true; });
  rounds.all_the_general_way();
  const auto start = [&](Rank rank) {
    const std::size_t before = rounds.wakes(rank);
    EXPECT_TRUE(rounds.executor(rank).start(rounds.next(rank), rounds.plan(rank)).ok());
    return rounds.wakes(rank) - before;
  };
  const auto awaited = [&](Rank rank) {
    rounds.executor(rank).advance();
    rounds.executor(rank).prepare_to_sleep();
    return rounds.awaited_word(rank);
  };
  rounds.count_a_call();
  EXPECT_EQ(start(0), 0U) << "it shows nothing";
  const auto* const own = awaited(0);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(start(1), 1U);
  const std::uint64_t number = *own;
  EXPECT_GT(number, 0U);
  const auto* const others = awaited(0);
  ASSERT_NE(others, nullptr);
  EXPECT_NE(others, own);
  EXPECT_EQ(awaited(1), others);
  EXPECT_EQ(start(3), 0U);
  EXPECT_EQ(start(2), 1U);
  EXPECT_EQ(*others, number);
  EXPECT_EQ(awaited(0), nullptr) << "it has ended";
}

// Whoever finds it: a leader among the parts of its group, or anybody among the sums.
TEST(CombiningCalls, AnotherCallIsAMismatch) {
  for (const Rank odd : {0, 1, 2, 3}) {
    Rounds rounds(combining(2), 4, 5, false);
    rounds.all_the_general_way();
    rounds.count_a_call();
    for (Rank rank = 0; rank < 4; ++rank) {
      Call call = rounds.next(rank);
      if (rank == odd) call.signature.op = ReduceOp::max;
      call.sign();
      ASSERT_TRUE(rounds.executor(rank).post_again(call, rounds.plan(rank)));
      rounds.executor(rank).end_again(rounds.find(rank, 0));
    }
    for (int turn = 0; turn < 50; ++turn)
      for (Rank rank = 0; rank < 4; ++rank)
        if (!rounds.executor(rank).done()) rounds.executor(rank).advance();
    // Who finds it says what both called, and the others who has said so.
    bool told = false;
    for (Rank rank = 0; rank < 4; ++rank) {
      const Status& status = rounds.executor(rank).status();
      EXPECT_EQ(status.code(), StatusCode::mismatch) << "rank " << rank << ", odd " << odd;
      const std::string called = "rank " + std::to_string(odd) + " called";
      told = told || status.message().find(called) != std::string::npos;
    }
    EXPECT_TRUE(told) << odd;
  }
}

// A rank that combines gets a message of the same call from one that does not.
TEST(CombiningCalls, AMessageIsAMismatch) {
  Rounds rounds(combining(2), 4, 5, false);
  rounds.all_the_general_way();
  rounds.count_a_call();
  ASSERT_TRUE(rounds.executor(0).start(rounds.next(0), rounds.plan(0)).ok());
  collectives::Plan plan = rounds.plan(1);
  plan.combining_group = 0;
  plan.program = std::make_shared<collectives::LoweredProgram>(*plan.program);
  ASSERT_TRUE(rounds.executor(1).start(rounds.next(1), plan).ok());
  rounds.executor(1).advance();
  rounds.executor(0).find_strays();
  EXPECT_EQ(rounds.executor(0).status().code(), StatusCode::mismatch);
}

TEST(CombiningCalls, AFailureIsHeard) {
  Rounds rounds(combining(2), 4, 5, false);
  rounds.all_the_general_way();
  rounds.count_a_call();
  for (const Rank rank : {0, 1, 2})
    ASSERT_TRUE(rounds.executor(rank).start(rounds.next(rank), rounds.plan(rank)).ok());
  rounds.executor(3).fail(Status(StatusCode::aborted, "no more", 3));
  for (int turn = 0; turn < 5; ++turn)
    for (const Rank rank : {0, 1, 2}) rounds.executor(rank).advance();
  for (const Rank rank : {0, 1, 2})
    EXPECT_EQ(rounds.executor(rank).status().code(), StatusCode::aborted) << rank;
}

// ---- Communicators ----

template <typename T>
bool sums_are_right(Communicator& comm, DataType type, std::size_t count, ReduceOp op) {
  std::vector<T> mine(count, static_cast<T>(comm.rank() + 1));
  std::vector<T> got(count);
  const auto n = static_cast<T>(comm.size());
  if (!comm.all_reduce(mine.data(), got.data(), count, type, op).ok()) return false;
  const T right = op == ReduceOp::sum   ? static_cast<T>(n * (n + 1) / 2)
                  : op == ReduceOp::max ? n
                  : op == ReduceOp::min ? static_cast<T>(1)
                                        : static_cast<T>((n + 1) / 2);  // avg: exact in the types
  return std::ranges::all_of(got, [&](T value) { return value == right; });
}

// Calls of all kinds after each other, each several times, and ranks that come late. Under a
// sanitizer eight ranks on two cores take ten times as long for each.
#ifdef TUTTI_SANITIZED
constexpr int kLoopCalls = 100;
#else
constexpr int kLoopCalls = 400;
#endif

bool loop(Communicator& comm) {
  std::mt19937 dice(3);
  for (int call = 0; call < kLoopCalls; ++call) {
    if (static_cast<int>(dice() % 64) == comm.rank())
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    const std::size_t count = std::array{1UL, 2UL, 7UL, 300UL, 4000UL, 10'000UL}[dice() % 6];
    const ReduceOp op = std::array{ReduceOp::sum, ReduceOp::max, ReduceOp::min}[dice() % 3];
    const int times = static_cast<int>(1 + dice() % 4);
    for (int again = 0; again < times; ++again) {
      if (!sums_are_right<std::int64_t>(comm, DataType::int64, count, op)) return false;
      if (!sums_are_right<float>(comm, DataType::float32, count, ReduceOp::avg)) return false;
      if (!sums_are_right<std::uint8_t>(comm, DataType::uint8, count, op)) return false;
      if (!sums_are_right<double>(comm, DataType::float64, count, op)) return false;
    }
    if (call % 13 == 0 && !comm.barrier().ok()) return false;
    if (call % 17 == 0) {
      std::int64_t mine = comm.rank();
      std::int64_t most = -1;
      auto work = comm.all_reduce_async(&mine, &most, 1, DataType::int64, ReduceOp::max);
      if (!work.ok() || !work->wait().ok() || most != comm.size() - 1) return false;
    }
  }
  return true;
}

std::function<void(Rank)> on_half_the_cores_each(int ranks) {
  return [ranks](Rank rank) {
    const std::vector<base::Core> cores = base::allowed_cores();
    const std::size_t half = rank < ranks / 2 ? 0 : 1;
    if (!base::bind_to(std::span(cores[half]).first(1)).ok()) std::abort();
  };
}

TEST(CombiningCalls, LoopsOfProcesses) {
  if (base::allowed_cores().size() < 2) GTEST_SKIP() << "needs two cores";
  for (const int ranks : {4, 6, 8})
    for (const bool ordered : {false, true}) {
      if (ordered && ranks == 6) continue;  // no powers of two
      CommunicatorOptions options;
      options.algorithm = "combining";
      if (ordered) options.reduce_order = "rank_tree";
      EXPECT_TRUE(on_processes(ranks, options, loop, on_half_the_cores_each(ranks))) << ranks;
    }
}

}  // namespace
}  // namespace tutti::runtime
