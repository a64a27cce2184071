// Joins programs by their messages.
#include "collectives/verifier_flow.hpp"

#include <fmt/format.h>

#include <map>

#include "base/assert.hpp"
#include "collectives/contract.hpp"

namespace tutti::collectives {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Joiner {
 public:
  Joiner(std::span<const LoweredProgram> programs, const Addressability& addressable, bool in_place)
      : programs_(programs),
        addressable_(addressable),
        flow_{programs[0].shape, FlowMemory(programs[0].shape, in_place), {}, {}, {}, {}} {}

  Flow take() {
    number_messages();
    for (const LoweredProgram& program : programs_) find_wanted(program);
    for (const LoweredProgram& program : programs_) {
      flow_.first_step.push_back(static_cast<int>(flow_.steps.size()));
      for (const LoweredStep& step : program.steps) add(program, step);
    }
    flow_.first_step.push_back(static_cast<int>(flow_.steps.size()));
    for (std::size_t r = 0; r < programs_.size(); ++r) add_depends(programs_[r]);
    return std::move(flow_);
  }

 private:
  void number_messages() {
    for (const LoweredProgram& program : programs_)
      for (std::size_t k = 0; k < program.peers.size(); ++k) {
        first_message_[{program.rank, program.peers[k]}] = static_cast<int>(flow_.messages.size());
        for (int ordinal = 0; ordinal < program.sends[k]; ++ordinal) {
          FlowMessage message;
          message.from = program.rank;
          message.to = program.peers[k];
          message.ordinal = ordinal;
          message.previous = ordinal == 0 ? -1 : static_cast<int>(flow_.messages.size()) - 1;
          flow_.messages.push_back(message);
        }
      }
  }

  // What each peer would touch of the rank's memory.
  void find_wanted(const LoweredProgram& program) {
    for (const LoweredStep& step : program.steps)
      for (const auto* operands : {&step.sources, &step.destinations})
        for (const LoweredOperand& operand : *operands)
          if (operand.kind == Operand::Kind::message && operand.mine)
            wanted_[{program.rank, program.peers[at(operand.stream)]}].add(operand.buffer);
  }

  Side side(Rank rank, Rank peer) const {
    const auto found = wanted_.find({rank, peer});
    return {addressable_.of(rank, peer), found == wanted_.end() ? Addressable() : found->second};
  }

  Route route_of(const LoweredOperand& operand, Rank from, Rank to) const {
    if (!travels_direct(operand.direct, operand.buffer, side(from, to), side(to, from)))
      return Route::staged;
    return operand.direct == DirectForm::pull ? Route::pull : Route::push;
  }

  void add(const LoweredProgram& program, const LoweredStep& step) {
    const int number = static_cast<int>(flow_.steps.size()) - flow_.first_step.back();
    const int id = static_cast<int>(flow_.steps.size());
    FlowStep& out = flow_.steps.emplace_back();
    out.rank = program.rank;
    out.number = number;
    out.kind = step.kind;
    out.finish = step.finish;
    out.count = step.sources[0].count;
    out.landing = step.landing;
    for (const LoweredOperand& operand : step.sources)
      out.sources.push_back(convert(program, operand, id, false));
    for (const LoweredOperand& operand : step.destinations)
      out.destinations.push_back(convert(program, operand, id, true));
  }

  FlowOperand convert(const LoweredProgram& program, const LoweredOperand& operand, int step,
                      bool sent) {
    FlowOperand out;
    Rank owner = program.rank;
    if (operand.kind == Operand::Kind::message) {
      const Rank peer = program.peers[at(operand.stream)];
      const auto stream = sent ? std::pair{program.rank, peer} : std::pair{peer, program.rank};
      out.message = first_message_.at(stream) + operand.ordinal;
      out.route = route_of(operand, stream.first, stream.second);
      FlowMessage& message = flow_.messages[at(out.message)];
      message.route = out.route;
      (sent ? message.sender : message.receiver) = step;
      if (!operand.mine) owner = peer;
      if (out.route == Route::staged) return out;
    }
    out.cells = static_cast<int>(flow_.cells.size());
    for (int k = 0; k < operand.count; ++k)
      flow_.cells.push_back(flow_.memory.cell(owner, operand.buffer, operand.chunk + k));
    return out;
  }

  void add_depends(const LoweredProgram& program) {
    const int first = flow_.first_step[at(program.rank)];
    for (std::size_t s = 0; s < program.steps.size(); ++s)
      for (const LoweredDependency& dependency : program.steps[s].depends) {
        FlowStep& step = flow_.steps[at(first) + s];
        const int earlier = first + dependency.step;
        const bool waived = dependency.fused && both_direct(flow_.steps[at(earlier)], step);
        (waived ? step.fused : step.depends).push_back(earlier);
      }
  }

  // Whether `earlier` offers something to the peer that `later` lets store directly.
  bool both_direct(const FlowStep& earlier, const FlowStep& later) const {
    for (const FlowOperand& sent : earlier.destinations)
      for (const FlowOperand& received : later.sources)
        if (sent.route == Route::pull && received.route == Route::push &&
            flow_.messages[at(sent.message)].to == flow_.messages[at(received.message)].from)
          return true;
    return false;
  }

  std::span<const LoweredProgram> programs_;
  const Addressability& addressable_;
  Flow flow_;
  std::map<std::pair<Rank, Rank>, int> first_message_;
  std::map<std::pair<Rank, Rank>, Addressable> wanted_;  // by owner and peer
};

}  // namespace

FlowMemory::FlowMemory(const ScheduleShape& shape, bool in_place)
    : shape_(shape),
      in_place_(in_place),
      outputs_(contract_chunks(shape, Buffer::output)),
      inputs_(contract_chunks(shape, Buffer::input)),
      cells_per_rank_(outputs_ + inputs_ + contract_chunks(shape, Buffer::scratch)) {}

int FlowMemory::cell(Rank rank, Buffer buffer, int chunk) const {
  const int base = rank * cells_per_rank_;
  if (buffer == Buffer::output) return base + chunk;
  if (buffer == Buffer::scratch) return base + outputs_ + inputs_ + chunk;
  const int alias = in_place_ ? contract_alias(shape_, rank, chunk) : -1;
  return base + (alias >= 0 ? alias : outputs_ + chunk);
}

std::string FlowMemory::describe(int cell) const {
  const int local = cell % cells_per_rank_;
  const Buffer buffer = local < outputs_             ? Buffer::output
                        : local < outputs_ + inputs_ ? Buffer::input
                                                     : Buffer::scratch;
  const int first = buffer == Buffer::output  ? 0
                    : buffer == Buffer::input ? outputs_
                                              : outputs_ + inputs_;
  return fmt::format("{}[{}] of rank {}", to_string(buffer), local - first, owner(cell));
}

Flow join(std::span<const LoweredProgram> programs, const Addressability& addressable,
          bool in_place) {
  TUTTI_ASSERT(programs.size() == at(addressable.ranks()), "arrival records of all ranks");
  return Joiner(programs, addressable, in_place).take();
}

namespace {

// Whether the pass stores into this destination; what lands by itself is there already.
bool is_stored(const FlowStep& step, std::size_t destination) {
  if (step.destinations[destination].route == Route::pull) return false;
  const bool lands = step.kind == StepKind::copy && step.sources[0].route == Route::push;
  return !lands || static_cast<int>(destination) != step.landing;
}

}  // namespace

bool moves_content(const FlowStep& step) {
  if (step.kind == StepKind::reduce) return true;
  for (std::size_t d = 0; d < step.destinations.size(); ++d)
    if (is_stored(step, d)) return true;
  return false;
}

std::vector<FlowAccess> accesses_of(const FlowStep& step) {
  std::vector<FlowAccess> accesses;
  if (!moves_content(step)) return accesses;
  for (const FlowOperand& source : step.sources)
    if (source.route != Route::staged) accesses.push_back({&source, false});
  for (std::size_t d = 0; d < step.destinations.size(); ++d)
    if (is_stored(step, d) && step.destinations[d].route != Route::staged)
      accesses.push_back({&step.destinations[d], true});
  return accesses;
}

int self_conflict(const Flow& flow, const FlowStep& step) {
  const std::vector<FlowAccess> accesses = accesses_of(step);
  for (std::size_t a = 0; a < accesses.size(); ++a)
    for (std::size_t b = a + 1; b < accesses.size(); ++b) {
      if (!accesses[a].write && !accesses[b].write) continue;
      const bool both_write = accesses[a].write && accesses[b].write;
      for (int i = 0; i < step.count; ++i)
        for (int k = 0; k < step.count; ++k) {
          const int cell = flow.cells_of(*accesses[a].operand)[i];
          if (cell == flow.cells_of(*accesses[b].operand)[k] && (both_write || i != k)) return cell;
        }
    }
  return -1;
}

}  // namespace tutti::collectives
