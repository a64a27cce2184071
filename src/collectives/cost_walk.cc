// The walk through the graph of a schedule's steps; see cost.hpp.
#include <algorithm>
#include <optional>
#include <queue>

#include "base/assert.hpp"
#include "collectives/cost.hpp"
#include "collectives/turns.hpp"

namespace tutti::collectives {
namespace {

// A payload costs more the more lines it is, up to here. Chosen, not fitted: messages of 1 KiB cost
// little more than those of 8 bytes, those of 4 KiB what the constant says. Never less than in
// proportion, so that two halves cost no less than the whole.
constexpr double kWholePayloadBytes = 2048;

}  // namespace

// Steps are executed in order of the time at which all that they wait for is there, as lowered.hpp
// says it: dependencies, sources that can be read, destinations that can be written. Ranks that
// share a processor execute theirs when it is their turn; what a call takes there is seen in a
// second one, which each rank begins as soon as it has left the first: who enters late in a round
// also leaves late, and the round in which they leave is the one in which they enter again.
class SliceSimulation {
 public:
  // `odd`: of every second call; may be the same. `backwards`: turns go from the last rank of a
  // processor to the first.
  SliceSimulation(const CostGraph& graph, const CostGraph& odd, const Machine& machine,
                  double chunk_bytes, DataIn where, bool backwards = false)
      : even_(graph),
        odd_(odd),
        graph_(&graph),
        machine_(machine),
        where_(static_cast<std::size_t>(where)),
        backwards_(backwards),
        chunk_bytes_(chunk_bytes),
        free_ns_(machine.resource_count(), 0),
        busy_ns_(machine.resource_count(), 0),
        turns_(machine.resource_count()),
        enter_ns_(static_cast<std::size_t>(machine.ranks()), 0),
        steps_left_(enter_ns_.size(), 0) {
    for (Rank rank = 0; rank < machine.ranks(); ++rank) {
      std::optional<Turns>& turns = turns_[machine.processor(rank)];
      if (machine.sharers(rank) == 1 || turns) continue;
      turns.emplace(machine.sharers(rank), machine.constants().switch_ns);
      shared_.push_back(machine.processor(rank));
    }
  }

  SliceCost run() {
    call();
    if (shared_.empty()) return summary(last_ns_);
    const double first_ns = last_ns_;
    std::fill(busy_ns_.begin(), busy_ns_.end(), 0);
    graph_ = &odd_;
    call();
    if (&even_ == &odd_) return summary(last_ns_ - first_ns);
    // In the second one they may only have come to take their turns as they are meant.
    const double second_ns = last_ns_;
    std::fill(busy_ns_.begin(), busy_ns_.end(), 0);
    graph_ = &even_;
    call();
    return summary(last_ns_ - second_ns);
  }

 private:
  struct State {
    std::uint32_t dependencies = 0;
    std::uint32_t needs = 0;   // dependencies, messages and grants that are missing
    std::uint32_t offers = 0;  // that are not taken yet, and one for the step itself
    double dependencies_ns = 0;
    double ready_ns = 0;
    double least_end_ns = 0;  // when the end of what streams to it arrives
    double complete_ns = 0;
  };

  // Whether its receiver has to be told that it is there, and its sender that it may be stored.
  static bool waits_for_offer(const CostGraph::Message& message) {
    return message.form != DirectForm::pull || !message.ready;
  }
  static bool waits_for_grant(const CostGraph::Message& message) {
    return message.form == DirectForm::push && !message.ready;
  }

  void call() {
    started_ = false;
    states_.assign(graph_->steps_.size(), State{});
    for (std::uint32_t s = 0; s < states_.size(); ++s) prepare(s);
    for (std::uint32_t s = 0; s < states_.size(); ++s)
      if (graph_->steps_[s].dependencies == 0) grant(s, states_[s].ready_ns);
    for (std::uint32_t s = 0; s < states_.size(); ++s)
      if (states_[s].needs == 0) open(s);
    started_ = true;
    executed_ = 0;
    while (take_one()) {
    }
    TUTTI_ASSERT(executed_ == states_.size(), "every step of a schedule can be taken");
  }

  // The step that can be taken first, if there is one.
  bool take_one() {
    Turns* first = nullptr;
    for (const std::uint32_t processor : shared_) {
      Turns& turns = *turns_[processor];
      const double start_ns = turns.next().start_ns;
      if (start_ns < (first == nullptr ? Turns::kNever : first->next().start_ns)) first = &turns;
    }
    const bool alone =
        !open_.empty() && (first == nullptr || open_.top().first <= first->next().start_ns);
    if (!alone && first == nullptr) return false;
    if (alone) {
      const std::uint32_t step = open_.top().second;
      const double ready_ns = open_.top().first;
      open_.pop();
      execute(step, std::max(ready_ns, free_ns_[graph_->steps_[step].processor]));
      return true;
    }
    const double start_ns = first->next().start_ns;
    const std::uint32_t step = first->take();
    const bool leaves = step >= states_.size();
    first->busy_until(leaves ? leave(step, start_ns) : execute(step, start_ns));
    return true;
  }

  int turn(Rank rank) const {
    const int turn = machine_.turn(rank);
    return backwards_ ? machine_.sharers(rank) - 1 - turn : turn;
  }

  void open(std::uint32_t s) {
    const CostGraph::Step& step = graph_->steps_[s];
    if (turns_[step.processor])
      turns_[step.processor]->open(turn(step.rank), states_[s].ready_ns, s);
    else
      open_.emplace(states_[s].ready_ns, s);
  }

  void prepare(std::uint32_t s) {
    const CostGraph::Step& step = graph_->steps_[s];
    State& state = states_[s];
    state.ready_ns = state.dependencies_ns = enter_ns_[static_cast<std::size_t>(step.rank)];
    ++steps_left_[static_cast<std::size_t>(step.rank)];
    state.dependencies = step.dependencies;
    state.needs = step.dependencies;
    state.offers = 1;
    for (std::uint32_t r = step.received_begin; r < step.received_end; ++r)
      if (waits_for_offer(graph_->messages_[graph_->received_[r]])) ++state.needs;
    for (std::uint32_t m = step.sent_begin; m < step.sent_end; ++m) {
      if (waits_for_grant(graph_->messages_[m])) ++state.needs;
      if (graph_->messages_[m].form == DirectForm::pull) ++state.offers;
    }
  }

  // All of the step's dependencies are complete: its memory may be stored into.
  void grant(std::uint32_t s, double now_ns) {
    const CostGraph::Step& step = graph_->steps_[s];
    for (std::uint32_t r = step.received_begin; r < step.received_end; ++r) {
      const CostGraph::Message& message = graph_->messages_[graph_->received_[r]];
      if (waits_for_grant(message)) satisfy(message.from, now_ns + message.route->latency_ns);
    }
  }

  void satisfy(std::uint32_t s, double now_ns) {
    State& state = states_[s];
    state.ready_ns = std::max(state.ready_ns, now_ns);
    if (--state.needs == 0 && started_) open(s);
  }

  // What streams is read as it comes, and to its end when that has come.
  void offer(const CostGraph::Message& message, double start_ns, double sent_ns) {
    const double latency_ns = message.route->latency_ns;
    if (!message.route->streams) return satisfy(message.to, sent_ns + latency_ns);
    double& least_end_ns = states_[message.to].least_end_ns;
    least_end_ns = std::max(least_end_ns, sent_ns + latency_ns);
    satisfy(message.to, start_ns + latency_ns);
  }

  // Until when its processor is busy with it.
  double execute(std::uint32_t s, double start_ns) {
    ++executed_;
    const CostGraph::Step& step = graph_->steps_[s];
    const double processor_rate = machine_.rate(step.processor);
    const double overhead_ns = step.overhead_ns + step.payload_ns * payload_share();
    double end_ns =
        occupy(step.processor, start_ns,
               overhead_ns + step.chunks_touched[where_] * chunk_bytes_ / processor_rate);
    for (std::uint32_t r = step.received_begin; r < step.received_end; ++r) {
      const CostGraph::Message& message = graph_->messages_[graph_->received_[r]];
      if (message.form == DirectForm::pull) end_ns = std::max(end_ns, transfer(message, start_ns));
    }
    end_ns = std::max(end_ns, states_[s].least_end_ns);
    for (std::uint32_t m = step.sent_begin; m < step.sent_end; ++m) {
      const CostGraph::Message& message = graph_->messages_[m];
      double sent_ns = end_ns;
      if (message.form != DirectForm::pull)
        sent_ns = std::max(sent_ns, transfer(message, start_ns));
      if (waits_for_offer(message)) offer(message, start_ns, sent_ns);
    }
    for (std::uint32_t r = step.received_begin; r < step.received_end; ++r) {
      const CostGraph::Message& message = graph_->messages_[graph_->received_[r]];
      if (message.form == DirectForm::pull)
        complete(message.from, end_ns + message.route->latency_ns);
    }
    complete(s, end_ns);
    return free_ns_[step.processor];
  }

  double payload_share() const { return std::min(1.0, chunk_bytes_ / kWholePayloadBytes); }

  double occupy(std::uint32_t resource, double start_ns, double duration_ns) {
    busy_ns_[resource] += duration_ns;
    return free_ns_[resource] = start_ns + duration_ns;
  }

  // Cut-through: a message flows over all links at once, and waits before each that is busy.
  double transfer(const CostGraph::Message& message, double start_ns) {
    double now_ns = start_ns;
    double end_ns = start_ns;
    const Route& route = *message.route;
    const double message_ns = route.link_ns + route.link_payload_ns * payload_share();
    for (const std::uint32_t link : route.links) {
      now_ns = std::max(now_ns, free_ns_[link]);
      const double bytes_ns = message.chunks * chunk_bytes_ / machine_.rate(link);
      end_ns = std::max(end_ns, occupy(link, now_ns, bytes_ns + message_ns));
    }
    return end_ns;
  }

  // The step itself, or one of its offers, is done.
  void complete(std::uint32_t s, double now_ns) {
    State& state = states_[s];
    state.complete_ns = std::max(state.complete_ns, now_ns);
    last_ns_ = std::max(last_ns_, now_ns);
    if (--state.offers > 0) return;
    const CostGraph::Step& step = graph_->steps_[s];
    if (--steps_left_[static_cast<std::size_t>(step.rank)] == 0)
      finish(step.rank, state.complete_ns);
    for (std::uint32_t d = step.dependents_begin; d < step.dependents_end; ++d) {
      const std::uint32_t dependent = graph_->dependents_[d];
      State& waiting = states_[dependent];
      waiting.dependencies_ns = std::max(waiting.dependencies_ns, state.complete_ns);
      if (--waiting.dependencies == 0) grant(dependent, waiting.dependencies_ns);
      satisfy(dependent, state.complete_ns);
    }
  }

  // All steps of a rank are complete, which it sees when it is its turn.
  void finish(Rank rank, double now_ns) {
    std::optional<Turns>& turns = turns_[machine_.processor(rank)];
    const auto leaving = static_cast<std::uint32_t>(states_.size()) + static_cast<unsigned>(rank);
    if (turns)
      turns->open(turn(rank), now_ns, leaving);
    else
      enter_ns_[static_cast<std::size_t>(rank)] = now_ns;
  }

  double leave(std::uint32_t leaving, double now_ns) {
    enter_ns_[leaving - states_.size()] = now_ns;
    last_ns_ = std::max(last_ns_, now_ns);
    return now_ns;
  }

  SliceCost summary(double time_ns) const {
    SliceCost cost;
    cost.time_ns = time_ns;
    cost.busiest = static_cast<std::uint32_t>(std::max_element(busy_ns_.begin(), busy_ns_.end()) -
                                              busy_ns_.begin());
    cost.busy_ns = busy_ns_[cost.busiest];
    cost.alike = static_cast<int>(std::count_if(busy_ns_.begin(), busy_ns_.end(), [&](double busy) {
      return busy >= cost.busy_ns * 0.999;
    }));
    return cost;
  }

  using Entry = std::pair<double, std::uint32_t>;

  const CostGraph& even_;
  const CostGraph& odd_;
  const CostGraph* graph_;  // of the call at hand
  const Machine& machine_;
  std::size_t where_;
  bool backwards_;
  double chunk_bytes_;
  std::vector<double> free_ns_;
  std::vector<double> busy_ns_;
  std::vector<State> states_;
  std::vector<std::optional<Turns>> turns_;  // of processors that ranks share
  std::vector<std::uint32_t> shared_;        // those processors
  std::vector<double> enter_ns_;             // by rank: of this call; when it has left, of the next
  std::vector<std::uint32_t> steps_left_;    // by rank: that are not complete
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
  bool started_ = false;
  std::size_t executed_ = 0;
  double last_ns_ = 0;
};

SliceCost CostGraph::price(const Machine& machine, double chunk_bytes, DataIn where,
                           const CostGraph* odd) const {
  if (odd == nullptr) odd = this;
  SliceCost cost = SliceSimulation(*this, *odd, machine, chunk_bytes, where).run();
  // In which order the system gives a core to the ranks on it nobody knows: neither way may look
  // as if it were made for the algorithm.
  if (machine.takes_turns()) {
    const SliceCost other = SliceSimulation(*this, *odd, machine, chunk_bytes, where, true).run();
    cost.time_ns = (cost.time_ns + other.time_ns) / 2;
  }
  return cost;
}

}  // namespace tutti::collectives
