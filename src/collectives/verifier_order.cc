// Builds the waits of a Flow, runs them, and closes their order.
#include "collectives/verifier_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/assert.hpp"
#include "collectives/verifier_form.hpp"

namespace tutti::collectives {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool has_route(const std::vector<FlowOperand>& operands, Route route) {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const FlowOperand& operand) { return operand.route == route; });
}

// Of the routes that messages take.
int route_index(Route route) { return route == Route::staged ? 0 : route == Route::pull ? 1 : 2; }

}  // namespace

EventGraph::EventGraph(const Flow& flow, int queue_messages)
    : flow_(flow), steps_(flow.steps.size()) {
  make_events();
  add_step_edges();
  add_message_edges(queue_messages);
  sort_edges();
}

int EventGraph::new_event(int step) {
  step_of_.push_back(step);
  return static_cast<int>(step_of_.size()) - 1;
}

// Start and execution are one event where nothing is granted between them; execution and completion
// are one where nothing is offered.
void EventGraph::make_events() {
  for (std::size_t s = 0; s < steps_; ++s) new_event(static_cast<int>(s));
  for (int s = 0; s < static_cast<int>(steps_); ++s) {
    const FlowStep& step = flow_.steps[at(s)];
    start_.push_back(has_route(step.sources, Route::push) ? new_event(s) : s);
    complete_.push_back(has_route(step.destinations, Route::pull) ? new_event(s) : s);
  }
  for (const FlowMessage& message : flow_.messages)
    grant_.push_back(message.route == Route::push ? new_event(message.receiver) : -1);
}

void EventGraph::add_step_edges() {
  for (int s = 0; s < static_cast<int>(steps_); ++s) {
    if (start_[at(s)] != s) add(start_[at(s)], s, Wait::same_step);
    if (complete_[at(s)] != s) add(s, complete_[at(s)], Wait::same_step);
    for (int earlier : flow_.steps[at(s)].depends)
      add(complete_[at(earlier)], start_[at(s)], Wait::dependency);
    for (int earlier : flow_.steps[at(s)].fused) add(earlier, start_[at(s)], Wait::fused);
  }
}

void EventGraph::add_message_edges(int queue_messages) {
  std::vector<int> staged;    // receivers of those so far on this stream
  int last_of_route[3] = {};  // message of this stream
  for (int m = 0; m < static_cast<int>(flow_.messages.size()); ++m) {
    const FlowMessage& message = flow_.messages[at(m)];
    if (message.previous < 0) {
      staged.clear();
      std::fill(std::begin(last_of_route), std::end(last_of_route), -1);
    }
    const int before = std::exchange(last_of_route[route_index(message.route)], m);
    if (before >= 0) add_turn_edges(before, m);
    add(message.sender, message.receiver, Wait::content);
    if (message.route == Route::push) {
      add(start_[at(message.receiver)], grant_[at(m)], Wait::same_step);
      add(grant_[at(m)], message.sender, Wait::granted);
    } else if (message.route == Route::pull) {
      add(message.receiver, complete_[at(message.sender)], Wait::taken);
    } else {
      const auto count = static_cast<int>(staged.size());
      if (count >= queue_messages)
        add(staged[at(count - queue_messages)], message.sender, Wait::room);
      staged.push_back(message.receiver);
    }
  }
}

// Both of one stream and one route.
void EventGraph::add_turn_edges(int before, int message) {
  const FlowMessage& first = flow_.messages[at(before)];
  const FlowMessage& second = flow_.messages[at(message)];
  add(first.sender, second.sender, Wait::turn);
  if (first.route == Route::push)
    add(grant_[at(before)], grant_[at(message)], Wait::grant_turn);
  else
    add(first.receiver, second.receiver, Wait::turn);
}

void EventGraph::sort_edges() {
  first_edge_.assign(step_of_.size() + 1, 0);
  for (const Edge& edge : edges_) ++first_edge_[at(edge.from) + 1];
  for (std::size_t i = 1; i < first_edge_.size(); ++i) first_edge_[i] += first_edge_[i - 1];
  std::vector<Edge> sorted(edges_.size());
  std::vector<int> next(first_edge_.begin(), first_edge_.end() - 1);
  for (const Edge& edge : edges_) sorted[at(next[at(edge.from)]++)] = edge;
  edges_ = std::move(sorted);
}

std::vector<int> EventGraph::run() const {
  std::vector<int> waits(step_of_.size(), 0);
  for (const Edge& edge : edges_) ++waits[at(edge.to)];
  std::vector<int> done;
  done.reserve(step_of_.size());
  for (int event = 0; event < event_count(); ++event)
    if (waits[at(event)] == 0) done.push_back(event);
  for (std::size_t next = 0; next < done.size(); ++next) {
    const std::size_t event = at(done[next]);
    for (int e = first_edge_[event]; e < first_edge_[event + 1]; ++e)
      if (--waits[at(edges_[at(e)].to)] == 0) done.push_back(edges_[at(e)].to);
  }
  return done;
}

std::string EventGraph::describe(Wait wait, const std::string& other) {
  switch (wait) {
    case Wait::same_step:
      return "";
    case Wait::dependency:
      return fmt::format("waits until {} is complete", other);
    case Wait::turn:
      return fmt::format("waits for its turn on the stream after {}", other);
    case Wait::content:
      return fmt::format("waits for the message of {}", other);
    case Wait::room:
      return fmt::format("waits for room in the queue that {} makes", other);
    case Wait::granted:
      return fmt::format("waits for memory that {} grants", other);
    case Wait::grant_turn:
      return fmt::format("waits to grant memory after {}", other);
    case Wait::fused:
      return fmt::format("waits until {} offers", other);
    case Wait::taken:
      return fmt::format("waits until {} has taken what it offers", other);
  }
  return "";
}

std::string EventGraph::explain_deadlock(const std::vector<int>& done) const {
  std::vector<char> is_done(step_of_.size(), 0);
  for (int event : done) is_done[at(event)] = 1;
  // For every waiting event, one edge that it waits for: following them leads into a circle.
  std::vector<int> blocked_by(step_of_.size(), -1);
  for (std::size_t e = 0; e < edges_.size(); ++e)
    if (!is_done[at(edges_[e].from)]) blocked_by[at(edges_[e].to)] = static_cast<int>(e);
  const auto first = std::find(is_done.begin(), is_done.end(), 0);
  TUTTI_ASSERT(first != is_done.end(), "some event is not done");
  int event = static_cast<int>(first - is_done.begin());
  std::vector<char> seen(step_of_.size(), 0);
  while (!seen[at(event)]) {
    seen[at(event)] = 1;
    event = edges_[at(blocked_by[at(event)])].from;
  }
  constexpr int kShown = 6;
  auto name = [&](int e) {
    const FlowStep& step = flow_.steps[at(step_of_[at(e)])];
    return describe_step(step.rank, step.number, step.kind);
  };
  std::string text;
  const int begin = event;
  int shown = 0;
  do {
    const Edge& edge = edges_[at(blocked_by[at(event)])];
    if (edge.wait != Wait::same_step && ++shown <= kShown)
      text += (text.empty() ? "" : "; ") + name(event) + " " + describe(edge.wait, name(edge.from));
    event = edge.from;
  } while (event != begin);
  if (shown > kShown) text += fmt::format("; and {} more", shown - kShown);
  return text;
}

HappensBefore::HappensBefore(const Flow& flow, const EventGraph& graph,
                             const std::vector<int>& order)
    : steps_(static_cast<int>(flow.steps.size())),
      events_(graph.event_count()),
      words_((flow.steps.size() + at(flow.shape.ranks) + 63) / 64),
      bits_((at(events_) + at(flow.shape.ranks)) * words_, 0) {
  TUTTI_ASSERT(order.size() == at(events_), "the order holds all events");
  for (int step = 0; step < steps_; ++step)
    set(graph.start_of(step), steps_ + flow.steps[at(step)].rank);
  for (int event : order) {
    if (graph.is_execution(event)) set(event, event);
    graph.for_each_ordered_after(event, [&](int later) { join(event, later); });
  }
  for (Rank rank = 0; rank < flow.shape.ranks; ++rank) {
    set(events_ + rank, steps_ + rank);
    for (int step = flow.first_step[at(rank)]; step < flow.first_step[at(rank) + 1]; ++step)
      join(graph.completion_of(step), events_ + rank);
  }
}

void HappensBefore::join(int from, int to) {
  const Word* source = row(from);
  Word* target = row(to);
  for (std::size_t w = 0; w < words_; ++w) target[w] |= source[w];
}

void HappensBefore::set(int event, int bit) {
  row(event)[at(bit) / 64] |= Word{1} << (at(bit) % 64);
}

}  // namespace tutti::collectives
