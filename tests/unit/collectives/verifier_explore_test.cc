// The verifier's one run against every interleaving: on all algorithms in small worlds, and on
// hundreds of damaged schedules, where both must come to the same verdict.
#include "collectives/verifier_explore.hpp"

#include <gtest/gtest.h>

#include "collectives/algorithms/table.hpp"
#include "collectives/expand.hpp"
#include "collectives/lowering.hpp"
#include "unit/collectives/schedules_by_hand.hpp"

namespace tutti::collectives {
namespace {

using namespace testing;

struct World {
  std::string name;
  TwoSidedWorld two_sided;
  LoweredWorld lowered;
};

// Every algorithm that serves so many ranks and is right.
std::vector<World> worlds_of(int ranks) {
  std::vector<World> worlds;
  for (const Algorithm& algorithm : all_algorithms()) {
    const Rank root = has_root(algorithm.collective) && ranks > 1 ? 1 : 0;
    const Result<Schedule> schedule = build(algorithm, ranks, root, 2);
    if (!schedule.ok()) continue;
    World world{std::string(to_string(algorithm.collective)) + "/" + std::string(algorithm.name),
                {schedule->shape, {}},
                {}};
    for (Rank rank = 0; rank < ranks; ++rank)
      world.two_sided.programs.push_back(expand(*schedule, rank));
    if (!verify(schedule->shape, world.two_sided.programs).ok()) continue;
    world.lowered = lower_all(*schedule);
    worlds.push_back(std::move(world));
  }
  return worlds;
}

TEST(Explore, ProvesEveryAlgorithmOfUpToThreeRanks) {
  ExploreOptions options;
  options.states_max = 14'000;  // Direct all-reduce and the all-to-alls among three have several
                                // times as many states.
  int unseen = 0;
  for (int ranks = 1; ranks <= 3; ++ranks)
    for (const World& world : worlds_of(ranks)) {
      const Exploration staged = explore(world.two_sided.shape, world.two_sided.programs, options);
      EXPECT_EQ(staged.fault, Fault::none) << world.name << ": " << staged.reason;
      EXPECT_TRUE(staged.exhausted || world.name == "all_to_all/bruck") << world.name;
      const Exploration direct = explore_lowered(world.lowered, all_direct(ranks), options);
      EXPECT_EQ(direct.fault, Fault::none) << world.name << ": " << direct.reason;
      unseen += direct.exhausted ? 0 : 1;
    }
  EXPECT_LE(unseen, 4);
}

// Where many steps are independent there are too many orders to see them all; those that fit must
// be proved, and most do fit.
TEST(Explore, ProvesAlgorithmsOfFourRanks) {
  ExploreOptions options;
  options.states_max = 3'000;
  int exhausted = 0;
  for (const World& world : worlds_of(4)) {
    const Exploration staged = explore(world.two_sided.shape, world.two_sided.programs, options);
    const Exploration direct = explore_lowered(world.lowered, all_direct(4), options);
    for (const Exploration& exploration : {staged, direct}) {
      EXPECT_EQ(exploration.fault, Fault::none) << world.name << ": " << exploration.reason;
      exhausted += exploration.exhausted ? 1 : 0;
    }
  }
  EXPECT_GE(exhausted, 15);
}

TEST(Explore, AgreesWithTheVerifierOnDamagedSchedules) {
  ExploreOptions options;
  options.states_max = 5'000;
  SplitMix dice(7);
  int accepted = 0;
  int rejected = 0;
  for (int ranks = 2; ranks <= 3; ++ranks)
    for (const World& world : worlds_of(ranks))
      for (int i = 0; i < 30; ++i) {
        const auto mutant = mutate(world.two_sided, dice);
        if (!mutant) continue;
        const Exploration truth = explore(mutant->world.shape, mutant->world.programs, options);
        if (!truth.exhausted) continue;
        const Verdict verdict = verify(mutant->world.shape, mutant->world.programs);
        EXPECT_EQ(verdict.ok(), truth.proved())
            << world.name << ", " << ranks << " ranks: " << mutant->kind << " " << mutant->what
            << ": verifier: " << verdict.reason << "; explorer: " << truth.reason;
        ++(verdict.ok() ? accepted : rejected);
      }
  EXPECT_GE(accepted, 50);
  EXPECT_GE(rejected, 500);
}

TEST(Explore, AgreesWithTheVerifierOnDamagedLoweredPrograms) {
  ExploreOptions options;
  options.states_max = 5'000;
  SplitMix dice(8);
  int accepted = 0;
  int rejected = 0;
  for (int ranks = 2; ranks <= 3; ++ranks)
    for (const World& world : worlds_of(ranks))
      for (int i = 0; i < 30; ++i) {
        const auto mutant = mutate(world.lowered, dice);
        if (!mutant) continue;
        const auto addressable =
            i % 2 == 0 ? all_direct(ranks) : some_direct(ranks, static_cast<std::uint64_t>(i));
        const Exploration truth = explore_lowered(mutant->world, addressable, options);
        if (!truth.exhausted) continue;
        const Verdict verdict = verify_lowered(mutant->world, addressable);
        EXPECT_EQ(verdict.ok(), truth.proved())
            << world.name << ", " << ranks << " ranks: " << mutant->kind << " " << mutant->what
            << ": verifier: " << verdict.reason << "; explorer: " << truth.reason;
        ++(verdict.ok() ? accepted : rejected);
      }
  EXPECT_GE(accepted, 50);
  EXPECT_GE(rejected, 500);
}

TEST(Explore, SaysWhenItHasNotSeenEverything) {
  ExploreOptions options;
  options.states_max = 10;
  const TwoSidedWorld world = ring_of_three();
  EXPECT_FALSE(explore(world.shape, world.programs, options).exhausted);
}

}  // namespace
}  // namespace tutti::collectives
