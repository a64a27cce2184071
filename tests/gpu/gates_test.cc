// Regions that come and go: a rank whose gate is closed is served like one that shares nothing,
// and the host can see when no block is in a call any more, however that ended.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cases.hpp"
#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr int kRanks = 3;

struct Fixture {
  Fixture()
      : schedule(build(**collectives::find_algorithm(Collective::all_reduce, "direct"), kRanks, 0)),
        programs(*encode(collectives::lower_all(*schedule))),
        arenas(kRanks, std::vector<std::byte>(Trial::bytes_needed(schedule->shape, what))),
        world({kRanks, 2, 2, 512, 256}, 2),
        trial(schedule->shape, programs, what, arenas, 0) {
    world.put_up_gates();
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      world.share(rank, arenas[at].data());
      for (MemoryRef& memory : trial.job().calls[at].shared) memory.generation = 7;
    }
  }
  bool run() {
    for (std::size_t rank = 0; rank < kRanks; ++rank) trial.fill(rank);
    return world.run({&trial.job(), 1});
  }

  const CallCase what{DataType::int32, ReduceOp::sum, 500, false, Travels::direct, 2, 5};
  const Result<Schedule> schedule;
  const std::vector<EncodedProgram> programs;
  std::vector<std::vector<std::byte>> arenas;
  HostWorld world;
  Trial trial;
};

// What the first slot of the queue to `rank` holds; 0: nothing was ever there.
std::uint64_t queued(const Fixture& f, Rank rank, Rank from) {
  return f.world.header(rank, from, 0).signature;
}

TEST(Gates, OnlyTheGenerationThatIsOpenIsTouched) {
  for (unsigned open = 0; open < 8; ++open) {
    Fixture f;
    for (Rank rank = 0; rank < kRanks; ++rank)
      f.world.set_gate(rank, (open >> rank & 1U) != 0 ? 7 : rank % 2 == 0 ? 0 : 6);
    ASSERT_TRUE(f.run()) << open;
    EXPECT_EQ(f.trial.judge(), "") << open;
    // Results are pushed where both have opened theirs, inputs pulled from who has.
    EXPECT_EQ(queued(f, 1, 0) == 0, (open & 1U) != 0 && (open & 2U) != 0) << open;
  }
}

TEST(Gates, AGateMayChangeBetweenCalls) {
  Fixture f;
  for (Rank rank = 0; rank < kRanks; ++rank) f.world.set_gate(rank, 7);
  ASSERT_TRUE(f.run());
  EXPECT_EQ(queued(f, 1, 0), 0U);
  f.world.set_gate(0, 0);
  ASSERT_TRUE(f.run());
  EXPECT_EQ(f.trial.judge(), "");
  EXPECT_NE(queued(f, 1, 0), 0U);
}

TEST(Gates, ABlockThatHasLeftIsSeenToHaveLeft) {
  Fixture f;
  ASSERT_TRUE(f.run());
  for (const std::uint32_t channel : {0U, 1U}) EXPECT_EQ(f.world.visits(0, channel), 2U);
  for (DeviceCall& call : f.trial.job().calls) call.timeout_ns = 20'000'000;
  f.trial.job().absent = 2;
  EXPECT_FALSE(f.run());
  for (const std::uint32_t channel : {0U, 1U}) EXPECT_EQ(f.world.visits(0, channel), 4U);
}

}  // namespace
}  // namespace tutti::runtime::gpu
