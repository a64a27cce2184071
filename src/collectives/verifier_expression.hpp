// verifier_expression.hpp: by which expression a schedule reduces. A proved schedule (verifier.hpp)
// takes every contribution once; this says in which order and with which brackets, which is what
// decides the bits of a floating sum.
//
// The canonical tree over n ranks adds, left to right, the tree over the first p of them to the
// tree over the rest, where p is the largest power of two below n. Groups of it are contiguous, and
// those on the left are powers of two, so that aligned groups of 2^k ranks are subtrees whatever n
// is.
//
// Steps that reduce in the order of ranks (lowering.hpp) fold their sources by that same tree over
// the sources, so a step keeps to the canonical tree where its sources are groups of one size.
//
// Shares no code with what builds, expands or lowers schedules. Knows nothing of types.
#pragma once

#include <string>
#include <string_view>

#include "tutti/schedule.hpp"

namespace tutti::collectives {

// Each implies those before it.
enum class ReductionForm : std::uint8_t {
  any,       // some result is another expression
  tree,      // every result is the canonical tree over the ranks
  one_pass,  // and is computed in one step, so that no partial result is stored or sent
};

std::string_view to_string(ReductionForm form);

struct ExpressionProof {
  ReductionForm form = ReductionForm::any;
  std::string reason;  // the first step that is why it is not more, with its rank
};

// Requires  a reduction that verify() accepts: without races one run stands for all.
// Cost  one abstract copy for every chunk that a step moves; schedules that move more than
//       kExpressionMovesMax are not proved, and the reason says so.
ExpressionProof prove_expressions(const Schedule& schedule);

inline constexpr std::int64_t kExpressionMovesMax = 8'000'000;

}  // namespace tutti::collectives
