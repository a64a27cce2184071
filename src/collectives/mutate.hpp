// mutate.hpp: tests the verifier by damaging schedules. A mutant is a world of programs with one
// fault; the verifier must reject it. Some mutants are still right (a dependency was dropped that
// others imply): each of these is counted apart, with a proof of another kind than the verifier's.
//
// Knows programs and their fields; does not know algorithms.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/splitmix.hpp"
#include "collectives/verifier.hpp"

namespace tutti::collectives {

// A world of two-sided programs.
struct TwoSidedWorld {
  ScheduleShape shape;
  std::vector<ExpandedProgram> programs;

  friend bool operator==(const TwoSidedWorld&, const TwoSidedWorld&) = default;
};

// A world of lowered programs.
using LoweredWorld = std::vector<LoweredProgram>;

// One fault. `kind` is the class of the fault ("drop step"), `what` says where it is.
template <typename World>
struct Mutant {
  World world;
  std::string_view kind;
  std::string what;
};

// A mutant of `world`, chosen by `dice`; empty when the chosen fault does not apply there.
std::optional<Mutant<TwoSidedWorld>> mutate(const TwoSidedWorld& world, SplitMix& dice);
std::optional<Mutant<LoweredWorld>> mutate(const LoweredWorld& world, SplitMix& dice);

struct MutantFate {
  Fault fault = Fault::none;  // why the verifier rejected it
  std::string reason;
  std::string proof;  // that it is right, if the verifier accepted it

  bool rejected() const { return fault != Fault::none; }
  bool equivalent() const { return !rejected() && !proof.empty(); }
};

// Lowered mutants are judged all staged, all direct and in `mixtures` seeded mixtures.
MutantFate judge_mutant(const TwoSidedWorld& original, const Mutant<TwoSidedWorld>& mutant);
MutantFate judge_mutant(const LoweredWorld& original, const Mutant<LoweredWorld>& mutant,
                        int mixtures);

// Why `mutant` is as right as `original`, shown without running anything: it is the same program,
// or only lacks waits that other waits imply. Empty when this cannot be shown. Requires  a verified
// original, and a mutant whose form is right.
std::string prove_equivalent(const LoweredWorld& original, const LoweredWorld& mutant);

// Results of many.
struct MutationReport {
  std::array<std::int64_t, 6> rejected_by = {};  // by Fault
  std::int64_t equivalent = 0;
  std::vector<std::string> proofs;     // one line for each equivalent mutant
  std::vector<std::string> survivors;  // accepted without proof: holes in the verifier

  std::int64_t rejected() const;
  std::int64_t total() const;
  // `name`: the schedule that was damaged.
  void add(std::string_view name, std::string_view kind, std::string_view what,
           const MutantFate& fate);
  void add(const MutationReport& other);
};

// Makes and judges `count` mutants of each form.
MutationReport run_mutants(std::string_view name, const TwoSidedWorld& two_sided,
                           const LoweredWorld& lowered, int count, std::uint64_t seed);

}  // namespace tutti::collectives
