// plan.hpp: what the planner hands to the executor: a lowered program and the numbers that say how
// to run it, with the reasons why.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/builder.hpp"
#include "collectives/lowered.hpp"

namespace tutti::collectives {

// No rank leaves such a call before all have begun it: all can be told, in one, how the next one is
// made (Plan::plain).
inline constexpr std::array kBegunByAll = {Collective::all_reduce, Collective::all_gather,
                                           Collective::reduce_scatter, Collective::all_to_all};

// How the programs of a schedule are run; all ranks must agree on it, so it is part of `hash`.
struct PlanSettings {
  int channels = 1;
  std::size_t slice_bytes = 64 * 1024;  // no message is larger; at most the transport's frame
  // Ranks exchange addresses first, so that messages can travel direct. Without, nothing waits for
  // a peer's arrival record: the least latency for small data.
  bool direct = false;

  friend bool operator==(const PlanSettings&, const PlanSettings&) = default;
};

struct Plan {
  std::string algorithm;
  PlanSettings settings;
  std::shared_ptr<const LoweredProgram> program;  // shared by all settings of one algorithm
  std::uint64_t hash = 0;                         // of algorithm, groups, shape and settings
  // The same with copies that are loaded instead of stored, where every rank talks to every other
  // and which is quicker is found out under way; null elsewhere.
  std::shared_ptr<const LoweredProgram> pulled = nullptr;
  // Of calls with odd numbers, where they are made in another way than those with even ones; null
  // elsewhere. Both have the same shape, and who knows of `program` only may make all calls by it.
  std::shared_ptr<const LoweredProgram> odd = nullptr;
  bool all_meet = false;  // every rank has messages for every other
  // Where ranks combine in memory that all of them see, if there is such memory: groups of so many,
  // one after the other; 0: they send messages. `program` makes the same sums.
  int combining_group = 0;
  // Instead of this one where buffers turn out to be out of the peers' reach, and another algorithm
  // is quicker then; null elsewhere. It is staged, and exchanges no addresses; its `others` may.
  std::shared_ptr<const Plan> plain = nullptr;
  // By other algorithms for the same memory, which may turn out to be quicker: found out while
  // calls are made, where there is a plan for plain memory.
  std::vector<std::shared_ptr<const Plan>> others = {};
};

// The hash that all ranks' calls carry. `groups`: what algorithms of several levels go by.
std::uint64_t plan_hash(std::string_view algorithm, const GroupSizes& groups,
                        const ScheduleShape& shape, const PlanSettings& settings);

}  // namespace tutti::collectives
