// Finds both ends of every message and decides what it becomes where memory is shared.
#include "collectives/lowering.hpp"

#include <algorithm>
#include <functional>

#include "base/assert.hpp"
#include "collectives/expand.hpp"

namespace tutti::collectives {
namespace {

// One end of a message: a step and the operand in it.
struct End {
  int step = -1;
  int operand = -1;
};

// The memory operand of `step` that holds, after the step, what the step sends: a copy's source, or
// else the first destination in memory. Null when the content exists nowhere in memory.
const ExpandedOperand* offered(const ExpandedStep& step) {
  if (step.kind == StepKind::copy && step.sources[0].kind == Operand::Kind::chunks)
    return &step.sources[0];
  for (const ExpandedOperand& destination : step.destinations)
    if (destination.kind == Operand::Kind::chunks) return &destination;
  return nullptr;
}

// Where a copy from a message puts it; null when the step consumes the message otherwise.
const ExpandedOperand* landing(const ExpandedStep& step) {
  if (step.kind != StepKind::copy) return nullptr;
  for (const ExpandedOperand& destination : step.destinations)
    if (destination.kind == Operand::Kind::chunks) return &destination;
  return nullptr;
}

int first_in_memory(const std::vector<ExpandedOperand>& operands) {
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i].kind == Operand::Kind::chunks) return static_cast<int>(i);
  return -1;
}

// The ends of all messages between `program`'s rank and `peer`, in stream order.
std::vector<End> ends(const ExpandedProgram& program, Rank peer, bool sending) {
  std::vector<End> found;
  for (std::size_t s = 0; s < program.size(); ++s) {
    const auto& operands = sending ? program[s].destinations : program[s].sources;
    for (std::size_t o = 0; o < operands.size(); ++o)
      if (operands[o].kind == Operand::Kind::message && operands[o].index == peer)
        found.push_back({static_cast<int>(s), static_cast<int>(o)});
  }
  return found;
}

// What a message becomes between ranks that can address each other, and the memory it touches.
struct DirectChoice {
  DirectForm form = DirectForm::none;
  const ExpandedOperand* touched = nullptr;  // the sender's for pull, the receiver's for push
};

DirectChoice choose(const ExpandedStep& sender, const ExpandedOperand& sent,
                    const ExpandedStep& receiver, const ExpandedOperand& received) {
  const auto either = [&](Travel travel) {
    return sent.travel == travel || received.travel == travel;
  };
  if (either(Travel::queued)) return {};
  const bool stores = sender.kind == StepKind::reduce || either(Travel::pushed);
  if (stores && landing(receiver) != nullptr) return {DirectForm::push, landing(receiver)};
  if (const ExpandedOperand* content = offered(sender)) return {DirectForm::pull, content};
  return {};
}

class Lowerer {
 public:
  using ProgramOf = std::function<const ExpandedProgram&(Rank)>;

  Lowerer(const ScheduleShape& shape, Rank rank, const ProgramOf& program_of)
      : mine_(program_of(rank)) {
    lowered_.shape = shape;
    lowered_.rank = rank;
    for (const ExpandedStep& step : mine_) add_step(step);
    for (Rank peer : find_peers()) link(peer, program_of(peer));
    add_dependencies();
  }

  LoweredProgram take() { return std::move(lowered_); }

 private:
  std::vector<Rank> find_peers() const {
    std::vector<Rank> peers;
    auto note = [&](const std::vector<ExpandedOperand>& operands) {
      for (const ExpandedOperand& operand : operands)
        if (operand.kind == Operand::Kind::message) peers.push_back(operand.index);
    };
    for (const ExpandedStep& step : mine_) {
      note(step.sources);
      note(step.destinations);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

  void add_step(const ExpandedStep& step) {
    LoweredStep lowered;
    lowered.kind = step.kind;
    lowered.finish = step.finish;
    lowered.landing = first_in_memory(step.destinations);
    auto convert = [](const ExpandedOperand& operand) {
      LoweredOperand result;
      result.kind = operand.kind;
      result.count = operand.count;
      if (operand.kind == Operand::Kind::chunks) {
        result.buffer = operand.buffer;
        result.chunk = operand.index;
      }
      return result;
    };
    for (const ExpandedOperand& source : step.sources) lowered.sources.push_back(convert(source));
    for (const ExpandedOperand& destination : step.destinations)
      lowered.destinations.push_back(convert(destination));
    lowered_.steps.push_back(std::move(lowered));
  }

  // Matches the messages of both directions with the peer's ends.
  void link(Rank peer, const ExpandedProgram& theirs) {
    const int stream = static_cast<int>(lowered_.peers.size());
    lowered_.peers.push_back(peer);
    const std::vector<End> sent = ends(mine_, peer, true);
    const std::vector<End> taken = ends(theirs, lowered_.rank, false);
    const std::vector<End> received = ends(mine_, peer, false);
    const std::vector<End> given = ends(theirs, lowered_.rank, true);
    TUTTI_ASSERT(sent.size() == taken.size() && received.size() == given.size(),
                 "every message has two ends");
    for (std::size_t k = 0; k < sent.size(); ++k) {
      LoweredOperand& operand = at(sent[k], true);
      set_message(operand, stream, k);
      const DirectChoice choice =
          choose(step(mine_, sent[k]), step(mine_, sent[k]).destinations[index(sent[k].operand)],
                 step(theirs, taken[k]), step(theirs, taken[k]).sources[index(taken[k].operand)]);
      set_direct(operand, choice, choice.form == DirectForm::pull);
    }
    for (std::size_t k = 0; k < received.size(); ++k) {
      LoweredOperand& operand = at(received[k], false);
      set_message(operand, stream, k);
      const DirectChoice choice = choose(
          step(theirs, given[k]), step(theirs, given[k]).destinations[index(given[k].operand)],
          step(mine_, received[k]), step(mine_, received[k]).sources[index(received[k].operand)]);
      set_direct(operand, choice, choice.form == DirectForm::push);
    }
    lowered_.sends.push_back(static_cast<int>(sent.size()));
    lowered_.receives.push_back(static_cast<int>(received.size()));
    partners_.push_back({taken, given});
  }

  static std::size_t index(int value) { return static_cast<std::size_t>(value); }
  static const ExpandedStep& step(const ExpandedProgram& program, const End& end) {
    return program[index(end.step)];
  }

  LoweredOperand& at(const End& end, bool destination) {
    LoweredStep& step = lowered_.steps[index(end.step)];
    return destination ? step.destinations[index(end.operand)] : step.sources[index(end.operand)];
  }

  static void set_message(LoweredOperand& operand, int stream, std::size_t ordinal) {
    operand.stream = stream;
    operand.ordinal = static_cast<int>(ordinal);
  }

  static void set_direct(LoweredOperand& operand, const DirectChoice& choice, bool mine) {
    operand.direct = choice.form;
    if (choice.form == DirectForm::none) return;
    operand.buffer = choice.touched->buffer;
    operand.chunk = choice.touched->index;
    operand.mine = mine;
  }

  void add_dependencies() {
    for (std::size_t s = 0; s < mine_.size(); ++s)
      for (int earlier : mine_[s].depends)
        lowered_.steps[s].depends.push_back({earlier, is_fused(index(earlier), s)});
  }

  // A pure send that is pulled and a pure recv that is pushed, both by one and the same step of the
  // peer: it reads each element before it overwrites it.
  bool is_fused(std::size_t earlier, std::size_t later) const {
    const LoweredStep& send = lowered_.steps[earlier];
    const LoweredStep& recv = lowered_.steps[later];
    if (send.kind != StepKind::copy || recv.kind != StepKind::copy) return false;
    if (send.destinations.size() != 1 || recv.destinations.size() != 1) return false;
    const LoweredOperand& out = send.destinations[0];
    const LoweredOperand& in = recv.sources[0];
    if (send.sources[0].kind != Operand::Kind::chunks || out.direct != DirectForm::pull)
      return false;
    if (in.kind != Operand::Kind::message || in.direct != DirectForm::push) return false;
    if (out.stream != in.stream || !same_memory(out, in)) return false;
    const Partner& partner = partners_[index(out.stream)];
    return partner.taken[index(out.ordinal)].step == partner.given[index(in.ordinal)].step;
  }

  // Whether two ranges of this rank's own memory are one and the same when running in place. Only
  // then does reading before writing, element by element, make the order safe.
  bool same_memory(const LoweredOperand& a, const LoweredOperand& b) const {
    if (a.count != b.count) return false;
    if (a.buffer == b.buffer) return a.chunk == b.chunk;
    return a.buffer == Buffer::input && b.buffer == Buffer::output &&
           aliased_chunk(lowered_.shape, lowered_.rank, a.chunk) == b.chunk;
  }

  struct Partner {
    std::vector<End> taken;  // where the peer receives what we send
    std::vector<End> given;  // where the peer sends what we receive
  };

  const ExpandedProgram& mine_;
  LoweredProgram lowered_;
  std::vector<Partner> partners_;
};

}  // namespace

LoweredProgram lower(const Schedule& schedule, Rank rank) {
  std::vector<ExpandedProgram> cache(static_cast<std::size_t>(schedule.shape.ranks));
  auto program_of = [&](Rank r) -> const ExpandedProgram& {
    ExpandedProgram& program = cache[static_cast<std::size_t>(r)];
    if (program.empty()) program = r == rank ? expand(schedule, r) : unroll(schedule, r);
    return program;
  };
  return Lowerer(schedule.shape, rank, program_of).take();
}

std::vector<LoweredProgram> lower_all(const Schedule& schedule) {
  std::vector<ExpandedProgram> programs;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    programs.push_back(expand(schedule, rank));
  auto program_of = [&](Rank r) -> const ExpandedProgram& {
    return programs[static_cast<std::size_t>(r)];
  };
  std::vector<LoweredProgram> lowered;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    lowered.push_back(Lowerer(schedule.shape, rank, program_of).take());
  return lowered;
}

LoweredProgram in_rank_order(LoweredProgram program) {
  const auto rank_of = [&](const LoweredOperand& source) {
    if (source.kind == Operand::Kind::chunks) return program.rank;
    return program.peers[static_cast<std::size_t>(source.stream)];
  };
  for (LoweredStep& step : program.steps)
    std::stable_sort(
        step.sources.begin(), step.sources.end(),
        [&](const LoweredOperand& x, const LoweredOperand& y) { return rank_of(x) < rank_of(y); });
  program.ordered = true;
  return program;
}

LoweredProgram lower_point_to_point(int ranks, Rank rank, Rank to, Rank from) {
  LoweredProgram program;
  program.shape.collective = Collective::send_recv;
  program.shape.ranks = ranks;
  program.rank = rank;
  for (Rank peer : {std::min(to, from), std::max(to, from)}) {
    if (peer < 0 || peer == rank) continue;
    if (!program.peers.empty() && program.peers.back() == peer) continue;
    program.peers.push_back(peer);
    program.sends.push_back(peer == to ? 1 : 0);
    program.receives.push_back(peer == from ? 1 : 0);
  }
  auto memory = [](Buffer buffer) {
    LoweredOperand operand;
    operand.buffer = buffer;
    return operand;
  };
  auto message = [&](Rank peer, bool mine) {
    LoweredOperand operand;
    operand.kind = Operand::Kind::message;
    operand.direct = DirectForm::pull;
    operand.mine = mine;
    operand.stream = static_cast<int>(std::find(program.peers.begin(), program.peers.end(), peer) -
                                      program.peers.begin());
    return operand;
  };
  auto add = [&](LoweredOperand source, LoweredOperand destination) {
    LoweredStep step;
    step.landing = destination.kind == Operand::Kind::chunks ? 0 : -1;
    step.sources = {source};
    step.destinations = {destination};
    program.steps.push_back(step);
  };
  if (to == rank) {
    add(memory(Buffer::input), memory(Buffer::output));
    return program;
  }
  if (to >= 0) add(memory(Buffer::input), message(to, true));
  if (from >= 0) add(message(from, false), memory(Buffer::output));
  return program;
}

}  // namespace tutti::collectives
