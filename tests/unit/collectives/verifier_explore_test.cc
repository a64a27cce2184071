// The verifier's one run against every interleaving: on all algorithms in small worlds, and on
// hundreds of damaged schedules, where both must come to the same verdict.
#include "collectives/verifier_explore.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

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
  std::set<std::string> unseen;
  for (int ranks = 1; ranks <= 3; ++ranks)
    for (const World& world : worlds_of(ranks)) {
      options.states_max = world.name == "all_to_all/bruck" ? 200'000 : 14'000;
      EXPECT_TRUE(explore(world.two_sided.shape, world.two_sided.programs, options).proved())
          << world.name;
      options.states_max = 14'000;
      const Exploration direct = explore_lowered(world.lowered, all_direct(ranks), options);
      EXPECT_EQ(direct.fault, Fault::none) << world.name << ": " << direct.reason;
      if (!direct.exhausted) unseen.insert(world.name + " of " + std::to_string(ranks));
    }
  // Where memory is addressed directly, these have many times as many states.
  EXPECT_EQ(unseen, (std::set<std::string>{"all_reduce/direct of 3", "all_to_all/direct of 3",
                                           "all_to_all/pairwise of 3", "all_to_all/bruck of 3"}));
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
