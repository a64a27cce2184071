// Writes the instructions of each rank down, in the order that serves all mixtures of ways.
#include "runtime/gpu/encode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/try.hpp"
#include "runtime/gpu/encode_order.hpp"

namespace tutti::runtime::gpu {
namespace {

using collectives::Addressable;
using collectives::DirectForm;
using collectives::LoweredDependency;
using collectives::LoweredOperand;
using collectives::LoweredProgram;
using collectives::LoweredStep;

// Along the canonical tree, so many sources are folded one after the other.
constexpr std::size_t kChainSources = 3;

std::uint32_t narrow(std::size_t value) { return static_cast<std::uint32_t>(value); }
std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

std::uint32_t bits_of(const Addressable& buffers) {
  return (buffers.input ? 1U : 0U) | (buffers.output ? 2U : 0U) | (buffers.scratch ? 4U : 0U);
}

Status check(const LoweredProgram& program) {
  const auto refuse = [&](std::size_t step, const std::string& reason) {
    return Status(StatusCode::unsupported, fmt::format("rank {} step {}: {}, which a device does "
                                                       "not do; use another algorithm",
                                                       program.rank, step, reason));
  };
  const ScheduleShape& shape = program.shape;
  const auto parts = static_cast<std::uint32_t>(std::max(shape.chunks, shape.message_chunks_max));
  if (parts >= kPartsMax) return refuse(0, fmt::format("blocks are cut into {} chunks", parts));
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const LoweredStep& step = program.steps[s];
    const std::size_t operands = step.sources.size() + step.destinations.size();
    if (operands > kOperandsMax) return refuse(s, fmt::format("it has {} operands", operands));
    if (program.ordered && step.kind == StepKind::reduce && step.sources.size() > kChainSources)
      return refuse(s, fmt::format("it folds {} sources along a tree", step.sources.size()));
  }
  return Status();
}

class Encoder {
 public:
  explicit Encoder(const LoweredProgram& program) : program_(program) {
    for (std::size_t p = 0; p < program.peers.size(); ++p)
      peers_.push_back({narrow(at(program.peers[p])), narrow(at(program.sends[p])),
                        narrow(at(program.receives[p])), 0, 0});
    for (const LoweredStep& step : program.steps) note_messages(step);
  }

  EncodedProgram encode(std::span<const Event> events) {
    for (const Event& event : events) {
      if (event.grants)
        add_grant(event.step);
      else
        add_step(event.step);
    }
    add_end();
    return write();
  }

 private:
  using Awaits = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>;

  void note_messages(const LoweredStep& step) {
    for (const auto* operands : {&step.sources, &step.destinations})
      for (const LoweredOperand& operand : *operands) {
        if (operand.kind != Operand::Kind::message) continue;
        const bool sent = operands == &step.destinations;
        auto& buffers = sent ? sent_buffers_ : received_buffers_;
        buffers[{operand.stream, operand.ordinal}] = operand.buffer;
        if (operand.direct == DirectForm::none) continue;
        Addressable touched;
        touched.add(operand.buffer);
        ProgramPeer& peer = peers_[at(operand.stream)];
        (operand.mine ? peer.ours : peer.theirs) |= bits_of(touched);
      }
  }

  DeviceOperand convert(const LoweredOperand& operand, bool sent) const {
    DeviceOperand result;
    result.buffer = static_cast<std::uint8_t>(operand.buffer);
    result.chunk = narrow(at(operand.chunk));
    if (operand.kind == Operand::Kind::chunks) return result;
    result.kind = OperandKind::message;
    result.form = static_cast<Direct>(operand.direct);
    result.peer = narrow(at(operand.stream));
    result.ordinal = narrow(at(operand.ordinal));
    if (!operand.at_arrival) return result;
    result.ready = kReadyAtArrival;
    if (operand.beside < 0) return result;
    // That message goes the other way.
    const auto& others = sent ? received_buffers_ : sent_buffers_;
    const auto buffer = static_cast<int>(others.at({operand.stream, operand.beside}));
    result.ready = static_cast<std::uint8_t>(kReadyAtArrival | (buffer + 1) << kReadyBesideShift);
    return result;
  }

  // What `step` offers, for those that must wait until it has been taken: the last one of each peer
  // and buffer, because messages are taken in order.
  static void collect_offers(const LoweredStep& step, Awaits& awaits) {
    for (const LoweredOperand& sent : step.destinations) {
      if (sent.kind != Operand::Kind::message || sent.direct != DirectForm::pull) continue;
      std::uint32_t& last =
          awaits[{narrow(at(sent.stream)), static_cast<std::uint32_t>(sent.buffer)}];
      last = std::max(last, narrow(at(sent.ordinal)));
    }
  }

  void write_awaits(Instruction& instruction, const Awaits& awaits) {
    instruction.awaits = narrow(awaits_.size());
    for (const auto& [place, ordinal] : awaits)
      awaits_.push_back({place.first, ordinal, place.second});
    instruction.awaits_end = narrow(awaits_.size());
  }

  void await_dependencies(Instruction& instruction, const LoweredStep& step, bool fused_too) {
    Awaits awaits;
    for (const LoweredDependency& dependency : step.depends)
      if (fused_too || !dependency.fused)
        collect_offers(program_.steps[at(dependency.step)], awaits);
    write_awaits(instruction, awaits);
  }

  // A step has at most one source that is pushed: only copies can land, and they have one source.
  void add_grant(std::int32_t number) {
    const LoweredStep& step = program_.steps[at(number)];
    Instruction instruction;
    instruction.kind = InstructionKind::grant;
    instruction.step = narrow(at(number));
    instruction.operands = narrow(operands_.size());
    operands_.push_back(convert(step.sources[0], false));
    await_dependencies(instruction, step, false);
    instructions_.push_back(instruction);
  }

  void add_step(std::int32_t number) {
    const LoweredStep& step = program_.steps[at(number)];
    Instruction instruction;
    instruction.kind =
        step.kind == StepKind::copy ? InstructionKind::copy : InstructionKind::reduce;
    instruction.finish = step.finish;
    instruction.pieces = static_cast<std::uint16_t>(step.sources[0].count);
    instruction.step = narrow(at(number));
    instruction.sources = static_cast<std::uint16_t>(step.sources.size());
    instruction.destinations = static_cast<std::uint16_t>(step.destinations.size());
    instruction.operands = narrow(operands_.size());
    for (const LoweredOperand& source : step.sources) operands_.push_back(convert(source, false));
    for (const LoweredOperand& destination : step.destinations)
      operands_.push_back(convert(destination, true));
    for (std::size_t i = instruction.operands; i < operands_.size(); ++i)
      if (operands_[i].kind == OperandKind::memory) instruction.chunk = operands_[i].chunk;
    await_dependencies(instruction, step, true);
    instructions_.push_back(instruction);
  }

  // Nobody leaves a call while a peer still reads what is the caller's again afterwards.
  void add_end() {
    Instruction instruction;
    instruction.kind = InstructionKind::await;
    instruction.step = narrow(program_.steps.size());
    Awaits awaits;
    for (const LoweredStep& step : program_.steps) collect_offers(step, awaits);
    write_awaits(instruction, awaits);
    instructions_.push_back(instruction);
  }

  template <typename T>
  static std::uint32_t append(std::vector<std::byte>& bytes, const std::vector<T>& table) {
    const std::size_t begin = bytes.size();
    bytes.resize(begin + table.size() * sizeof(T));
    if (!table.empty()) std::memcpy(bytes.data() + begin, table.data(), table.size() * sizeof(T));
    return narrow(begin);
  }

  EncodedProgram write() const {
    const ScheduleShape& shape = program_.shape;
    ProgramHeader header;
    header.rank = narrow(at(program_.rank));
    header.ranks = narrow(at(shape.ranks));
    header.chunks = narrow(at(shape.chunks));
    header.message_chunks_max = narrow(at(shape.message_chunks_max));
    header.scratch_blocks = narrow(at(shape.scratch_blocks));
    header.peer_count = narrow(peers_.size());
    header.instruction_count = narrow(instructions_.size());
    std::vector<std::byte> bytes(sizeof header);
    header.peers_at = append(bytes, peers_);
    header.instructions_at = append(bytes, instructions_);
    header.operands_at = append(bytes, operands_);
    header.awaits_at = append(bytes, awaits_);
    header.bytes = narrow(bytes.size());
    std::memcpy(bytes.data(), &header, sizeof header);
    std::vector<std::uint64_t> words((bytes.size() + 7) / 8);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    return EncodedProgram(std::move(words));
  }

  const LoweredProgram& program_;
  std::vector<ProgramPeer> peers_;
  std::vector<Instruction> instructions_;
  std::vector<DeviceOperand> operands_;
  std::vector<Await> awaits_;
  // Of every message, by stream and ordinal: the buffer that its direct form touches.
  std::map<std::pair<std::int32_t, std::int32_t>, Buffer> sent_buffers_;
  std::map<std::pair<std::int32_t, std::int32_t>, Buffer> received_buffers_;
};

}  // namespace

Result<std::vector<EncodedProgram>> encode(std::span<const LoweredProgram> programs) {
  for (const LoweredProgram& program : programs) TUTTI_TRY(check(program));
  const auto order = order_events(programs);
  TUTTI_TRY(order);
  std::vector<EncodedProgram> encoded;
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    encoded.push_back(Encoder(programs[rank]).encode((*order)[rank]));
  return encoded;
}

}  // namespace tutti::runtime::gpu
