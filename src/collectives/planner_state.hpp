// planner_state.hpp: what a Planner keeps: families of priced algorithms, plans that were asked
// for.
//
// Of the planner's own files only (planner.cc, planner_explain.cc).
#pragma once

#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "collectives/algorithms/table.hpp"
#include "collectives/bounds.hpp"
#include "collectives/cost.hpp"
#include "collectives/footprint.hpp"
#include "collectives/planner.hpp"
#include "collectives/price_table.hpp"

namespace tutti::collectives {

// `plain` is staged, too, and of calls that would be direct if buffers could be addressed.
enum class Pricing : std::uint8_t { staged, direct, plain };

// An algorithm for one shape: its schedule, prices, and programs that were asked for.
struct Entry {
  const Algorithm* algorithm = nullptr;
  GroupSizes groups;
  std::string not_possible;
  Schedule schedule;
  std::optional<Schedule> odd;                      // of calls with odd numbers, if they differ
  std::array<std::optional<PriceTable>, 3> prices;  // by Pricing
  std::string not_priced;
  std::optional<ExpressionProof> expression;
  std::map<std::pair<Rank, bool>, std::shared_ptr<const LoweredProgram>> programs;  // or ordered
  std::map<std::pair<Rank, bool>, std::shared_ptr<const LoweredProgram>> odd_programs;
  std::map<Rank, std::shared_ptr<const LoweredProgram>> pulled;

  std::size_t memory_bytes() const {
    std::size_t bytes = sizeof(Entry) + bytes_of(schedule) + (odd ? bytes_of(*odd) : 0);
    for (const auto& price : prices) bytes += price ? price->memory_bytes() : 0;
    for (const auto& [rank, program] : programs) bytes += kNodeBytes + bytes_of(*program);
    for (const auto& [rank, program] : odd_programs) bytes += kNodeBytes + bytes_of(*program);
    for (const auto& [rank, program] : pulled) bytes += kNodeBytes + bytes_of(*program);
    return bytes;
  }
};

// A candidate before it is told to people.
struct Choice {
  Entry* entry = nullptr;
  PlanSettings settings;
  double time_ns = 0;
  SliceCost slice;
  double overhead_ns = 0;  // part of slice.busy_ns
  std::size_t slices = 0;  // on all channels
  std::string not_possible;
};

struct Choices {
  std::vector<Choice> list;  // the one to take comes first
  bool by_measurement = false;
  std::string table_refused;
};

using ShapeKey = std::pair<Collective, Rank>;
using PlanKey =
    std::tuple<Collective, Rank, std::size_t, DataType, bool, ReductionForm, std::size_t, Rank>;

// The form that matters: only reductions have one.
ReductionForm form_of(const PlanQuery& query);
// Why the schedule may not serve under the order that the query asks for; empty when it may.
std::string out_of_order(Entry& entry, const PlanQuery& query);

struct Planner::State {
  State(Topology t, std::vector<VertexId> p, PlannerOptions o);

  Topology topology;
  std::vector<VertexId> placement;
  PlannerOptions options;
  Machine machine;
  std::optional<Machine> plain_machine;  // where plain memory costs more than other memory
  std::vector<GroupSizes> groups;        // one or more
  std::map<ShapeKey, std::vector<std::unique_ptr<Entry>>> families;
  std::map<PlanKey, std::shared_ptr<const Plan>> plans;
  std::map<ShapeKey, Bounds> bounds;

  int ranks() const { return static_cast<int>(placement.size()); }

  Status check(const PlanQuery& query) const;
  Result<std::vector<std::unique_ptr<Entry>>*> family(const PlanQuery& query);
  Result<std::unique_ptr<Entry>> make_entry(const Algorithm& algorithm, const GroupSizes& groups,
                                            const PlanQuery& query);
  Status price(Entry& entry);
  std::string needless(const Algorithm& algorithm, const PlanQuery& query, bool plain) const;
  std::string cannot_combine(const Algorithm& algorithm, const PlanQuery& query, bool direct) const;
  bool tries(bool direct) const;
  std::vector<int> channel_choices() const;
  std::vector<std::size_t> slice_choices(const Algorithm& algorithm) const;
  std::vector<std::size_t> plain_slice_choices(const Algorithm& algorithm) const;
  double as_made(double time_ns, const Choice& choice, PriceTable& prices, Machine& priced_on,
                 double bytes) const;
  Choice settle(Entry& entry, Pricing pricing, const PlanQuery& query,
                const std::vector<int>& channels_tried,
                const std::vector<std::size_t>& slices_tried);
  void add_choices(Entry& entry, bool forced, const PlanQuery& query, std::vector<Choice>& found);
  Result<Choices> choices(const PlanQuery& query);
  std::string not_allowed(const TunedChoice& wanted) const;
  Result<Choice> choice_as(const PlanQuery& query, const TunedChoice& wanted);
  void prefer_measured(const PlanQuery& query, Choices& found);
  std::string limit(const Choice& choice) const;
  Candidate tell(const Choice& choice, const PlanQuery& query) const;
  static std::shared_ptr<const LoweredProgram> program_of(const Schedule& schedule, bool ordered,
                                                          Rank rank);
  std::shared_ptr<Plan> make_plan(const Choice& choice, bool ordered, Rank rank) const;
  bool tries_others(const PlanQuery& query, const Choices& choices, bool plain) const;
  bool finds_out_combining(const PlanQuery& query, const Choices& choices) const;
  static void combine_later(std::vector<Choice>& sorted);
  static std::vector<Choice> others(const std::vector<Choice>& sorted,
                                    const Algorithm* also = nullptr);
  std::vector<Choice> plain_others(const PlanQuery& query, const std::vector<Choice>& plain,
                                   const Choices& choices) const;
  bool has_plain_plans(const PlanQuery& query) const;
  bool goes_whole(const PlanQuery& query, const Choices& choices) const;
  std::vector<Choice> plain_choices(const PlanQuery& query, const Choices& choices);
  std::vector<Choice> plain_of_own_cores(const PlanQuery& query, const Choices& choices) const;
  Machine& machine_of(Pricing pricing) {
    return pricing == Pricing::plain ? *plain_machine : machine;
  }
};

}  // namespace tutti::collectives
