// Finds both ends of every message and decides what it becomes where memory is shared.
#include "collectives/lowering.hpp"

#include <algorithm>
#include <functional>

#include "base/assert.hpp"
#include "collectives/expand.hpp"
#include "collectives/first_touches.hpp"

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
                    const ExpandedStep& receiver, const ExpandedOperand& received, Copies copies) {
  const auto either = [&](Travel travel) {
    return sent.travel == travel || received.travel == travel;
  };
  if (either(Travel::queued)) return {};
  const bool stores =
      sender.kind == StepKind::reduce || (copies == Copies::pushed && either(Travel::pushed));
  if (stores && landing(receiver) != nullptr) return {DirectForm::push, landing(receiver)};
  if (const ExpandedOperand* content = offered(sender)) return {DirectForm::pull, content};
  return {};
}

// A rank's program as it was told, and what it touches first.
struct Told {
  ExpandedProgram steps;
  FirstTouches touches;

  Told() = default;
  Told(const ScheduleShape& shape, Rank rank, ExpandedProgram program)
      : steps(std::move(program)), touches(shape, rank, steps) {}

  const ExpandedStep& step(const End& end) const {
    return steps[static_cast<std::size_t>(end.step)];
  }
};

// The messages of one directed stream.
struct Directed {
  std::vector<End> sent;
  std::vector<End> received;
  std::vector<DirectChoice> choices;

  Directed(const Told& sender, Rank sender_rank, const Told& receiver, Rank receiver_rank,
           Copies copies)
      : sent(ends(sender.steps, receiver_rank, true)),
        received(ends(receiver.steps, sender_rank, false)) {
    TUTTI_ASSERT(sent.size() == received.size(), "every message has two ends");
    for (std::size_t k = 0; k < sent.size(); ++k) {
      const ExpandedStep& from = sender.step(sent[k]);
      const ExpandedStep& to = receiver.step(received[k]);
      choices.push_back(choose(from, from.destinations[static_cast<std::size_t>(sent[k].operand)],
                               to, to.sources[static_cast<std::size_t>(received[k].operand)],
                               copies));
    }
  }

  int size() const { return static_cast<int>(sent.size()); }
  // The message that a step sends, no other than that on this stream; -1 for none.
  int sent_by(int step) const {
    const auto found =
        std::lower_bound(sent.begin(), sent.end(), step,
                         [](const End& end, int wanted) { return end.step < wanted; });
    return found == sent.end() || found->step != step ? -1 : static_cast<int>(found - sent.begin());
  }
};

// Whether message `out` of a rank, a pure send that is pulled, and message `in` that it gets back,
// a pure recv that is pushed into the same memory, are both done by one step of the peer: it reads
// each element before it overwrites it.
bool is_one_pass(const Told& owner, const Directed& sends, int out, const Directed& receives,
                 int in) {
  const auto o = static_cast<std::size_t>(out);
  const auto i = static_cast<std::size_t>(in);
  const ExpandedStep& send = owner.step(sends.sent[o]);
  const ExpandedStep& recv = owner.step(receives.received[i]);
  if (send.kind != StepKind::copy || recv.kind != StepKind::copy) return false;
  if (send.destinations.size() != 1 || recv.destinations.size() != 1) return false;
  if (send.sources[0].kind != Operand::Kind::chunks) return false;
  const DirectChoice& given = sends.choices[o];
  const DirectChoice& taken = receives.choices[i];
  if (given.form != DirectForm::pull || taken.form != DirectForm::push) return false;
  return owner.touches.same_memory(*given.touched, *taken.touched) &&
         sends.received[o].step == receives.sent[i].step;
}

// What is ready when its owner has entered the call (lowered.hpp).
struct Readiness {
  bool at_arrival = false;
  int beside = -1;
};

// Of a message that `owner` sends and its peer pulls.
Readiness pulled(const Told& owner, const Directed& sends, std::size_t message) {
  const ExpandedOperand& content = *sends.choices[message].touched;
  if (content.buffer != Buffer::input) return {};
  return {owner.touches.first_write(content) >= sends.sent[message].step, -1};
}

// Of a message that the peer pushes to `owner`.
Readiness pushed(const Told& owner, const Directed& sends, const Directed& receives,
                 std::size_t message) {
  const int step = receives.received[message].step;
  const FirstTouches::Two touched = owner.touches.first_two(*receives.choices[message].touched);
  if (touched.first >= step) return {true, -1};
  if (touched.second < step) return {};
  const int out = sends.sent_by(touched.first);
  if (out < 0 || !is_one_pass(owner, sends, out, receives, static_cast<int>(message))) return {};
  return {pulled(owner, sends, static_cast<std::size_t>(out)).at_arrival, out};
}

// Of a message from one rank to another; `back` are those of the other direction.
Readiness readiness(const Told& sender, const Told& receiver, const Directed& messages,
                    const Directed& back, std::size_t message) {
  switch (messages.choices[message].form) {
    case DirectForm::pull:
      return pulled(sender, messages, message);
    case DirectForm::push:
      return pushed(receiver, back, messages, message);
    case DirectForm::none:
      break;
  }
  return {};
}

class Lowerer {
 public:
  using ProgramOf = std::function<const Told&(Rank)>;

  Lowerer(const ScheduleShape& shape, Rank rank, const ProgramOf& program_of, Copies copies)
      : mine_(program_of(rank)), copies_(copies) {
    lowered_.shape = shape;
    lowered_.rank = rank;
    for (const ExpandedStep& step : mine_.steps) add_step(step);
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
    for (const ExpandedStep& step : mine_.steps) {
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
  void link(Rank peer, const Told& theirs) {
    const Directed out(mine_, lowered_.rank, theirs, peer, copies_);
    const Directed in(theirs, peer, mine_, lowered_.rank, copies_);
    const int stream = static_cast<int>(lowered_.peers.size());
    for (std::size_t k = 0; k < out.sent.size(); ++k)
      set_message(at(out.sent[k], true), stream, k, out.choices[k], DirectForm::pull,
                  readiness(mine_, theirs, out, in, k));
    for (std::size_t k = 0; k < in.sent.size(); ++k)
      set_message(at(in.received[k], false), stream, k, in.choices[k], DirectForm::push,
                  readiness(theirs, mine_, in, out, k));
    lowered_.peers.push_back(peer);
    lowered_.sends.push_back(out.size());
    lowered_.receives.push_back(in.size());
    streams_.push_back({out, in});
  }

  LoweredOperand& at(const End& end, bool destination) {
    LoweredStep& step = lowered_.steps[static_cast<std::size_t>(end.step)];
    return (destination ? step.destinations : step.sources)[static_cast<std::size_t>(end.operand)];
  }

  // `touches_mine`: the form in which the peer touches this rank's memory.
  static void set_message(LoweredOperand& operand, int stream, std::size_t ordinal,
                          const DirectChoice& choice, DirectForm touches_mine,
                          const Readiness& readiness) {
    operand.stream = stream;
    operand.ordinal = static_cast<int>(ordinal);
    operand.direct = choice.form;
    if (choice.form == DirectForm::none) return;
    operand.buffer = choice.touched->buffer;
    operand.chunk = choice.touched->index;
    operand.mine = choice.form == touches_mine;
    operand.at_arrival = readiness.at_arrival;
    operand.beside = readiness.beside;
  }

  void add_dependencies() {
    for (std::size_t s = 0; s < mine_.steps.size(); ++s)
      for (int earlier : mine_.steps[s].depends)
        lowered_.steps[s].depends.push_back({earlier, is_fused(earlier, s)});
  }

  bool is_fused(int earlier, std::size_t later) const {
    const LoweredOperand& in = lowered_.steps[later].sources[0];
    if (in.kind != Operand::Kind::message) return false;
    const Streams& both = streams_[static_cast<std::size_t>(in.stream)];
    const int out = both.out.sent_by(earlier);
    return out >= 0 && is_one_pass(mine_, both.out, out, both.in, in.ordinal);
  }

  struct Streams {
    Directed out;
    Directed in;
  };

  const Told& mine_;
  const Copies copies_;
  LoweredProgram lowered_;
  std::vector<Streams> streams_;  // by peer
};

}  // namespace

LoweredProgram lower(const Schedule& schedule, Rank rank, Copies copies) {
  std::vector<Told> cache(static_cast<std::size_t>(schedule.shape.ranks));
  auto program_of = [&](Rank r) -> const Told& {
    Told& told = cache[static_cast<std::size_t>(r)];
    if (told.steps.empty())
      told = Told(schedule.shape, r, r == rank ? expand(schedule, r) : unroll(schedule, r));
    return told;
  };
  return Lowerer(schedule.shape, rank, program_of, copies).take();
}

std::vector<LoweredProgram> lower_all(const Schedule& schedule, Copies copies) {
  std::vector<Told> programs;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    programs.emplace_back(schedule.shape, rank, expand(schedule, rank));
  auto program_of = [&](Rank r) -> const Told& { return programs[static_cast<std::size_t>(r)]; };
  std::vector<LoweredProgram> lowered;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    lowered.push_back(Lowerer(schedule.shape, rank, program_of, copies).take());
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
    operand.at_arrival = true;  // inputs that nobody writes
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
