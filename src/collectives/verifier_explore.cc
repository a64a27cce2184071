// Depth-first search through all states of a Flow.
#include "collectives/verifier_explore.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "collectives/contract.hpp"
#include "collectives/verifier_flow.hpp"
#include "collectives/verifier_form.hpp"
#include "collectives/verifier_values.hpp"

namespace tutti::collectives {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

enum class Phase : std::uint8_t { waiting, granted, executed, complete };

struct State {
  std::vector<char> entered;                // per rank
  std::vector<Phase> phases;                // per step
  std::vector<Value> memory;                // per cell
  std::vector<std::vector<Value>> payload;  // per staged message that is in its queue
  std::vector<std::vector<int>> queues;     // per stream: its staged messages, oldest first

  std::string key() const {
    std::string text(entered.begin(), entered.end());
    for (Phase phase : phases) text += static_cast<char>(phase);
    auto add = [&](Value value) {
      const auto* bytes = reinterpret_cast<const char*>(&value.bag);
      text.append(bytes, sizeof value.bag);
      text += static_cast<char>(value.finished);
    };
    for (Value value : memory) add(value);
    for (const auto& queue : queues) {
      text += static_cast<char>(queue.size());
      for (int message : queue)
        for (Value value : payload[at(message)]) add(value);
    }
    return text;
  }
};

// One move: a rank enters the call (step < 0), or a step reaches its next phase.
struct Move {
  Rank rank = -1;
  int step = -1;
};

class Explorer {
 public:
  // tight: least room and all waits that an executor may add.
  Explorer(const Flow& flow, bool tight, std::int64_t states_max)
      : flow_(flow), tight_(tight), states_max_(states_max) {
    int stream = -1;
    for (const FlowMessage& message : flow.messages) {
      if (message.previous < 0) ++stream;
      stream_of_.push_back(stream);
    }
    streams_ = stream + 1;
    find_conflicts();
  }

  Exploration run() {
    std::vector<State> open = {initial()};
    std::unordered_set<std::string> seen = {open[0].key()};
    while (!open.empty()) {
      if (static_cast<std::int64_t>(seen.size()) > states_max_) return result(seen.size(), false);
      const State state = std::move(open.back());
      open.pop_back();
      const std::vector<Move> moves = possible(state);
      if (moves.empty()) judge_end(state);
      judge_conflicts(state, moves);
      for (const Move& move : moves) {
        if (found_.fault != Fault::none) return result(seen.size(), true);
        State next = state;
        make(next, move);
        if (seen.insert(next.key()).second) open.push_back(std::move(next));
      }
    }
    return result(seen.size(), true);
  }

 private:
  Exploration result(std::size_t states, bool exhausted) {
    found_.states = static_cast<std::int64_t>(states);
    found_.exhausted = exhausted || found_.fault != Fault::none;
    return found_;
  }

  void fail(Fault fault, std::string reason) {
    if (found_.fault != Fault::none) return;
    found_.fault = fault;
    found_.reason = std::move(reason);
  }

  State initial() {
    State state;
    const ScheduleShape& shape = flow_.shape;
    state.entered.assign(at(shape.ranks), 0);
    state.phases.assign(flow_.steps.size(), Phase::waiting);
    state.memory.resize(at(flow_.memory.cell_count()));
    state.payload.resize(flow_.messages.size());
    state.queues.resize(at(streams_));
    for (Rank rank = 0; rank < shape.ranks; ++rank)
      for (int c = 0; has_content(shape, rank) && c < contract_chunks(shape, Buffer::input); ++c)
        state.memory[at(flow_.memory.cell(rank, Buffer::input, c))] = table_.of({rank, c});
    return state;
  }

  const FlowMessage& message(const FlowOperand& operand) const {
    return flow_.messages[at(operand.message)];
  }
  static bool reached(const State& state, int step, Phase phase) {
    return state.phases[at(step)] >= phase;
  }

  std::vector<Move> possible(const State& state) const {
    std::vector<Move> moves;
    for (Rank rank = 0; rank < flow_.shape.ranks; ++rank)
      if (!state.entered[at(rank)]) moves.push_back({rank, -1});
    for (int s = 0; s < static_cast<int>(flow_.steps.size()); ++s)
      if (can_move(state, s)) moves.push_back({flow_.steps[at(s)].rank, s});
    return moves;
  }

  bool can_move(const State& state, int step) const {
    switch (state.phases[at(step)]) {
      case Phase::waiting:
        return can_start(state, flow_.steps[at(step)]);
      case Phase::granted:
        return can_execute(state, flow_.steps[at(step)]);
      case Phase::executed:
        return is_taken(state, flow_.steps[at(step)]);
      case Phase::complete:
        return false;
    }
    return false;
  }

  // A step that grants nothing starts and executes in one move.
  bool can_start(const State& state, const FlowStep& step) const {
    if (!state.entered[at(step.rank)]) return false;
    for (int earlier : step.depends)
      if (!reached(state, earlier, Phase::complete)) return false;
    for (int earlier : step.fused)
      if (tight_ && !reached(state, earlier, Phase::executed)) return false;
    if (!grants(step)) return can_execute(state, step);
    for (const FlowOperand& source : step.sources)
      if (const int before = turn_before(source); tight_ && before >= 0)
        if (!reached(state, flow_.messages[at(before)].receiver, Phase::granted)) return false;
    return true;
  }

  static bool grants(const FlowStep& step) { return step.sources[0].route == Route::push; }

  bool can_execute(const State& state, const FlowStep& step) const {
    for (const FlowOperand& source : step.sources)
      if (source.route != Route::memory && !can_read(state, source)) return false;
    for (const FlowOperand& destination : step.destinations)
      if (destination.route != Route::memory && !can_write(state, destination)) return false;
    return true;
  }

  // The message of the same stream and route before this one, or -1.
  int turn_before(const FlowOperand& operand) const {
    const Route route = message(operand).route;
    int previous = message(operand).previous;
    while (previous >= 0 && flow_.messages[at(previous)].route != route)
      previous = flow_.messages[at(previous)].previous;
    return previous;
  }

  // What is pushed is there when it is produced; other messages are taken in turn.
  bool can_read(const State& state, const FlowOperand& source) const {
    const FlowMessage& what = message(source);
    if (const int before = turn_before(source); what.route != Route::push && before >= 0)
      if (!reached(state, flow_.messages[at(before)].receiver, Phase::executed)) return false;
    if (what.route != Route::staged) return reached(state, what.sender, Phase::executed);
    const std::vector<int>& queue = state.queues[at(stream_of_[at(source.message)])];
    return !queue.empty() && queue.front() == source.message;
  }

  bool can_write(const State& state, const FlowOperand& destination) const {
    const FlowMessage& what = message(destination);
    if (const int before = turn_before(destination); before >= 0)
      if (!reached(state, flow_.messages[at(before)].sender, Phase::executed)) return false;
    if (what.route == Route::push) return reached(state, what.receiver, Phase::granted);
    if (what.route == Route::pull || !tight_) return true;
    return state.queues[at(stream_of_[at(destination.message)])].size() < kQueueMessagesMin;
  }

  bool is_taken(const State& state, const FlowStep& step) const {
    for (const FlowOperand& destination : step.destinations)
      if (destination.route == Route::pull &&
          !reached(state, message(destination).receiver, Phase::executed))
        return false;
    return true;
  }

  // Whether the move is the one in which the step touches memory.
  bool executes(const State& state, const Move& move) const {
    if (move.step < 0) return false;
    const Phase phase = state.phases[at(move.step)];
    return phase == Phase::granted ||
           (phase == Phase::waiting && !grants(flow_.steps[at(move.step)]));
  }

  void make(State& state, const Move& move) {
    if (move.step < 0) {
      state.entered[at(move.rank)] = 1;
      return;
    }
    const FlowStep& step = flow_.steps[at(move.step)];
    Phase& phase = state.phases[at(move.step)];
    if (!executes(state, move)) {
      phase = phase == Phase::waiting ? Phase::granted : Phase::complete;
      return;
    }
    execute(state, step, move.step);
    const bool offers = std::any_of(step.destinations.begin(), step.destinations.end(),
                                    [](const FlowOperand& d) { return d.route == Route::pull; });
    phase = offers ? Phase::executed : Phase::complete;
  }

  void execute(State& state, const FlowStep& step, int number) {
    for (const FlowOperand& d : step.destinations)
      if (d.route == Route::staged) {
        state.queues[at(stream_of_[at(d.message)])].push_back(d.message);
        state.payload[at(d.message)].resize(at(step.count));
      }
    for (int k = 0; k < step.count && moves_content(step); ++k) {
      std::vector<Value> sources;
      for (const FlowOperand& source : step.sources) sources.push_back(place(state, source, k));
      std::string reason;
      const auto value =
          combine(table_, flow_.shape.ranks, step.kind, step.finish, sources, reason);
      if (!value) return fail(Fault::contract, name(number) + " " + reason);
      for (const FlowOperand& destination : step.destinations)
        if (destination.route != Route::pull) place(state, destination, k) = *value;
    }
    for (const FlowOperand& source : step.sources)
      if (source.route == Route::staged) {
        std::vector<int>& queue = state.queues[at(stream_of_[at(source.message)])];
        queue.erase(queue.begin());
        state.payload[at(source.message)].clear();
      }
  }

  Value& place(State& state, const FlowOperand& operand, int k) const {
    return operand.route == Route::staged ? state.payload[at(operand.message)][at(k)]
                                          : state.memory[at(flow_.cells_of(operand)[k])];
  }

  std::string name(int step) const {
    const FlowStep& what = flow_.steps[at(step)];
    return describe_step(what.rank, what.number, what.kind);
  }

  bool has_left(const State& state, Rank rank) const {
    if (!state.entered[at(rank)]) return false;
    for (int s = flow_.first_step[at(rank)]; s < flow_.first_step[at(rank) + 1]; ++s)
      if (state.phases[at(s)] != Phase::complete) return false;
    return true;
  }

  // Two moves that are possible now may happen at the same time.
  void judge_conflicts(const State& state, const std::vector<Move>& moves) {
    std::vector<int> steps;
    for (const Move& move : moves)
      if (executes(state, move)) steps.push_back(move.step);
    for (std::size_t a = 0; a < steps.size(); ++a) {
      judge_presence(state, steps[a]);
      for (std::size_t b = a + 1; b < steps.size(); ++b)
        if (conflicts_[at(steps[a]) * flow_.steps.size() + at(steps[b])])
          fail(Fault::race, name(steps[a]) + " and " + name(steps[b]) + " touch the same memory");
    }
    if (flow_.shape.collective != Collective::barrier) return;
    for (Rank rank = 0; rank < flow_.shape.ranks; ++rank)
      if (has_left(state, rank) &&
          std::count(state.entered.begin(), state.entered.end(), 1) < flow_.shape.ranks)
        fail(Fault::contract, fmt::format("rank {} leaves the barrier too early", rank));
  }

  // Direct accesses need their owner: in the call, and not gone from it.
  void judge_presence(const State& state, int step) {
    if (overwrites_itself_[at(step)]) fail(Fault::race, name(step) + " overwrites itself");
    for (Rank owner : visits_[at(step)])
      if (!state.entered[at(owner)] || has_left(state, owner))
        fail(Fault::race,
             fmt::format("{} touches memory of rank {}, which is not there", name(step), owner));
  }

  // What can be said of steps once and for all: who conflicts with whom, who visits whose memory.
  void find_conflicts() {
    const std::size_t count = flow_.steps.size();
    conflicts_.assign(count * count, false);
    visits_.resize(count);
    std::vector<std::vector<FlowAccess>> accesses;
    for (const FlowStep& step : flow_.steps) {
      accesses.push_back(accesses_of(step));
      overwrites_itself_.push_back(self_conflict(flow_, step) >= 0);
      for (const FlowAccess& access : accesses.back())
        for (int k = 0; k < step.count; ++k) {
          const Rank owner = flow_.memory.owner(flow_.cells_of(*access.operand)[k]);
          if (owner != step.rank) visits_[accesses.size() - 1].push_back(owner);
        }
    }
    for (std::size_t a = 0; a < count; ++a)
      for (std::size_t b = 0; b < count; ++b)
        for (const FlowAccess& x : accesses[a])
          for (const FlowAccess& y : accesses[b])
            if ((x.write || y.write) && overlap(x, flow_.steps[a].count, y, flow_.steps[b].count))
              conflicts_[a * count + b] = true;
  }

  bool overlap(const FlowAccess& x, int x_count, const FlowAccess& y, int y_count) const {
    const int* first = flow_.cells_of(*x.operand);
    const int* second = flow_.cells_of(*y.operand);
    return std::find_first_of(first, first + x_count, second, second + y_count) != first + x_count;
  }

  void judge_end(const State& state) {
    const ScheduleShape& shape = flow_.shape;
    for (std::size_t s = 0; s < flow_.steps.size(); ++s)
      if (state.phases[s] != Phase::complete)
        return fail(Fault::deadlock, name(static_cast<int>(s)) + " waits for ever");
    for (Rank rank = 0; rank < shape.ranks; ++rank)
      for (int chunk = 0; chunk < contract_chunks(shape, Buffer::output); ++chunk) {
        const Value value = state.memory[at(flow_.memory.cell(rank, Buffer::output, chunk))];
        if (std::string wrong = judge(table_, required_output(shape, rank, chunk), value);
            !wrong.empty())
          return fail(Fault::contract, fmt::format("output[{}] of rank {} {}", chunk, rank, wrong));
      }
  }

  const Flow& flow_;
  bool tight_;
  std::int64_t states_max_;
  ValueTable table_;
  std::vector<int> stream_of_;  // of each message
  int streams_ = 0;
  std::vector<bool> conflicts_;  // step x step
  std::vector<bool> overwrites_itself_;
  std::vector<std::vector<Rank>> visits_;
  Exploration found_;
};

}  // namespace

Exploration explore_lowered(std::span<const LoweredProgram> programs,
                            const Addressability& addressable, const ExploreOptions& options) {
  Exploration total;
  total.exhausted = true;
  if (const Verdict verdict = check_form(programs); !verdict.ok()) {
    total.fault = verdict.fault;
    total.reason = verdict.reason;
    return total;
  }
  for (const bool in_place : {false, true}) {
    if (!(in_place ? options.in_place : options.out_of_place)) continue;
    if (in_place && !may_run_in_place(programs[0].shape.collective)) continue;
    const Flow flow = join(programs, addressable, in_place);
    for (const bool tight : {true, false}) {
      const Exploration one = Explorer(flow, tight, options.states_max).run();
      total.states += one.states;
      total.exhausted = total.exhausted && one.exhausted;
      if (one.fault == Fault::none) continue;
      total.fault = one.fault;
      total.reason = one.reason;
      return total;
    }
  }
  return total;
}

Exploration explore(const ScheduleShape& shape, std::span<const ExpandedProgram> programs,
                    const ExploreOptions& options) {
  std::vector<LoweredProgram> staged;
  for (std::size_t r = 0; r < programs.size(); ++r)
    staged.push_back(as_lowered(shape, static_cast<Rank>(r), programs[r]));
  return explore_lowered(staged, all_staged(static_cast<int>(staged.size())), options);
}

}  // namespace tutti::collectives
