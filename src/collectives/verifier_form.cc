// Looks at every step alone, then at every message from both of its ends.
#include "collectives/verifier_form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collectives/contract.hpp"

namespace tutti::collectives {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool is_memory(const LoweredOperand& operand) { return operand.kind == Operand::Kind::chunks; }

bool same_range(const LoweredOperand& a, const LoweredOperand& b) {
  return a.buffer == b.buffer && a.chunk == b.chunk && a.count == b.count;
}

bool in_range(const ScheduleShape& shape, const LoweredOperand& operand) {
  return operand.chunk >= 0 && operand.count >= 1 &&
         operand.chunk <= contract_chunks(shape, operand.buffer) - operand.count;
}

std::string describe(const LoweredOperand& operand) {
  return describe_chunks(operand.buffer, operand.chunk, operand.count);
}

// Judges the steps of one rank. Every check returns what is wrong, or an empty text.
class StepForm {
 public:
  explicit StepForm(const LoweredProgram& program)
      : program_(program),
        next_sent_(program.peers.size(), 0),
        next_received_(program.peers.size(), 0) {}

  std::string check_all() {
    if (std::string wrong = check_peers(); !wrong.empty()) return wrong;
    for (std::size_t s = 0; s < program_.steps.size(); ++s)
      if (std::string wrong = check(program_.steps[s], static_cast<int>(s)); !wrong.empty())
        return describe_step(program_.rank, static_cast<int>(s), program_.steps[s].kind) + ": " +
               wrong;
    for (std::size_t k = 0; k < program_.peers.size(); ++k)
      if (next_sent_[k] != program_.sends[k] || next_received_[k] != program_.receives[k])
        return fmt::format(
            "rank {} announces {} messages to rank {} and {} back, but has {} and {}",
            program_.rank, program_.sends[k], program_.peers[k], program_.receives[k],
            next_sent_[k], next_received_[k]);
    return {};
  }

 private:
  std::string check_peers() const {
    if (program_.sends.size() != program_.peers.size() ||
        program_.receives.size() != program_.peers.size())
      return fmt::format("rank {}: peers and message counts differ in length", program_.rank);
    std::vector<Rank> peers = program_.peers;
    std::sort(peers.begin(), peers.end());
    for (std::size_t k = 0; k < peers.size(); ++k) {
      if (peers[k] < 0 || peers[k] >= program_.shape.ranks || peers[k] == program_.rank)
        return fmt::format("rank {}: rank {} cannot be a peer", program_.rank, peers[k]);
      if (k > 0 && peers[k] == peers[k - 1])
        return fmt::format("rank {}: peer {} stands there twice", program_.rank, peers[k]);
    }
    return {};
  }

  std::string check(const LoweredStep& step, int number) {
    if (step.sources.empty() || step.destinations.empty()) return "has no source or destination";
    if (step.kind == StepKind::copy && step.sources.size() != 1)
      return fmt::format("a copy has one source, not {}", step.sources.size());
    if (step.kind == StepKind::copy && step.finish) return "only a reduce can finish";
    if (std::string wrong = check_geometry(step); !wrong.empty()) return wrong;
    if (std::string wrong = check_messages(step); !wrong.empty()) return wrong;
    if (std::string wrong = check_direct(step); !wrong.empty()) return wrong;
    if (std::string wrong = check_ready(step, number); !wrong.empty()) return wrong;
    return check_depends(step, number);
  }

  std::string check_geometry(const LoweredStep& step) const {
    const LoweredOperand* memory = nullptr;
    for (const auto* operands : {&step.sources, &step.destinations})
      for (const LoweredOperand& operand : *operands) {
        if (operand.count != step.sources[0].count)
          return fmt::format("operands of {} and {} chunks", step.sources[0].count, operand.count);
        if (!is_memory(operand)) continue;
        if (!in_range(program_.shape, operand))
          return fmt::format("{} lies outside of its buffer of {} chunks", describe(operand),
                             contract_chunks(program_.shape, operand.buffer));
        if (operands == &step.destinations && operand.buffer == Buffer::input)
          return fmt::format("writes {}", describe(operand));
        if (memory != nullptr && (operand.chunk - memory->chunk) % program_.shape.chunks != 0)
          return fmt::format("{} and {} have different positions", describe(*memory),
                             describe(operand));
        memory = &operand;
      }
    return memory == nullptr ? "has no operand in memory" : "";
  }

  std::string check_messages(const LoweredStep& step) {
    for (const auto* operands : {&step.sources, &step.destinations}) {
      std::vector<int>& next = operands == &step.sources ? next_received_ : next_sent_;
      std::vector<int> streams;
      for (const LoweredOperand& operand : *operands) {
        if (is_memory(operand)) continue;
        if (operand.stream < 0 || at(operand.stream) >= program_.peers.size())
          return fmt::format("a message on stream {}, which does not exist", operand.stream);
        if (operand.count > program_.shape.message_chunks_max)
          return fmt::format("a message of {} chunks where at most {} are promised", operand.count,
                             program_.shape.message_chunks_max);
        if (std::find(streams.begin(), streams.end(), operand.stream) != streams.end())
          return fmt::format("two messages of rank {} at once", program_.peers[at(operand.stream)]);
        streams.push_back(operand.stream);
        if (operand.ordinal != next[at(operand.stream)]++)
          return fmt::format("message {} of the stream with rank {} comes out of order",
                             operand.ordinal, program_.peers[at(operand.stream)]);
      }
    }
    return {};
  }

  // A direct form touches memory that exists, at the end that it should.
  std::string check_direct(const LoweredStep& step) const {
    if (step.landing < -1 || step.landing >= static_cast<int>(step.destinations.size()))
      return fmt::format("lands in destination {}, which does not exist", step.landing);
    const LoweredOperand* landing =
        step.landing < 0 ? nullptr : &step.destinations[at(step.landing)];
    if (landing != nullptr && !is_memory(*landing)) return "lands in a message";
    const bool offers_source = step.kind == StepKind::copy && is_memory(step.sources[0]);
    const LoweredOperand* offered = offers_source ? &step.sources[0] : landing;
    for (const LoweredOperand& source : step.sources) {
      if (is_memory(source) || source.direct == DirectForm::none) continue;
      if (source.mine != (source.direct == DirectForm::push)) return "pulls its own memory";
      if (source.direct == DirectForm::pull) continue;
      if (step.kind != StepKind::copy) return "reduces what is pushed to it";
      if (landing == nullptr || !same_range(*landing, source))
        return fmt::format("grants {} but does not land there", describe(source));
    }
    for (const LoweredOperand& destination : step.destinations) {
      if (is_memory(destination) || destination.direct == DirectForm::none) continue;
      if (destination.mine != (destination.direct == DirectForm::pull)) return "pushes to itself";
      if (destination.direct == DirectForm::push) continue;
      if (offered == nullptr || !same_range(*offered, destination))
        return fmt::format("offers {} but does not hold the content there", describe(destination));
    }
    return {};
  }

  // What the peer may touch as soon as this rank has entered the call.
  std::string check_ready(const LoweredStep& step, int number) const {
    for (const auto* operands : {&step.sources, &step.destinations})
      for (const LoweredOperand& operand : *operands) {
        if (is_memory(operand) || !operand.at_arrival) continue;
        if (operand.direct == DirectForm::none)
          return "is ready at arrival, but goes through a queue";
        if (!operand.mine) continue;
        const bool pulled = operand.direct == DirectForm::pull;
        if (pulled && operand.buffer != Buffer::input)
          return fmt::format("lets {} be read at arrival", describe(operand));
        for (int s = 0; s < number; ++s)
          if (!leaves_ready(program_.steps[at(s)], operand))
            return fmt::format("lets {} be {} at arrival, though step {} comes before",
                               describe(operand), pulled ? "read" : "stored", s);
      }
    return {};
  }

  // Whether an earlier step leaves alone what the peer reads or stores at arrival. The one that
  // only offers what the peer reads in the same pass as it stores does.
  bool leaves_ready(const LoweredStep& earlier, const LoweredOperand& ready) const {
    for (const LoweredOperand& destination : earlier.destinations)
      if (is_memory(destination) && overlap(destination, ready)) return false;
    if (ready.direct == DirectForm::pull) return true;
    const LoweredOperand& out = earlier.destinations[0];
    const bool only_offers = earlier.kind == StepKind::copy && earlier.destinations.size() == 1 &&
                             !is_memory(out) && out.stream == ready.stream &&
                             out.ordinal == ready.beside && out.at_arrival &&
                             out.direct == DirectForm::pull;
    if (only_offers) return true;
    return std::none_of(
        earlier.sources.begin(), earlier.sources.end(),
        [&](const LoweredOperand& read) { return is_memory(read) && overlap(read, ready); });
  }

  // In place, input chunks are output chunks.
  bool overlap(const LoweredOperand& a, const LoweredOperand& b) const {
    for (int i = 0; i < a.count; ++i)
      for (int k = 0; k < b.count; ++k)
        if (place_of(a, i) == place_of(b, k)) return true;
    return false;
  }
  std::pair<Buffer, int> place_of(const LoweredOperand& operand, int k) const {
    const int chunk = operand.chunk + k;
    if (operand.buffer != Buffer::input) return {operand.buffer, chunk};
    const int alias = contract_alias(program_.shape, program_.rank, chunk);
    return alias >= 0 ? std::pair{Buffer::output, alias} : std::pair{Buffer::input, chunk};
  }

  std::string check_depends(const LoweredStep& step, int number) const {
    for (const LoweredDependency& dependency : step.depends) {
      if (dependency.step < 0 || dependency.step >= number)
        return fmt::format("depends on step {}, which is not an earlier one", dependency.step);
      if (dependency.fused && !can_fuse(program_.steps[at(dependency.step)], step))
        return fmt::format("is fused with step {}, which offers its peer nothing", dependency.step);
    }
    return {};
  }

  static bool can_fuse(const LoweredStep& earlier, const LoweredStep& later) {
    for (const LoweredOperand& sent : earlier.destinations)
      for (const LoweredOperand& received : later.sources)
        if (!is_memory(sent) && sent.direct == DirectForm::pull && !is_memory(received) &&
            received.direct == DirectForm::push && sent.stream == received.stream)
          return true;
    return false;
  }

  const LoweredProgram& program_;
  std::vector<int> next_sent_;
  std::vector<int> next_received_;
};

// One end of a message.
struct End {
  const LoweredOperand* operand = nullptr;
  Rank rank = 0;
  int step = 0;
  int position = 0;  // of its first chunk within the block
};

int position_of(const ScheduleShape& shape, const LoweredStep& step) {
  for (const auto* operands : {&step.sources, &step.destinations})
    for (const LoweredOperand& operand : *operands)
      if (is_memory(operand)) return operand.chunk % shape.chunks;
  return 0;
}

using Stream = std::pair<Rank, Rank>;  // from, to

std::map<Stream, std::vector<End>> collect(std::span<const LoweredProgram> programs, bool sent) {
  std::map<Stream, std::vector<End>> ends;
  for (const LoweredProgram& program : programs)
    for (std::size_t s = 0; s < program.steps.size(); ++s) {
      const LoweredStep& step = program.steps[s];
      for (const LoweredOperand& operand : sent ? step.destinations : step.sources) {
        if (is_memory(operand)) continue;
        const Rank peer = program.peers[at(operand.stream)];
        const Stream stream = sent ? Stream{program.rank, peer} : Stream{peer, program.rank};
        ends[stream].push_back(
            {&operand, program.rank, static_cast<int>(s), position_of(program.shape, step)});
      }
    }
  return ends;
}

std::string compare(const ScheduleShape& shape, const End& sent, const End& received) {
  const LoweredOperand& a = *sent.operand;
  const LoweredOperand& b = *received.operand;
  if (a.count != b.count) return fmt::format("{} chunks against {}", a.count, b.count);
  if (sent.position != received.position)
    return fmt::format("position {} against {}", sent.position, received.position);
  if (a.direct != b.direct) return "different direct forms";
  if (a.direct == DirectForm::none) return {};
  if (a.mine == b.mine) return "both ends, or none, say that it is their memory";
  if (!same_range(a, b)) return describe(a) + " against " + describe(b);
  if (a.at_arrival != b.at_arrival || a.beside != b.beside)
    return "not ready at arrival alike at both ends";
  if (!in_range(shape, a)) return describe(a) + " lies outside of its buffer";
  if (a.direct == DirectForm::push && a.buffer == Buffer::input)
    return "pushed into " + describe(a);
  if (a.chunk % shape.chunks != sent.position) return describe(a) + " is at another position";
  return {};
}

std::string check_ends(std::span<const LoweredProgram> programs) {
  const auto sent = collect(programs, true);
  const auto received = collect(programs, false);
  for (const auto& [stream, ends] : sent) {
    const auto other = received.find(stream);
    const std::size_t taken = other == received.end() ? 0 : other->second.size();
    if (taken != ends.size())
      return fmt::format("rank {} sends {} messages to rank {}, which receives {}", stream.first,
                         ends.size(), stream.second, taken);
    for (std::size_t k = 0; k < taken; ++k)
      if (std::string wrong = compare(programs[0].shape, ends[k], other->second[k]); !wrong.empty())
        return fmt::format("message {} from rank {} (step {}) to rank {} (step {}): {}", k,
                           stream.first, ends[k].step, stream.second, other->second[k].step, wrong);
  }
  for (const auto& [stream, ends] : received)
    if (sent.find(stream) == sent.end())
      return fmt::format("rank {} receives {} messages from rank {}, which sends none",
                         stream.second, ends.size(), stream.first);
  return {};
}

Verdict fail(Fault fault, std::string reason) { return Verdict{fault, std::move(reason), 0, 0}; }

}  // namespace

std::string describe_step(Rank rank, int step, StepKind kind) {
  return fmt::format("rank {} step {} ({})", rank, step,
                     kind == StepKind::copy ? "copy" : "reduce");
}

std::string describe_chunks(Buffer buffer, int first, int count) {
  if (count == 1) return fmt::format("{}[{}]", to_string(buffer), first);
  return fmt::format("{}[{}..{}]", to_string(buffer), first, first + count - 1);
}

LoweredProgram as_lowered(const ScheduleShape& shape, Rank rank, const ExpandedProgram& program) {
  LoweredProgram lowered;
  lowered.shape = shape;
  lowered.rank = rank;
  auto stream_to = [&](Rank peer) {
    const auto known = std::find(lowered.peers.begin(), lowered.peers.end(), peer);
    const auto stream = static_cast<int>(known - lowered.peers.begin());
    if (known == lowered.peers.end()) {
      lowered.peers.push_back(peer);
      lowered.sends.push_back(0);
      lowered.receives.push_back(0);
    }
    return stream;
  };
  auto convert = [&](const ExpandedOperand& operand, std::vector<std::int32_t>& messages) {
    LoweredOperand result;
    result.kind = operand.kind;
    result.count = operand.count;
    if (operand.kind == Operand::Kind::chunks) {
      result.buffer = operand.buffer;
      result.chunk = operand.index;
      return result;
    }
    result.stream = stream_to(operand.index);
    result.ordinal = messages[at(result.stream)]++;
    return result;
  };
  for (const ExpandedStep& step : program) {
    LoweredStep& out = lowered.steps.emplace_back();
    out.kind = step.kind;
    out.finish = step.finish;
    for (const ExpandedOperand& operand : step.sources)
      out.sources.push_back(convert(operand, lowered.receives));
    for (const ExpandedOperand& operand : step.destinations)
      out.destinations.push_back(convert(operand, lowered.sends));
    for (int earlier : step.depends) out.depends.push_back({earlier, false});
  }
  return lowered;
}

Verdict check_form(std::span<const LoweredProgram> programs) {
  if (programs.empty()) return fail(Fault::malformed, "there is no program");
  const ScheduleShape& shape = programs[0].shape;
  if (Status status = check_shape(shape); !status.ok())
    return fail(Fault::malformed, status.message());
  if (programs.size() != at(shape.ranks))
    return fail(Fault::malformed,
                fmt::format("{} programs for {} ranks", programs.size(), shape.ranks));
  for (std::size_t r = 0; r < programs.size(); ++r) {
    if (programs[r].rank != static_cast<Rank>(r) || programs[r].shape != shape)
      return fail(Fault::malformed, fmt::format("program {} is for another rank or shape", r));
    if (std::string wrong = StepForm(programs[r]).check_all(); !wrong.empty())
      return fail(Fault::malformed, wrong);
  }
  if (std::string wrong = check_ends(programs); !wrong.empty())
    return fail(Fault::unmatched, wrong);
  return {};
}

}  // namespace tutti::collectives
