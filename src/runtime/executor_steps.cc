// What one step does: the six points of collectives/lowered.hpp, in their order.
#include <algorithm>

#include <fmt/format.h>

#include "base/assert.hpp"
#include "runtime/executor.hpp"
#include "runtime/frame_tag.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti::runtime {
namespace {

using collectives::DirectForm;
using collectives::ElementRange;
using collectives::LoweredDependency;
using collectives::LoweredOperand;
using collectives::LoweredStep;

std::size_t index(int value) { return static_cast<std::size_t>(value); }

bool is_message(const LoweredOperand& operand) { return operand.kind == Operand::Kind::message; }

// Any operand in memory says how long the messages of a step are; there always is one.
const LoweredOperand& memory_operand(const LoweredStep& step) {
  if (step.landing >= 0) return step.destinations[index(step.landing)];
  return *std::find_if_not(step.sources.begin(), step.sources.end(), is_message);
}

}  // namespace

// The same question is answered alike at both ends: each end's bits come from the arrival record
// of the rank whose memory would be touched.
bool Executor::direct(const LoweredOperand& operand) const {
  if (operand.direct == DirectForm::none) return false;
  const Peer& peer = peers_[index(operand.stream)];
  const unsigned bits = operand.mine ? peer.mine_addressable : peer.theirs_addressable;
  return (bits >> static_cast<unsigned>(operand.buffer)) & 1U;
}

std::uint64_t Executor::number_sent(const Attempt& attempt, const LoweredOperand& o) const {
  const auto per_slice = static_cast<std::uint64_t>(program_->sends[index(o.stream)]);
  return stream(attempt.channel, o.stream).sent_before + attempt.slice * per_slice +
         static_cast<std::uint64_t>(o.ordinal);
}

std::uint64_t Executor::number_received(const Attempt& attempt, const LoweredOperand& o) const {
  const auto per_slice = static_cast<std::uint64_t>(program_->receives[index(o.stream)]);
  return stream(attempt.channel, o.stream).received_before + attempt.slice * per_slice +
         static_cast<std::uint64_t>(o.ordinal);
}

bool Executor::is_next_to_send(const Attempt& attempt, const LoweredOperand& o) const {
  const Stream& s = stream(attempt.channel, o.stream);
  return s.sent_before + s.sent == number_sent(attempt, o);
}

bool Executor::is_next_to_take(const Attempt& attempt, const LoweredOperand& o) const {
  const Peer& peer = peers_[index(o.stream)];
  const std::uint64_t place =
      peer.place.empty() ? static_cast<std::uint64_t>(o.ordinal) : peer.place[index(o.ordinal)];
  return stream(attempt.channel, o.stream).taken == attempt.slice * peer.taken_per_slice + place;
}

bool Executor::is_next_to_grant(const Attempt& attempt, const LoweredOperand& o) const {
  const Peer& peer = peers_[index(o.stream)];
  return stream(attempt.channel, o.stream).granted ==
         attempt.slice * peer.pushed_per_slice + peer.place[index(o.ordinal)];
}

std::size_t Executor::message_bytes(const Attempt& attempt) const {
  const LoweredOperand& memory = memory_operand(*attempt.step);
  std::size_t elements = 0;
  for (int piece = 0; piece < memory.count; ++piece)
    elements += geometry_.of(memory.chunk + piece, attempt.channel, attempt.slice).count;
  return elements * element_bytes_;
}

bool Executor::try_step(Attempt& attempt) {
  bool moved = false;
  if (*attempt.phase == Phase::waiting) {
    if (!dependencies_complete(attempt) || !grant_landings(attempt)) return false;
    *attempt.phase = Phase::granted;
    moved = true;
  }
  if (*attempt.phase == Phase::granted) {
    if (!sources_ready(attempt) || !destinations_ready(attempt)) return moved;
    run(attempt);
    finish_messages(attempt);
    *attempt.phase = Phase::offered;
    moved = true;
  }
  if (*attempt.phase == Phase::offered && offers_taken(attempt)) {
    *attempt.phase = Phase::complete;
    moved = true;
  }
  return moved;
}

bool Executor::dependencies_complete(const Attempt& attempt) const {
  for (const LoweredDependency& dependency : attempt.step->depends) {
    if (attempt.phases[dependency.step] == Phase::complete) continue;
    const LoweredStep& earlier = program_->steps[index(dependency.step)];
    const bool waived = dependency.fused && direct(attempt.step->sources[0]) &&
                        direct(earlier.destinations[0]) &&
                        attempt.phases[dependency.step] == Phase::offered;
    if (!waived) return false;
  }
  return true;
}

// Point 2. A step has at most one push source: only copies can land, and they have one source.
bool Executor::grant_landings(Attempt& attempt) {
  for (const LoweredOperand& source : attempt.step->sources) {
    if (!is_message(source)) continue;
    // Whether it is pushed is known once the peer has arrived (and has been told of our memory).
    const Peer& peer = peers_[index(source.stream)];
    if (!peer.settled) return false;
    if (source.direct != DirectForm::push || !direct(source)) continue;
    if (!is_next_to_grant(attempt, source)) return false;
    Stream& s = stream(attempt.channel, source.stream);
    s.endpoint->signal(Signal::granted, number_received(attempt, source) + 1);
    ++s.granted;
  }
  return true;
}

// Point 3, reading. Fills frames_ with the payloads of staged sources.
bool Executor::sources_ready(const Attempt& attempt) {
  const auto& sources = attempt.step->sources;
  frames_.assign(sources.size(), nullptr);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const LoweredOperand& source = sources[i];
    if (!is_message(source)) continue;
    Stream& s = stream(attempt.channel, source.stream);
    const bool pushed = source.direct == DirectForm::push && direct(source);
    if (!pushed && !is_next_to_take(attempt, source)) return false;
    if (direct(source)) {
      if (s.endpoint->signalled(Signal::produced) <= number_received(attempt, source)) return false;
      continue;
    }
    Frame frame;
    if (!s.endpoint->peek(frame)) return false;
    std::span<const std::byte> payload = frame.payload;
    if (static_cast<FrameTag>(frame.tag) == FrameTag::arrival_with_data)
      payload = payload.subspan(std::min(payload.size(), kArrivalBytes));
    if (payload.size() != message_bytes(attempt) ||
        static_cast<FrameTag>(frame.tag) == FrameTag::arrival) {
      fail(Status(StatusCode::mismatch,
                  fmt::format("rank {}: {}: rank {} sent a message of {} bytes (tag {}) where {} "
                              "were due",
                              transport_.rank(), to_string(call_.signature),
                              program_->peers[index(source.stream)], payload.size(), frame.tag,
                              message_bytes(attempt))));
      return false;
    }
    // Zero-length payloads still count as there.
    static constexpr std::byte kNothing{};
    frames_[i] = payload.data() != nullptr ? payload.data() : &kNothing;
  }
  return true;
}

// Point 3, writing. Fills rooms_ with the rooms of staged destinations.
bool Executor::destinations_ready(const Attempt& attempt) {
  const auto& destinations = attempt.step->destinations;
  rooms_.assign(destinations.size(), nullptr);
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const LoweredOperand& destination = destinations[i];
    if (!is_message(destination)) continue;
    Peer& peer = peers_[index(destination.stream)];
    if (call_.signature.direct && (!peer.arrival_sent || (!destination.mine && !peer.arrival_seen)))
      return false;
    Stream& s = stream(attempt.channel, destination.stream);
    if (!is_next_to_send(attempt, destination)) return false;
    if (direct(destination)) {
      if (destination.direct == DirectForm::push &&
          s.endpoint->signalled(Signal::granted) <= number_sent(attempt, destination))
        return false;
      continue;
    }
    std::size_t bytes = message_bytes(attempt);
    if (!peer.arrival_sent) {
      // The first message of a call carries the arrival record if both fit one frame.
      if (attempt.channel != 0 || bytes + kArrivalBytes > transport_.frame_bytes_max()) {
        if (!send_arrival(destination.stream)) return false;
      } else {
        bytes += kArrivalBytes;
      }
    }
    const std::span<std::byte> room = s.endpoint->reserve(bytes);
    if (room.data() == nullptr) return false;
    rooms_[i] = room.data();
    if (!peer.arrival_sent) {
      encode(Arrival{call_.signature, {}}, room);
      rooms_[i] += kArrivalBytes;
    }
  }
  return true;
}

// Point 4. Chunks of a range need not be adjacent (channels and slices cut each of them), so a
// message is a sequence of pieces.
void Executor::run(const Attempt& attempt) {
  const LoweredOperand& memory = memory_operand(*attempt.step);
  std::size_t before = 0;
  for (int piece = 0; piece < memory.count; ++piece) {
    const std::size_t bytes =
        geometry_.of(memory.chunk + piece, attempt.channel, attempt.slice).count * element_bytes_;
    if (bytes > 0) run_piece(attempt, piece, before);
    before += bytes;
  }
}

void Executor::run_piece(const Attempt& attempt, int piece, std::size_t message_bytes_before) {
  const LoweredStep& step = *attempt.step;
  std::size_t elements = 0;
  auto offset_of = [&](const LoweredOperand& o) {
    const ElementRange range = geometry_.of(o.chunk + piece, attempt.channel, attempt.slice);
    elements = range.count;
    return range.begin * element_bytes_;
  };
  auto mine = [&](const LoweredOperand& o) {
    return const_cast<std::byte*>(own_memory(o.buffer)) + offset_of(o);
  };
  auto theirs = [&](const LoweredOperand& o) {
    return peers_[index(o.stream)].memory[static_cast<std::size_t>(o.buffer)] + offset_of(o);
  };
  source_pointers_.clear();
  for (std::size_t i = 0; i < step.sources.size(); ++i) {
    const LoweredOperand& source = step.sources[i];
    if (!is_message(source) || (direct(source) && source.direct == DirectForm::push))
      source_pointers_.push_back(mine(source));
    else if (direct(source))
      source_pointers_.push_back(theirs(source));
    else
      source_pointers_.push_back(frames_[i] + message_bytes_before);
  }
  destination_pointers_.clear();
  for (std::size_t i = 0; i < step.destinations.size(); ++i) {
    const LoweredOperand& destination = step.destinations[i];
    std::byte* pointer = nullptr;
    if (!is_message(destination))
      pointer = mine(destination);
    else if (!direct(destination))
      pointer = rooms_[i] + message_bytes_before;
    else if (destination.direct == DirectForm::push)
      pointer = theirs(destination);
    else
      continue;  // only offered: the peer reads it where it is
    // A copy onto itself: in place, or pushed where it belongs.
    if (step.kind == StepKind::copy && pointer == source_pointers_[0]) continue;
    destination_pointers_.push_back(pointer);
  }
  if (destination_pointers_.empty()) return;
  const auto stores = streaming_ ? kernels::StoreHint::streaming : kernels::StoreHint::cached;
  if (step.kind == StepKind::copy) {
    kernels::copy(source_pointers_[0], destination_pointers_, elements * element_bytes_, stores);
    return;
  }
  const bool divides = step.finish && call_.signature.op == ReduceOp::avg;
  kernels::reduce({call_.signature.type, call_.signature.op, source_pointers_,
                   destination_pointers_, elements, divides ? program_->shape.ranks : 1, stores});
}

// Point 5.
void Executor::finish_messages(Attempt& attempt) {
  for (const LoweredOperand& source : attempt.step->sources) {
    if (!is_message(source)) continue;
    Stream& s = stream(attempt.channel, source.stream);
    if (direct(source) && source.direct == DirectForm::push) continue;
    if (direct(source))
      s.endpoint->signal(Signal::taken, number_received(attempt, source) + 1);
    else
      s.endpoint->release();
    ++s.taken;
  }
  const std::size_t bytes = message_bytes(attempt);
  for (const LoweredOperand& destination : attempt.step->destinations) {
    if (!is_message(destination)) continue;
    Stream& s = stream(attempt.channel, destination.stream);
    if (direct(destination)) {
      s.endpoint->signal(Signal::produced, number_sent(attempt, destination) + 1);
    } else {
      Peer& peer = peers_[index(destination.stream)];
      const bool with_arrival = !peer.arrival_sent;
      const FrameTag tag = with_arrival ? FrameTag::arrival_with_data : FrameTag::data;
      s.endpoint->commit(static_cast<std::uint32_t>(tag),
                         bytes + (with_arrival ? kArrivalBytes : 0));
      peer.arrival_sent = true;
    }
    ++s.sent;
  }
}

// Point 6.
bool Executor::offers_taken(const Attempt& attempt) {
  for (const LoweredOperand& destination : attempt.step->destinations) {
    if (!is_message(destination) || !direct(destination)) continue;
    if (destination.direct != DirectForm::pull) continue;
    Stream& s = stream(attempt.channel, destination.stream);
    if (s.endpoint->signalled(Signal::taken) <= number_sent(attempt, destination)) return false;
  }
  return true;
}

}  // namespace tutti::runtime
