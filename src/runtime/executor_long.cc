// Long messages over a transport that moves bytes between itself and memory (sockets): what is only
// copied needs no place in the transport on its way, and what is added up need not be there as a
// whole: its beginning is still in the caches when it is summed, and the rest comes meanwhile. Such
// a step takes the same points as any other (lowered.hpp); the transport's call is its point 4.
//
// Only what one message in one piece of memory is sent from, or received into: with more peers to
// send the same to, one of them might have no room when another one has been sent to.
#include <algorithm>

#include "runtime/executor.hpp"
#include "runtime/frame_tag.hpp"

namespace tutti::runtime {
namespace {

// Below, a copy costs less than the system calls that spare it.
constexpr std::size_t kLongBytes = std::size_t{16} << 10;

// Of a message that is summed as it comes, so much at a time. Source: a Xeon of 2 MiB caches,
// reduce_scatter of 1 MiB by two ranks, us: 291 by whole messages, 266 by 32 KiB, 258 by this and
// 260 by its double; the bare sockets and their sum 242.
constexpr std::size_t kSumBytes = std::size_t{64} << 10;

bool is_own(const CallOperand& operand) { return !operand.is_message; }

std::size_t staged_among(std::span<const CallOperand> operands) {
  return static_cast<std::size_t>(
      std::count_if(operands.begin(), operands.end(),
                    [](const CallOperand& o) { return o.is_message && o.way == Way::staged; }));
}

}  // namespace

bool Executor::is_long(std::size_t bytes) const { return moves_itself_ && bytes >= kLongBytes; }

// If its message is a long one.
bool Executor::takes_long(const CallStep& step) const {
  const Operands destinations = program_->destinations(step);
  return step.kind == StepKind::copy && step.pieces == 1 && destinations.size() == 1 &&
         program_->sources(step)[0].is_message && !destinations[0].is_message;
}

// If the one message that it adds up is a long one.
bool Executor::sums_long(const CallStep& step) const {
  const Operands sources = program_->sources(step);
  const Operands destinations = program_->destinations(step);
  return step.kind == StepKind::reduce && step.pieces == 1 && staged_among(sources) == 1 &&
         std::count_if(sources.begin(), sources.end(), is_own) + 1 ==
             static_cast<std::ptrdiff_t>(sources.size()) &&
         std::all_of(destinations.begin(), destinations.end(), is_own);
}

void Executor::look_for_long(Attempt& attempt) {
  const CallStep& step = attempt.step;
  if (!is_long(attempt.bytes)) return;
  attempt.takes_long = takes_long(step);
  attempt.sums_long = sums_long(step);
  attempt.sends_long = step.kind == StepKind::copy && step.pieces == 1 &&
                       !program_->sources(step)[0].is_message &&
                       staged_among(program_->destinations(step)) == 1;
}

// Whose first message of the call is one: the call's record, which is its head, is then looked at
// before the rest is read.
void Executor::find_long_beginnings() {
  for (Peer& peer : peers_) peer.begins_long = false;
  if (!moves_itself_ || call_.signature.direct || call_.blocks != nullptr) return;
  for (const CallStep& step : program_->steps()) {
    if (!takes_long(step) && !sums_long(step)) continue;
    const Operands sources = program_->sources(step);
    const CallOperand& source = *std::find_if_not(sources.begin(), sources.end(), is_own);
    const std::int32_t chunk = program_->operand(step.in_memory).chunk;
    if (source.ordinal == 0 && is_long(geometry_.of(chunk, 0, 0).count * element_bytes_))
      peers_[source.stream].begins_long = true;
  }
}

// True when the step's message, if it is one of these, has been moved.
bool Executor::move_long(Attempt& attempt) {
  if (attempt.sends_long) return send_long(attempt);
  if (attempt.sums_long) return sum_long(attempt);
  return !attempt.takes_long || take_long(attempt);
}

// Of the call's record, which a peer's first message of the call may have before its data.
std::size_t Executor::bytes_before(const Attempt& attempt, const CallOperand& message) const {
  const bool is_first = attempt.channel == 0 && attempt.slice == 0 && message.ordinal == 0;
  return is_first && peers_[message.stream].record_leads ? record_room(attempt.bytes) : 0;
}

// What comes instead of the data is looked at as ever.
bool Executor::take_long(Attempt& attempt) {
  const CallOperand& source = program_->sources(attempt.step)[0];
  const CallOperand& destination = program_->destinations(attempt.step)[0];
  Endpoint& endpoint = *stream(attempt.channel, source.stream).endpoint;
  const std::span<std::byte> place(memory_of(attempt, destination), attempt.bytes);
  const std::size_t head = bytes_before(attempt, source);
  const FrameTag tag = head > 0 ? FrameTag::arrival_with_data : FrameTag::data;
  const Taken taken = endpoint.take(static_cast<std::uint32_t>(tag), head, place);
  if (taken != Taken::other) return taken == Taken::frame;
  attempt.takes_long = false;
  return sources_ready(attempt) && destinations_ready(attempt);
}

// Adds up what has come of the message. What comes instead of it, or is not as long, shows at the
// end at the latest, and ends the call: then what was added up counts for nothing.
bool Executor::sum_long(Attempt& attempt) {
  const Operands sources = program_->sources(attempt.step);
  const auto message = std::find_if_not(sources.begin(), sources.end(), is_own);
  Stream& s = stream(attempt.channel, message->stream);
  const std::size_t head = bytes_before(attempt, *message);
  Place& place = places_[static_cast<std::size_t>(message - sources.begin())];
  const std::size_t at_a_time = std::max<std::size_t>(1, kSumBytes / element_bytes_);
  while (s.summed < attempt.elements) {
    const std::size_t next = std::min(attempt.elements, s.summed + at_a_time);
    const std::size_t needed = head + next * element_bytes_;
    Frame frame;
    if (!s.endpoint->peek_head(needed, frame)) return false;
    if (frame.payload.size() < needed) break;
    place = {const_cast<std::byte*>(frame.payload.data()) + head, -1};
    run_piece(attempt, 0, 0, next - s.summed, s.summed);
    s.summed = next;
  }
  std::span<const std::byte> payload;
  if (!find_payload(attempt.channel, message->stream, attempt.bytes, payload)) return false;
  s.summed = 0;
  return true;
}

// As reserve_room() and commit_message().
bool Executor::send_long(Attempt& attempt) {
  const Operands destinations = program_->destinations(attempt.step);
  const CallOperand& destination =
      *std::find_if(destinations.begin(), destinations.end(),
                    [](const CallOperand& o) { return o.is_message && o.way == Way::staged; });
  const auto before = record_bytes(attempt.channel, destination.stream, attempt.bytes);
  if (!before) return false;
  const FrameTag tag = *before > 0 ? FrameTag::arrival_with_data : FrameTag::data;
  const std::byte* body = memory_of(attempt, program_->sources(attempt.step)[0]);
  Endpoint& endpoint = *stream(attempt.channel, destination.stream).endpoint;
  const auto head = *before > 0 ? record_before(attempt.bytes) : std::span<const std::byte>();
  if (!endpoint.send(static_cast<std::uint32_t>(tag), head, {body, attempt.bytes})) return false;
  peers_[destination.stream].arrival_sent = true;
  return true;
}

// Where the one chunk of an operand in the rank's own memory lies. Requires  one piece.
std::byte* Executor::memory_of(const Attempt& attempt, const CallOperand& operand) const {
  if (call_.blocks != nullptr)
    return call_.blocks->at(operand.buffer, operand.chunk).memory +
           attempt.slice * slice_elements_ * element_bytes_;
  return own_memory(operand.buffer) +
         geometry_.of(operand.chunk, attempt.channel, attempt.slice).begin * element_bytes_;
}

}  // namespace tutti::runtime
