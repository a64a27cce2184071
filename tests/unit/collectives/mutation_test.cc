// Damaged schedules: at least a thousand, in both forms, all rejected or proved harmless.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "collectives/algorithms/table.hpp"
#include "collectives/expand.hpp"
#include "collectives/lowering.hpp"
#include "collectives/mutate.hpp"
#include "unit/collectives/schedules_by_hand.hpp"

namespace tutti::collectives {
namespace {

using namespace testing;

struct World {
  std::string name;
  TwoSidedWorld two_sided;
  LoweredWorld lowered;
};

std::vector<World> worlds(int ranks_min, int ranks_max) {
  std::vector<World> found;
  for (const Algorithm& algorithm : all_algorithms())
    for (int ranks = ranks_min; ranks <= ranks_max; ++ranks) {
      const Rank root = has_root(algorithm.collective) ? 1 : 0;
      const Result<Schedule> schedule = build(algorithm, ranks, root, 2);
      if (!schedule.ok()) continue;
      World world;
      world.name = std::string(to_string(algorithm.collective)) + "/" +
                   std::string(algorithm.name) + ", " + std::to_string(ranks) + " ranks";
      world.two_sided.shape = schedule->shape;
      for (Rank rank = 0; rank < ranks; ++rank)
        world.two_sided.programs.push_back(expand(*schedule, rank));
      if (!verify(schedule->shape, world.two_sided.programs).ok()) continue;
      world.lowered = lower_all(*schedule);
      found.push_back(std::move(world));
    }
  return found;
}

TEST(Mutation, AllMutantsAreRejectedOrProvedHarmless) {
  MutationReport report;
  for (const World& world : worlds(2, 6))
    report.add(run_mutants(world.name, world.two_sided, world.lowered, 12, 1));
  EXPECT_GE(report.rejected(), 1000);
  EXPECT_LT(report.equivalent, report.rejected() / 4);
  for (const std::string& survivor : report.survivors) ADD_FAILURE() << survivor;
  // Every check of the verifier is the one that catches something.
  for (Fault fault :
       {Fault::malformed, Fault::unmatched, Fault::deadlock, Fault::race, Fault::contract})
    EXPECT_GT(report.rejected_by[static_cast<std::size_t>(fault)], 0) << to_string(fault);
}

// The proofs of harmlessness are no rubber stamp: they fail for every mutant that is really wrong.
TEST(Mutation, NoProofForMutantsThatAreWrong) {
  SplitMix dice(3);
  int wrong = 0;
  for (const World& world : worlds(2, 5)) {
    const int ranks = static_cast<int>(world.lowered.size());
    for (int i = 0; i < 150; ++i) {
      const auto mutant = mutate(world.lowered, dice);
      if (!mutant || (mutant->kind != "drop dependency" && mutant->kind != "fused")) continue;
      Fault fault = Fault::none;
      for (const auto& mode : {all_staged(ranks), all_direct(ranks), some_direct(ranks, 1)})
        if (fault == Fault::none) fault = verify_lowered(mutant->world, mode).fault;
      if (fault == Fault::none || fault == Fault::malformed) continue;
      ++wrong;
      EXPECT_EQ(prove_equivalent(world.lowered, mutant->world), "")
          << world.name << ": " << mutant->kind << " " << mutant->what;
    }
  }
  EXPECT_GE(wrong, 50);
}

TEST(Mutation, SaysWhyAMutantIsHarmless) {
  const TwoSidedWorld world = ring_of_three();
  Mutant<TwoSidedWorld> mutant{world, "swap kind", ""};
  mutant.world.programs[0][1].kind = StepKind::reduce;
  EXPECT_EQ(judge_mutant(world, mutant).proof, "same program");
  // In place the copy onto itself must be over before anybody else writes; nobody does.
  TwoSidedWorld longer = exchange();
  longer.programs[0].push_back(copy(out(0), {out(0)}, {0, 1}));
  Mutant<TwoSidedWorld> implied{longer, "drop dependency", ""};
  implied.world.programs[0][2].depends = {1};
  EXPECT_EQ(judge_mutant(longer, implied).proof, "other waits imply the order");
  implied.world.programs[0][2].depends = {};
  EXPECT_TRUE(judge_mutant(longer, implied).rejected());
}

TEST(Mutation, SameSeedSameMutants) {
  const World world = worlds(3, 3).front();
  const MutationReport once = run_mutants(world.name, world.two_sided, world.lowered, 50, 9);
  const MutationReport again = run_mutants(world.name, world.two_sided, world.lowered, 50, 9);
  EXPECT_EQ(once.rejected_by, again.rejected_by);
  EXPECT_EQ(once.proofs, again.proofs);
  EXPECT_EQ(once.total(), 100);
}

TEST(Mutation, EveryKindOfFaultIsMade) {
  std::set<std::string_view> kinds;
  SplitMix dice(5);
  for (const World& world : worlds(3, 4))
    for (int i = 0; i < 100; ++i) {
      if (const auto mutant = mutate(world.two_sided, dice)) kinds.insert(mutant->kind);
      if (const auto mutant = mutate(world.lowered, dice)) kinds.insert(mutant->kind);
    }
  EXPECT_EQ(kinds.size(), 19U);
}

}  // namespace
}  // namespace tutti::collectives
