// Which schedules reduce along the tree over the ranks: those of the table, and some by hand whose
// expression is known.
#include "collectives/verifier_expression.hpp"

#include <gtest/gtest.h>

#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "collectives/verifier.hpp"

namespace tutti::collectives {
namespace {

ExpressionProof prove(Collective collective, std::string_view name, int ranks, Rank root = 0,
                      int group = 1) {
  const Result<const Algorithm*> algorithm = find_algorithm(collective, name);
  EXPECT_TRUE(algorithm.ok());
  const Result<Schedule> schedule = build(**algorithm, ranks, root, group);
  EXPECT_TRUE(schedule.ok()) << name << " " << ranks;
  return prove_expressions(*schedule);
}

TEST(Expressions, DirectAlgorithmsTakeOnePass) {
  for (int ranks = 1; ranks <= 20; ++ranks)
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
      const Rank root = collective == Collective::reduce ? ranks / 2 : 0;
      const ExpressionProof proof = prove(collective, "direct", ranks, root);
      EXPECT_EQ(proof.form, ReductionForm::one_pass) << ranks << ": " << proof.reason;
    }
}

TEST(Expressions, ABinomialTreeIsTheCanonicalOne) {
  for (int ranks = 3; ranks <= 40; ++ranks) {
    const ExpressionProof proof = prove(Collective::all_reduce, "binomial", ranks);
    EXPECT_EQ(proof.form, ReductionForm::tree) << ranks << ": " << proof.reason;
  }
}

TEST(Expressions, PartnersOfGrowingDistanceServePowersOfTwo) {
  for (const char* name : {"doubling", "halving_doubling"})
    for (int ranks = 3; ranks <= 33; ++ranks) {
      const bool power = (ranks & (ranks - 1)) == 0;
      EXPECT_EQ(prove(Collective::all_reduce, name, ranks).form,
                power ? ReductionForm::tree : ReductionForm::any)
          << name << " " << ranks;
    }
}

TEST(Expressions, RingsAddInAnotherOrder) {
  const ExpressionProof proof = prove(Collective::all_reduce, "ring", 4);
  EXPECT_EQ(proof.form, ReductionForm::any);
  EXPECT_NE(proof.reason.find("another order"), std::string::npos) << proof.reason;
  EXPECT_EQ(prove(Collective::all_reduce, "ring", 2).form, ReductionForm::one_pass);
  // A whole step reduces along the tree over its sources, but these are groups of unequal sizes.
  EXPECT_EQ(prove(Collective::reduce, "binomial", 8).form, ReductionForm::any);
}

// Two ranks reduce for the other two, in steps that a caller may vary.
Schedule by_hand(int first, int second) {
  ScheduleShape shape;
  shape.collective = Collective::reduce;
  shape.ranks = 4;
  Schedule schedule;
  schedule.shape = shape;
  auto tell = [&](Rank rank, const std::function<void(Builder&)>& telling) {
    Builder builder(shape, rank);
    telling(builder);
    schedule.programs.push_back(builder.take());
    schedule.program_of_rank.push_back(rank);
  };
  tell(0, [&](Builder& b) {
    b.reduce({Builder::input(0), Builder::from(first)}, {Builder::output(0)});
    b.finish({Builder::output(0), Builder::from(second == first ? first : 2)},
             {Builder::output(0)});
  });
  for (Rank rank = 1; rank < 4; ++rank)
    tell(rank, [&](Builder& b) {
      const Rank into = rank == first ? 0 : rank == 2 ? 0 : 2;
      if (rank == 2)
        b.reduce({Builder::from(second), Builder::input(0)}, {Builder::to(0)});
      else
        b.send(into, Builder::input(0));
    });
  return schedule;
}

TEST(Expressions, OperandsAreTakenInTheOrderOfRanksWhateverTheTelling) {
  EXPECT_EQ(prove_expressions(by_hand(1, 3)).form, ReductionForm::tree);
  const ExpressionProof crossed = prove_expressions(by_hand(3, 1));
  EXPECT_EQ(crossed.form, ReductionForm::any);
  EXPECT_NE(crossed.reason.find("rank 0 step 1"), std::string::npos) << crossed.reason;
}

TEST(Expressions, WorldsTooLargeToProveSaySo) {
  const ExpressionProof proof = prove(Collective::all_reduce, "halving_doubling", 4096);
  EXPECT_EQ(proof.form, ReductionForm::any);
  EXPECT_NE(proof.reason.find("too much to prove"), std::string::npos);
  EXPECT_EQ(prove(Collective::all_reduce, "doubling", 4096).form, ReductionForm::tree);
}

TEST(Expressions, ProgramsInTheOrderOfRanksAreProvedAsOthersAre) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (!is_reduction(algorithm.collective) || algorithm.grouped) continue;
    for (const int ranks : {2, 3, 4, 6, 8}) {
      const Result<Schedule> schedule = build(algorithm, ranks, 0);
      if (!schedule.ok()) continue;
      std::vector<LoweredProgram> programs = lower_all(*schedule);
      for (LoweredProgram& program : programs) program = in_rank_order(std::move(program));
      for (const Addressability& addressable : {all_staged(ranks), all_direct(ranks)}) {
        const Verdict verdict = verify_lowered(programs, addressable);
        EXPECT_TRUE(verdict.ok()) << algorithm.name << " " << ranks << ": " << verdict.reason;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::collectives
