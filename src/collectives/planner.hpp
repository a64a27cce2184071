// planner.hpp: chooses how a call is done. Pure: the same topology, options and query give the same
// answer on every rank, which is what keeps ranks from hanging on different plans.
//
// The planner enumerates algorithm × channels × lowering, costs each on the topology (cost.hpp) and
// keeps the cheapest; it can say why (explain.hpp). Where a tuning table says what was quickest on
// this machine (tuning.hpp), that is taken instead, as long as it can serve. Programs are cached by
// shape, choices are functions of the size.
//
// Knows nothing of sockets, threads, clocks or buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/cost.hpp"
#include "collectives/plan.hpp"
#include "collectives/tuning.hpp"
#include "collectives/verifier_expression.hpp"
#include "tutti/schedule.hpp"
#include "tutti/topology.hpp"

namespace tutti::collectives {

enum class Lowering : std::uint8_t { automatic, direct, staged };

// What limits or forces the choice; equal on all ranks.
// Whether buffers can be addressed by the peers is known once addresses have been exchanged. Where
// only some memory can be, below this much data the exchange gains less than it costs; below twice
// as much, less for those who have such memory than it costs those who have not, where these have
// no plan of their own (Plan::plain); and below four times as much between ranks that share cores.
// Source: blocks of 8 KiB between two cores of an EPYC, near
// and far, direct and through queues, us: all_gather 0.48 and 0.59, 1.01 and 1.47; all_reduce 0.60
// and 0.60, 1.42 and 1.56; blocks of 4 KiB, all_gather 0.42 and 0.37, 0.87 and 1.1. Broadcast of 8
// KiB 0.47 and 0.62, of plain memory, which has no plan of its own, 0.80 and 0.73.
inline constexpr std::size_t kDirectBytesMin = 8 * 1024;

struct PlannerOptions {
  std::string algorithm;  // empty: choose
  Lowering lowering = Lowering::automatic;
  int channels = 0;                             // 0: choose
  std::size_t slice_bytes = 0;                  // 0: choose
  int channel_count = 1;                        // what the transport offers
  std::size_t frame_bytes_max = 64 * 1024;      // what the transport carries at once
  std::size_t slice_bytes_max = 0;              // but of leaders in turn; 0: as the above
  std::size_t slice_bytes_min = 4096;           // of what is cut at all
  bool direct_possible = false;                 // ranks of a node can address each other's memory
  std::size_t direct_bytes_min = 0;             // of blocks, as kDirectBytesMin says
  CostConstants constants;                      // of the model
  std::vector<int> cores;                       // as Machine's
  bool one_machine = false;                     // as Machine's
  bool memory_shared = false;                   // all ranks see memory in which they can combine
  std::shared_ptr<const TuningPlace> measured;  // where these ranks are; null: not measured

  friend bool operator==(const PlannerOptions&, const PlannerOptions&) = default;
};

struct PlanQuery {
  Collective collective = Collective::all_reduce;
  std::size_t count = 0;  // elements, as the API counts them
  DataType type = DataType::float32;
  Rank root = 0;
  // Blocks differ in size; `count` is what they have on average. Only for schedules that never cut
  // a block or set one aside, staged and on one channel, because no rank knows all addresses.
  bool varied = false;
  // Of a reduction: only schedules that are proved to have at least this form. With more than `any`
  // the plan's program is an ordered one.
  ReductionForm form = ReductionForm::any;
  std::size_t width = 1;  // so many elements are never cut apart

  std::size_t value_bytes() const { return size_of(type) * width; }
  std::size_t values() const { return count / width; }
  std::size_t bytes() const { return count * size_of(type); }
};

// What reduce_order=rank_tree asks of the schedules that reduce this type: nothing where every
// order gives the same bits; of floats that would be rounded between steps, that there are none.
ReductionForm rank_tree_form(DataType type);

// One way of doing a call, with what it is predicted to cost.
struct Candidate {
  std::string algorithm;
  PlanSettings settings;
  GroupSizes groups;         // of algorithms of several levels
  std::string not_possible;  // the reason, when it cannot serve; then nothing below counts
  std::size_t slices = 1;    // on all channels together
  double predicted_us = 0;
  std::string limited_by;  // the resource that is busiest: a link, or the ranks' memory
  // Of this algorithm and lowering, by the tuning table.
  std::optional<MeasuredTime> measured;
};

struct Explanation {
  PlanQuery query;
  int ranks = 0;
  std::vector<Candidate> candidates;    // the choice, then possible ones, cheapest first
  bool by_measurement = false;          // the tuning table made the choice, not the model
  std::string table_refused;            // why it did not, where it names one that cannot serve
  std::optional<Candidate> plain;       // Plan::plain of the choice
  std::vector<Candidate> others;        // Plan::others of the choice, ...
  std::vector<Candidate> plain_others;  // ... and of the one for plain memory
  // Lower bounds (bounds.hpp), each with where it comes from.
  double latency_bound_us = 0;    // until news can be everywhere
  double bandwidth_bound_us = 0;  // from cuts of the topology
  double memory_bound_us = 0;     // reading and writing the data at all
  std::string latency_origin;
  std::string bandwidth_origin;
  std::string memory_origin;
  // The largest of them: no schedule is quicker.
  double bound_us() const {
    return std::max({latency_bound_us, bandwidth_bound_us, memory_bound_us});
  }
};

// Threading  one thread at a time.
class Planner {
 public:
  // Requires  placement: the seat of every rank.
  Planner(Topology topology, std::vector<VertexId> placement, PlannerOptions options);
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  int ranks() const;

  // The plan of `rank`. Cost: a look-up once the shape is known.
  // Errors  invalid_argument or unsupported: the forced algorithm does not exist or cannot serve,
  //         with what to do instead.
  Result<std::shared_ptr<const Plan>> plan(const PlanQuery& query, Rank rank);

  // The plan of one way of doing it, for those who measure which is the best.
  // Errors  unsupported: it cannot serve.
  Result<std::shared_ptr<const Plan>> plan_as(const PlanQuery& query, const TunedChoice& choice,
                                              Rank rank);

  // What the model says that this way takes. Units: us. Errors: as plan_as.
  Result<double> predict(const PlanQuery& query, const TunedChoice& choice);

  // All candidates with their costs, and the lower bound.
  Result<Explanation> explain(const PlanQuery& query);

  // What is kept: schedules, their costs, programs and plans. An estimate, from what they hold.
  std::size_t memory_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A table for people: candidates, times, limiting resource, distance from the bound.
std::string to_text(const Explanation& explanation);

}  // namespace tutti::collectives
