// explain.hpp: a plan's reasons, in words and numbers, for `tutti plan` and the perf tools.
//
// Knows how Explanations are written; what they say is planner.hpp's.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "collectives/planner.hpp"

namespace tutti::collectives {

// How nccl-tests turns a time into bus bandwidth: the factor for each byte of `size_bytes`.
double busbw_factor(Collective collective, int ranks);

// The size that nccl-tests would print for a query: the larger of the two buffers.
std::size_t size_bytes(const PlanQuery& query, int ranks);

// The query whose size, as above, is the largest that does not exceed `bytes`.
PlanQuery query_of_size(Collective collective, DataType type, Rank root, int ranks,
                        std::size_t bytes);

// "direct" or "staged".
std::string_view lowering_name(const PlanSettings& settings);

// 1.234 us, 12.3 ms: four digits and a unit.
std::string format_time(double us);

// "12.3 us", "~12.3 us" where the sizes beside this one were measured, "-" where none were.
std::string measured_text(const Candidate& candidate);

// Who made the choice: "measured" (the tuning table) or "model".
std::string_view chosen_by(const Explanation& explanation);

// One sentence: what was chosen and how it compares.
std::string reason(const Explanation& explanation);

}  // namespace tutti::collectives
