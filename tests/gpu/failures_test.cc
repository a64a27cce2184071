// Calls that fail: a rank that does not come, abort, different calls, calls that cannot be made.
// All ranks leave, and know why.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cases.hpp"
#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::uint64_t kSoonNs = 2'000'000'000;

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

// One all_reduce of four ranks with two channels.
struct Fixture {
  static constexpr int kRanks = 4;

  Fixture(std::string_view algorithm, Travels travels)
      : schedule(
            *build(**collectives::find_algorithm(Collective::all_reduce, algorithm), kRanks, 0)),
        programs(*encode(collectives::lower_all(schedule))),
        what{DataType::float32, ReduceOp::sum, 301, false, travels, 2, 0},
        arenas(kRanks, std::vector<std::byte>(Trial::bytes_needed(schedule.shape, what))),
        world({kRanks, 2, 2, 512, 256}, 2),
        trial(schedule.shape, programs, what, arenas, 0) {
    for (Rank rank = 0; rank < kRanks; ++rank) world.share(rank, arenas[idx(rank)].data());
  }

  void expire_soon() {
    for (DeviceCall& call : trial.job().calls) call.timeout_ns = kSoonNs;
  }

  bool run() { return world.run({&trial.job(), 1}); }

  Schedule schedule;
  std::vector<EncodedProgram> programs;
  CallCase what;
  std::vector<std::vector<std::byte>> arenas;
  HostWorld world;
  Trial trial;
};

class EveryWay : public ::testing::TestWithParam<Travels> {};

std::string_view name_of(Travels way) {
  switch (way) {
    case Travels::flagged:
      return "flagged";
    case Travels::staged:
      return "staged";
    case Travels::direct:
      return "direct";
    case Travels::mixed:
      return "mixed";
  }
  return "";
}

TEST_P(EveryWay, WhoDoesNotComeIsNamedByAll) {
  const std::pair<const char*, Rank> cases[] = {{"ring", 0}, {"direct", 2}, {"doubling", 3}};
  for (const auto& [algorithm, absent] : cases) {
    Fixture f(algorithm, GetParam());
    ASSERT_TRUE(f.run());  // all come to the first call
    f.expire_soon();
    f.trial.job().absent = absent;
    EXPECT_FALSE(f.run());
    for (Rank rank = 0; rank < Fixture::kRanks; ++rank) {
      if (rank == absent) continue;
      const ErrorRecord error = f.world.error(rank);
      EXPECT_EQ(error.why, Why::timeout) << algorithm;
      EXPECT_EQ(error.culprit, static_cast<std::uint32_t>(absent) + 1) << algorithm;
    }
  }
}

TEST_P(EveryWay, AbortOfOneRankEndsAll) {
  Fixture f("ring", GetParam());
  f.trial.job().absent = 1;  // or else the call would be over
  std::thread aborting([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    f.world.abort(3);
  });
  EXPECT_FALSE(f.run());
  aborting.join();
  for (const Rank rank : {0, 2, 3}) {
    EXPECT_EQ(f.world.error(rank).why, Why::aborted);
    EXPECT_EQ(f.world.error(rank).culprit, 4u);
  }
}

TEST_P(EveryWay, ACallAfterAFailureFailsAtOnce) {
  Fixture f("ring", GetParam());
  f.world.abort(0);
  f.trial.job().absent = 2;
  EXPECT_FALSE(f.run());
  EXPECT_EQ(f.world.error(0).why, Why::aborted);
}

TEST_P(EveryWay, DifferentCallsAreAnError) {
  Fixture f("ring", GetParam());
  f.trial.job().calls[2].signature += std::uint64_t{1} << 40;
  EXPECT_FALSE(f.run());
  for (Rank rank = 0; rank < Fixture::kRanks; ++rank) {
    const ErrorRecord error = f.world.error(rank);
    EXPECT_EQ(error.why, Why::mismatch);
    // That rank, or one of its neighbours, by its own word.
    EXPECT_GE(error.culprit, 2u);
    EXPECT_LE(error.culprit, 4u);
  }
}

TEST_P(EveryWay, BuffersLieAtElements) {
  Fixture f("ring", GetParam());
  f.trial.job().calls[1].memory[0] += 1;
  EXPECT_FALSE(f.run());
  for (Rank rank = 0; rank < Fixture::kRanks; ++rank) {
    EXPECT_EQ(f.world.error(rank).why, Why::misaligned);
    EXPECT_EQ(f.world.error(rank).culprit, 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, EveryWay,
                         ::testing::Values(Travels::flagged, Travels::staged, Travels::direct,
                                           Travels::mixed),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(Failures, MessagesThatFitNoSlotAreRefused) {
  Fixture f("ring", Travels::staged);
  for (DeviceCall& call : f.trial.job().calls) call.count = kCountMax + 1;
  EXPECT_FALSE(f.run());
  EXPECT_EQ(f.world.error(0).why, Why::too_large);
}

// A peer may still be reading what it was told in the call before.
TEST(Failures, AfterThemNoThreadTellsPeersAnything) {
  Fixture f("ring", Travels::direct);
  ASSERT_TRUE(f.run());
  f.world.abort(0);
  EXPECT_FALSE(f.run());
  for (const Rank peer : {1, 3})
    for (const std::uint32_t channel : {0U, 1U})
      EXPECT_EQ(f.world.last_arrival(peer, 0, channel), 1U) << "of rank " << peer;
}

// A record that says where and for whom.
TEST(Failures, TheRecordTellsWhatWasWaitedFor) {
  Fixture f("ring", Travels::staged);
  f.expire_soon();
  f.trial.job().absent = 0;
  EXPECT_FALSE(f.run());
  const ErrorRecord error = f.world.error(1);  // which receives from rank 0
  EXPECT_EQ(error.awaited, Awaited::data);
  EXPECT_EQ(error.peer, 0u);
  EXPECT_LT(error.channel, 2u);
}

}  // namespace
}  // namespace tutti::runtime::gpu
