// Aborts at any moment of calls that follow each other: nobody waits for ever, all ranks fail of
// the same abort, and a world that was aborted stays so.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/try.hpp"
#include "gpu_world/host_device.hpp"
#include "gpu_world/stage.hpp"
#include "gpu_world/worlds.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::AnyOf;

// Of a thousand in ten parts. Sanitizers are slow, and look for races, not for a rare moment.
#ifdef TUTTI_SANITIZED
constexpr unsigned kAbortsOfAPart = 10;
#else
constexpr unsigned kAbortsOfAPart = 100;
#endif

// What varies from one abort to the next; all of it follows from the seed.
struct AbortCase {
  explicit AbortCase(unsigned seed) : dice(seed) {
    ranks = 2 + static_cast<int>(dice() % 3);
    culprit = static_cast<Rank>(dice() % static_cast<unsigned>(ranks));
    count = dice() % 2 == 0 ? 7 : 400;  // words of low latency; several slices and channels
    calls = static_cast<int>(dice() % 4);
    later = std::chrono::microseconds(dice() % 100);
    options = small_options();
    options.direct = dice() % 2 == 0;
    collective = dice() % 2 == 0 ? Collective::all_reduce : Collective::all_to_all;
  }

  std::minstd_rand dice;
  int ranks = 0;
  Rank culprit = 0;
  std::size_t count = 0;
  int calls = 0;                       // that have ended before, on whatever rank,
  std::chrono::microseconds later{0};  // and so much later it comes
  GpuOptions options;
  Collective collective = Collective::all_reduce;
};

// Calls of a rank, one behind the other, until one fails. Counts those that end well.
Status call_until_failure(Stage& stage, Rank rank, std::atomic<int>& ended) {
  for (;;) {
    TUTTI_TRY(stage.launch(rank));
    TUTTI_TRY(stage.world().rank(rank).synchronize(stage.stream(rank)));
    ++ended;
  }
}

void abort_once(HostDevice& device, unsigned seed) {
  const AbortCase abort(seed);
  const auto stage = make_stage(device, abort.ranks, abort.options);
  ASSERT_NE(stage, nullptr);
  StageCase what = sum_of(abort.count, seed);
  what.collective = abort.collective;
  ASSERT_TRUE(stage->set(what).ok());
  std::vector<Status> ends(static_cast<std::size_t>(abort.ranks));
  std::atomic<int> ended = 0;
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < abort.ranks; ++rank)
    threads.emplace_back([&, rank] {
      ends[static_cast<std::size_t>(rank)] = call_until_failure(*stage, rank, ended);
      failed = true;
    });
  while (ended < abort.calls && !failed) std::this_thread::yield();
  std::this_thread::sleep_for(abort.later);
  EXPECT_TRUE(stage->world().abort(abort.culprit).ok());
  for (std::thread& thread : threads) thread.join();
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::aborted) << end.to_string();
    // Nobody, of a rank that was in no call.
    EXPECT_THAT(end.culprit(), AnyOf(abort.culprit, Status::kUnknownRank)) << end.to_string();
  }
  for (Rank rank = 0; rank < abort.ranks; ++rank)
    EXPECT_EQ(stage->launch(rank).code(), StatusCode::aborted);
}

class GpuWorldAborts : public ::testing::TestWithParam<unsigned> {};

TEST_P(GpuWorldAborts, EndAllCalls) {
  HostDevice device;
  for (unsigned i = 0; i < kAbortsOfAPart; ++i) {
    const unsigned seed = GetParam() * kAbortsOfAPart + i + 1;
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    abort_once(device, seed);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(device.allocations(), 0);
}

INSTANTIATE_TEST_SUITE_P(AtAnyMoment, GpuWorldAborts, ::testing::Range(0U, 10U));

}  // namespace
}  // namespace tutti::runtime::gpu
