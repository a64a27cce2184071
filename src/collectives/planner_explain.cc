// What a planner says of a choice: every candidate with its price, what limits it, and how far the
// best one is from what is possible at all.
#include <fmt/format.h>

#include "base/try.hpp"
#include "collectives/explain.hpp"
#include "collectives/planner_state.hpp"

namespace tutti::collectives {

// A resource limits when it works most of the time; otherwise all wait for news to travel.
std::string Planner::State::limit(const Choice& choice) const {
  if (!choice.entry->not_priced.empty()) return "unknown: " + choice.entry->not_priced;
  const SliceCost& slice = choice.slice;
  if (slice.busy_ns * static_cast<double>(choice.slices) * 2 < choice.time_ns)
    return "latency: steps that wait for each other";
  std::string name = machine.name(slice.busiest);
  if (machine.is_processor(slice.busiest) && choice.overhead_ns * 2 > slice.busy_ns)
    name = fmt::format("steps and messages of rank {}", machine.rank_of(slice.busiest));
  return slice.alike > 1 ? fmt::format("{} and {} alike", name, slice.alike - 1) : name;
}

Candidate Planner::State::tell(const Choice& choice, const PlanQuery& query) const {
  Candidate candidate;
  candidate.algorithm = choice.entry->algorithm->name;
  candidate.settings = choice.settings;
  candidate.groups = choice.entry->groups;
  candidate.not_possible = choice.not_possible;
  if (!candidate.not_possible.empty()) return candidate;
  candidate.slices = choice.slices;
  candidate.predicted_us = choice.time_ns / 1000;
  candidate.limited_by = limit(choice);
  if (options.measured)
    candidate.measured =
        measured_time(*options.measured, query.collective, size_bytes(query, ranks()),
                      candidate.algorithm, candidate.settings.direct);
  return candidate;
}

Result<Explanation> Planner::explain(const PlanQuery& query) {
  const Result<Choices> choices = state_->choices(query);
  TUTTI_TRY(choices);
  Explanation explanation;
  explanation.query = query;
  explanation.ranks = ranks();
  explanation.by_measurement = choices->by_measurement;
  explanation.table_refused = choices->table_refused;
  for (const Choice& choice : choices->list)
    explanation.candidates.push_back(state_->tell(choice, query));
  if (const auto plain = state_->plain_choices(query, *choices); !plain.empty()) {
    explanation.plain = state_->tell(plain.front(), query);
    if (state_->tries_others(query, *choices, false))
      for (const Choice& other : State::others(choices->list))
        explanation.others.push_back(state_->tell(other, query));
    for (const Choice& other : state_->plain_others(query, plain, *choices))
      explanation.plain_others.push_back(state_->tell(other, query));
  }
  const bool rooted = has_root(query.collective) || query.collective == Collective::send_recv;
  const ShapeKey key{query.collective, rooted ? query.root : 0};
  if (state_->bounds.find(key) == state_->bounds.end()) {
    Result<Bounds> bounds = find_bounds(state_->machine, key.first, key.second);
    TUTTI_TRY(bounds);
    state_->bounds.emplace(key, std::move(*bounds));
  }
  const Bounds& bounds = state_->bounds.at(key);
  const auto bytes = static_cast<double>(query.bytes());
  explanation.latency_bound_us = bounds.latency_ns / 1000;
  explanation.bandwidth_bound_us = bounds.link_ns_per_byte * bytes / 1000;
  explanation.memory_bound_us = bounds.memory_ns_per_byte * bytes / 1000;
  explanation.latency_origin = bounds.latency_origin;
  explanation.bandwidth_origin = bounds.link_origin;
  explanation.memory_origin = bounds.memory_origin;
  return explanation;
}

}  // namespace tutti::collectives
