// verifier_order.hpp: what waits for what in a Flow, and what therefore happens before what.
//
// A step is up to three events: it starts (its dependencies are complete; it grants memory to
// pushing peers), it executes (its one pass over memory) and it is complete (its peers have taken
// what it offered). An edge is a wait of one event for another. Two kinds of edges are waits only,
// and no proof of order may rest on them, because a roomier executor does not wait there: room in a
// queue, and the turn of grants on a stream.
//
// Knows nothing of values and contracts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/verifier_flow.hpp"

namespace tutti::collectives {

class EventGraph {
 public:
  // queue_messages: staged messages that a directed stream holds.
  EventGraph(const Flow& flow, int queue_messages);

  int event_count() const { return static_cast<int>(step_of_.size()); }
  // Events below the number of steps are the executions of those steps.
  bool is_execution(int event) const { return static_cast<std::size_t>(event) < steps_; }
  int start_of(int step) const { return start_[static_cast<std::size_t>(step)]; }
  int completion_of(int step) const { return complete_[static_cast<std::size_t>(step)]; }
  int step_of(int event) const { return step_of_[static_cast<std::size_t>(event)]; }

  // All events in an order that respects every wait; fewer when some wait for each other.
  std::vector<int> run() const;

  // Who waits for whom in a circle. Requires  run() did not reach all events.
  std::string explain_deadlock(const std::vector<int>& done) const;

  // Calls visit(to) for every event that the order after `event` is proved for.
  template <typename Visit>
  void for_each_ordered_after(int event, const Visit& visit) const {
    for (int e = first_edge_[static_cast<std::size_t>(event)];
         e < first_edge_[static_cast<std::size_t>(event) + 1]; ++e)
      if (is_order(edges_[static_cast<std::size_t>(e)].wait))
        visit(edges_[static_cast<std::size_t>(e)].to);
  }

 private:
  enum class Wait : std::uint8_t {
    same_step,
    dependency,
    turn,     // messages of a stream that travel alike are given in order, and taken in order
    content,  // staged, or produced in memory
    granted,
    taken,
    // Waits only:
    room,
    grant_turn,
    fused,
  };
  struct Edge {
    int from = 0;
    int to = 0;
    Wait wait = Wait::same_step;
  };
  static bool is_order(Wait wait) { return wait < Wait::room; }
  static std::string describe(Wait wait, const std::string& other);

  void add(int from, int to, Wait wait) { edges_.push_back({from, to, wait}); }
  int new_event(int step);
  void make_events();
  void add_step_edges();
  void add_message_edges(int queue_messages);
  void add_turn_edges(int before, int message);
  void sort_edges();

  const Flow& flow_;
  std::size_t steps_;
  std::vector<int> start_;  // event of each step
  std::vector<int> complete_;
  std::vector<int> grant_;    // event of each message, -1 when it is not pushed
  std::vector<int> step_of_;  // of each event
  std::vector<Edge> edges_;   // by `from`
  std::vector<int> first_edge_;
};

// The transitive closure of the order of an EventGraph, as far as it concerns executions.
class HappensBefore {
 public:
  // Requires  `order` holds all events of the graph.
  HappensBefore(const Flow& flow, const EventGraph& graph, const std::vector<int>& order);

  // The execution of `step` is over, in every run, when the execution of `later` begins.
  bool ordered(int step, int later) const { return has(row(later), step); }
  // `rank` has entered the call, in every run, when `step` executes.
  bool entered(Rank rank, int step) const { return has(row(step), steps_ + rank); }
  // The execution of `step` is over, in every run, when `rank` leaves the call.
  bool over_before_end(int step, Rank rank) const { return has(end_row(rank), step); }
  // `first` has entered the call, in every run, when `rank` leaves it.
  bool entered_before_end(Rank first, Rank rank) const {
    return has(end_row(rank), steps_ + first);
  }

 private:
  using Word = std::uint64_t;
  static bool has(const Word* row, int bit) {
    return (row[static_cast<std::size_t>(bit) / 64] >> (static_cast<std::size_t>(bit) % 64)) & 1;
  }
  const Word* row(int event) const {
    return bits_.data() + static_cast<std::size_t>(event) * words_;
  }
  Word* row(int event) { return bits_.data() + static_cast<std::size_t>(event) * words_; }
  const Word* end_row(Rank rank) const { return row(events_ + rank); }
  void join(int from, int to);
  void set(int event, int bit);

  int steps_;
  int events_;
  std::size_t words_;
  std::vector<Word> bits_;
};

}  // namespace tutti::collectives
