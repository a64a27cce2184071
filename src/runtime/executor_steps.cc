// What one step does: the six points of collectives/lowered.hpp, in their order.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/assert.hpp"
#include "runtime/executor.hpp"
#include "runtime/frame_tag.hpp"

namespace tutti::runtime {
namespace {

using collectives::DirectForm;
using collectives::ElementRange;
using collectives::LoweredDependency;

// Of a message: below, a place in each peer's cells is as quick.
constexpr std::size_t kAlikeBytes = 4096;

std::size_t at(Way way) { return static_cast<std::size_t>(way); }

}  // namespace

std::uint64_t Executor::number_sent(const Attempt& attempt, const CallOperand& o) {
  return stream(attempt.channel, o.stream).sent_before +
         attempt.slice * program_->peers()[o.stream].sends.size() + o.ordinal;
}

std::uint64_t Executor::number_received(const Attempt& attempt, const CallOperand& o) {
  return stream(attempt.channel, o.stream).received_before +
         attempt.slice * program_->peers()[o.stream].receives.size() + o.ordinal;
}

// Of a directed stream in this call, where blocks differ in size.
std::uint64_t Executor::messages_before(std::span<const std::uint32_t> messages, std::size_t slice,
                                        std::uint32_t ordinal) const {
  std::uint64_t before = 0;
  for (std::uint32_t m = 0; m < messages.size(); ++m) {
    const std::size_t slices = operand_slices_[messages[m]];
    before += std::min(slices, slice + (m < ordinal ? 1 : 0));
  }
  return before;
}

// Whether the step has anything to do in its slice, where blocks differ in size.
bool Executor::reaches(const Attempt& attempt) const {
  return attempt.slice < operand_slices_[attempt.step.in_memory];
}

bool Executor::is_next_to_send(const Attempt& attempt, const CallOperand& o) {
  if (call_.blocks != nullptr)
    return stream(attempt.channel, o.stream).sent[at(o.way)] ==
           messages_before(program_->peers()[o.stream].sends, attempt.slice, o.ordinal);
  return stream(attempt.channel, o.stream).sent[at(o.way)] ==
         attempt.slice * program_->peers()[o.stream].sent[at(o.way)] + o.place;
}

bool Executor::is_next_to_receive(const Attempt& attempt, const CallOperand& o) {
  if (call_.blocks != nullptr)
    return stream(attempt.channel, o.stream).received[at(o.way)] ==
           messages_before(program_->peers()[o.stream].receives, attempt.slice, o.ordinal);
  return stream(attempt.channel, o.stream).received[at(o.way)] ==
         attempt.slice * program_->peers()[o.stream].received[at(o.way)] + o.place;
}

std::size_t Executor::piece_elements(const Attempt& attempt, int piece) const {
  const CallOperand& memory = program_->operand(attempt.step.in_memory);
  if (call_.blocks != nullptr)
    return elements_in_slice(call_.blocks->at(memory.buffer, memory.chunk + piece).count,
                             attempt.slice, slice_elements_);
  return geometry_.of(memory.chunk + piece, attempt.channel, attempt.slice).count;
}

void Executor::measure(Attempt& attempt) const {
  for (int piece = 0; piece < attempt.step.pieces; ++piece)
    attempt.elements += piece_elements(attempt, piece);
  attempt.bytes = attempt.elements * element_bytes_;
}

bool Executor::try_step(Attempt& attempt) {
  bool moved = false;
  if (call_.blocks != nullptr && !reaches(attempt)) {
    attempt.phase = Phase::complete;
    return true;
  }
  if (attempt.phase == Phase::waiting) {
    if (!dependencies_complete(attempt) || !grant_landings(attempt)) return false;
    attempt.phase = Phase::granted;
    moved = true;
  }
  if (attempt.phase == Phase::granted) {
    if (!turn_has_come(attempt)) return moved;
    measure(attempt);
    look_for_long(attempt);
    if (!sources_ready(attempt) || !destinations_ready(attempt)) return moved;
    if (!move_long(attempt)) return moved;
    run(attempt);
    if (!is_copied()) [[unlikely]]
      return moved;
    if (reads_peers_ && vouches_for_late_reads(program_->destinations(attempt.step))) [[unlikely]]
      return moved;
    finish_messages(attempt);
    attempt.phase = attempt.step.may_offer ? Phase::offered : Phase::complete;
    moved = true;
  }
  if (attempt.phase == Phase::offered && offers_taken(attempt)) {
    attempt.phase = Phase::complete;
    moved = true;
  }
  return moved;
}

// Most steps of a long chain wait for messages behind others, which is quick to see.
bool Executor::turn_has_come(const Attempt& attempt) {
  for (const CallOperand& source : program_->sources(attempt.step)) {
    if (!source.is_message || source.way == Way::push) continue;
    if (source.way == Way::undecided || !is_next_to_receive(attempt, source)) return false;
  }
  return true;
}

bool Executor::dependencies_complete(const Attempt& attempt) const {
  const LoweredDependency* dependencies = program_->dependencies();
  for (std::uint32_t d = attempt.step.depends; d < attempt.step.depends_end; ++d) {
    const LoweredDependency& dependency = dependencies[d];
    const Phase phase = attempt.phases[dependency.step];
    if (phase == Phase::complete) continue;
    if (!dependency.fused || phase != Phase::offered) return false;
    const CallStep& earlier = program_->steps()[static_cast<std::size_t>(dependency.step)];
    const bool waived = program_->sources(attempt.step)[0].way == Way::push &&
                        program_->destinations(earlier)[0].way == Way::pull;
    if (!waived) return false;
  }
  return true;
}

// Point 2. A step has at most one push source: only copies can land, and they have one source.
bool Executor::grant_landings(Attempt& attempt) {
  if (!attempt.step.may_land) return true;
  for (const CallOperand& source : program_->sources(attempt.step)) {
    // Whether it is pushed is known once the peer has arrived (and has been told of our memory).
    if (!source.is_message || source.way == Way::staged || source.way == Way::pull) continue;
    if (source.way == Way::undecided || !is_next_to_receive(attempt, source)) return false;
    Stream& s = stream(attempt.channel, source.stream);
    if (!source.ready) s.endpoint->signal(Signal::granted, number_received(attempt, source) + 1);
    ++s.received[at(Way::push)];
  }
  return true;
}

// Point 3, reading.
bool Executor::sources_ready(Attempt& attempt) {
  Place* place = places_.data();
  for (const CallOperand& source : program_->sources(attempt.step)) {
    if (!source.is_message)
      *place = {own_memory(source.buffer), source.chunk, source.buffer};
    else if (!source_ready(attempt, source, *place))
      return false;
    ++place;
  }
  return true;
}

bool Executor::source_ready(Attempt& attempt, const CallOperand& source, Place& place) {
  if (peers_[source.stream].arrival_due && attempt.channel == 0 && !call_.signature.direct)
    take_arrival(source.stream);
  if (peers_[source.stream].arrival_due || source.way == Way::undecided) return false;
  if (attempt.takes_long || attempt.sums_long) return true;
  Endpoint& endpoint = *stream(attempt.channel, source.stream).endpoint;
  if (source.way == Way::push) {
    place = {own_memory(source.buffer), source.chunk};
    return endpoint.signalled(Signal::produced) > number_received(attempt, source);
  }
  if (!is_next_to_receive(attempt, source)) return false;
  if (source.way == Way::pull) {
    reads_peers_ = true;
    place = {peers_[source.stream].memory[static_cast<std::size_t>(source.buffer)], source.chunk};
    return source.ready || endpoint.signalled(Signal::offered) > number_received(attempt, source);
  }
  std::span<const std::byte> payload;
  if (!find_payload(attempt.channel, source.stream, attempt.bytes, payload)) return false;
  place = {const_cast<std::byte*>(payload.data()), -1};
  return true;
}

// The data of the frame at the head of the queue. False when there is none, or it is not what is
// due, which ends the call.
bool Executor::find_payload(int channel, std::size_t peer, std::size_t due,
                            std::span<const std::byte>& payload) {
  Frame frame;
  if (!stream(channel, peer).endpoint->peek(frame)) return false;
  const auto tag = static_cast<FrameTag>(frame.tag);
  payload = frame.payload;
  if (tag == FrameTag::arrival_with_data)
    payload = payload.subspan(std::min(payload.size(), record_room(due)));
  if (payload.size() == due && tag != FrameTag::arrival) [[likely]]
    return true;
  fail(Status(StatusCode::mismatch,
              fmt::format("rank {}: {}: rank {} sent a message of {} bytes (tag {}) where {} "
                          "were due",
                          transport_.rank(), to_string(call_.signature), rank_of(peer),
                          payload.size(), frame.tag, due)));
  return false;
}

// Point 3, writing.
bool Executor::destinations_ready(Attempt& attempt) {
  const Operands destinations = program_->destinations(attempt.step);
  attempt.alike = !attempt.sends_long && are_alike(attempt.channel, destinations, attempt.bytes);
  Place* const first = places_.data() + (attempt.step.destinations - attempt.step.sources);
  Place* place = first;
  for (const CallOperand& destination : destinations) {
    if (!destination.is_message)
      *place = {own_memory(destination.buffer), destination.chunk, destination.buffer};
    else if (!destination_ready(attempt, destination, *place))
      return false;
    ++place;
  }
  return !attempt.alike || reserve_alike(attempt, first);
}

// One place for all that goes through queues, or, where there is none, one in each.
bool Executor::reserve_alike(Attempt& attempt, Place* place) {
  std::byte* const room =
      reserve_for_told(attempt.channel, program_->sources(attempt.step), attempt.bytes);
  attempt.alike = room != nullptr;
  for (const CallOperand& destination : program_->destinations(attempt.step)) {
    if (destination.is_message && destination.way == Way::staged) {
      if (!attempt.alike) {
        *place = {reserve_room(attempt.channel, destination.stream, attempt.bytes), -1};
        if (place->base == nullptr) return false;
      } else if (destination.stream == told_as_) {
        *place = {room, -1};
      }
    }
    ++place;
  }
  return true;
}

bool Executor::destination_ready(Attempt& attempt, const CallOperand& destination, Place& place) {
  if (destination.way == Way::undecided || !is_next_to_send(attempt, destination)) return false;
  switch (destination.way) {
    case Way::staged:
      // How many of a slice are staged is known once the peer has arrived.
      if (attempt.slice > 0 && !peers_[destination.stream].settled) return false;
      place = {};
      if (attempt.sends_long || attempt.alike) return true;
      place = {reserve_room(attempt.channel, destination.stream, attempt.bytes), -1};
      return place.base != nullptr;
    case Way::push:
      place = {peers_[destination.stream].memory[static_cast<std::size_t>(destination.buffer)],
               destination.chunk};
      return destination.ready ||
             stream(attempt.channel, destination.stream).endpoint->signalled(Signal::granted) >
                 number_sent(attempt, destination);
    case Way::pull:
    case Way::undecided:
      break;
  }
  place = {};  // only offered: the peer reads it where it is
  return true;
}

// How much of the call's record stands before the data of a message: all in the first one of a
// call, if both go at once. If they do not it goes ahead; nothing while there is no room for it.
std::optional<std::size_t> Executor::record_bytes(int channel, std::size_t peer,
                                                  std::size_t bytes) {
  if (peers_[peer].arrival_sent) return 0;
  const std::size_t room = record_room(bytes);
  if (channel == 0 && room + bytes <= at_once_bytes_) return room;
  if (!send_arrival(peer)) return std::nullopt;
  return 0;
}

// The tag of a message that is being sent, whose record, if any, need not be sent again.
FrameTag Executor::note_record_sent(std::size_t peer) {
  return std::exchange(peers_[peer].arrival_sent, true) ? FrameTag::data
                                                        : FrameTag::arrival_with_data;
}

// Where a staged message of `bytes` bytes is to be built; null while there is no room.
std::byte* Executor::reserve_room(int channel, std::size_t peer, std::size_t bytes) {
  const std::optional<std::size_t> before = record_bytes(channel, peer, bytes);
  if (!before) return nullptr;
  const std::span<std::byte> room = stream(channel, peer).endpoint->reserve(*before + bytes);
  if (room.data() == nullptr) return nullptr;
  return *before > 0 ? put_record(call_.record, *before, room.data()) : room.data();
}

// Sends what was built there.
void Executor::commit_message(int channel, std::size_t peer, std::size_t bytes) {
  const FrameTag tag = note_record_sent(peer);
  const std::size_t before = tag == FrameTag::arrival_with_data ? record_room(bytes) : 0;
  stream(channel, peer).endpoint->commit(static_cast<std::uint32_t>(tag), before + bytes);
}

// Whether several of these messages go through queues, so that they may be written once; told_ are
// their endpoints then. All of them begin with the call's record where one of the peers lacks it;
// the others pass it over.
bool Executor::are_alike(int channel, Operands destinations, std::size_t bytes) {
  if (bytes < kAlikeBytes || destinations.size() < 2) return false;
  told_.clear();
  bool begin_call = false;
  for (const CallOperand& destination : destinations) {
    if (!destination.is_message || destination.way != Way::staged) continue;
    const Peer& peer = peers_[destination.stream];
    begin_call |= !peer.arrival_sent;
    // Where it goes to both, it is stored as for other cores.
    if (told_.empty() || !peer.is_neighbour) told_as_ = destination.stream;
    told_.push_back(stream(channel, destination.stream).endpoint);
  }
  told_before_ = begin_call ? record_room(bytes) : 0;
  const bool fits = channel == 0 && told_before_ + bytes <= at_once_bytes_;
  return told_.size() >= 2 && (!begin_call || fits);
}

// The one place for such a message; null where it must be written to each. It is that of a message
// which it is made of, if it can be: one as long that comes from another core.
std::byte* Executor::reserve_for_told(int channel, Operands sources, std::size_t bytes) {
  const std::size_t all = told_before_ + bytes;
  const auto fits = [&](const CallOperand& source) {
    Frame frame;
    return source.is_message && source.way == Way::staged && !peers_[source.stream].is_neighbour &&
           stream(channel, source.stream).endpoint->peek(frame) && frame.payload.size() == all;
  };
  std::span<std::byte> room;
  const auto from = std::find_if(sources.begin(), sources.end(), fits);
  if (from != sources.end())
    room = transport_.reserve_in_place(told_, *stream(channel, from->stream).endpoint, all);
  if (room.data() == nullptr) room = transport_.reserve_for_all(told_, all);
  if (room.data() == nullptr) return nullptr;
  return told_before_ > 0 ? put_record(call_.record, told_before_, room.data()) : room.data();
}

void Executor::commit_alike(Operands destinations, std::size_t bytes) {
  const FrameTag tag = told_before_ > 0 ? FrameTag::arrival_with_data : FrameTag::data;
  transport_.commit_for_all(told_, static_cast<std::uint32_t>(tag), told_before_ + bytes);
  if (told_before_ == 0) return;
  for (const CallOperand& destination : destinations)
    if (destination.is_message && destination.way == Way::staged)
      peers_[destination.stream].arrival_sent = true;
}

// Point 4. Chunks of a range need not be adjacent (channels and slices cut each of them), so a
// message is a sequence of pieces.
void Executor::run(const Attempt& attempt) {
  if (attempt.elements == 0 || attempt.takes_long || attempt.sums_long) return;
  if (attempt.step.pieces == 1) return run_piece(attempt, 0, 0, attempt.elements);
  std::size_t before = 0;
  for (int piece = 0; piece < attempt.step.pieces; ++piece) {
    const std::size_t elements = piece_elements(attempt, piece);
    if (elements > 0) run_piece(attempt, piece, before, elements);
    before += elements;
  }
}

void Executor::run_piece(const Attempt& attempt, int piece, std::size_t elements_before,
                         std::size_t elements, std::size_t elements_done) {
  const CallStep& step = attempt.step;
  const auto pointer = [&](const Place& place) {
    if (place.chunk < 0) return place.base + (elements_before + elements_done) * element_bytes_;
    if (call_.blocks != nullptr)
      return call_.blocks->at(place.buffer, place.chunk + piece).memory +
             (attempt.slice * slice_elements_ + elements_done) * element_bytes_;
    const ElementRange range = geometry_.of(place.chunk + piece, attempt.channel, attempt.slice);
    return place.base + (range.begin + elements_done) * element_bytes_;
  };
  const Place* place = places_.data();
  forget_sources();
  for (const CallOperand& source : program_->sources(step)) add_source(source, pointer(*place++));
  forget_destinations();
  const Place* const first = place;
  for (const Place* end = place + (step.end - step.destinations); place < end; ++place) {
    if (place->base == nullptr && place->chunk < 0) continue;
    std::byte* destination = pointer(*place);
    const CallOperand& operand =
        program_->destinations(step)[static_cast<std::size_t>(place - first)];
    if (step.kind == StepKind::copy && is_onto_itself(operand, destination)) continue;
    add_destination(operand, destination);
  }
  compute(step.kind, step.finish, elements);
}

// A peer that has failed may have reused the memory before we read it. Nobody must be told that
// what was made of it is there: who takes it might be through with the call before it hears of us.
// That it was read may be told: the line that says who has failed is the one to which peers write
// all their words, and to fetch it from another core can take as long as a tenth of a step.
bool Executor::vouches_for_late_reads(Operands destinations) {
  const auto tells = [](const CallOperand& o) {
    return o.is_message && !(o.way == Way::pull && o.ready);
  };
  if (std::none_of(destinations.begin(), destinations.end(), tells)) return false;
  end_reading();
  reads_peers_ = false;
  return any_has_failed() && hear_of_failures();
}

// Point 5.
void Executor::finish_messages(Attempt& attempt) {
  for (const CallOperand& destination : program_->destinations(attempt.step)) {
    if (!destination.is_message) continue;
    Stream& s = stream(attempt.channel, destination.stream);
    ++s.sent[at(destination.way)];
    if (destination.way == Way::staged && !attempt.sends_long && !attempt.alike)
      commit_message(attempt.channel, destination.stream, attempt.bytes);
    else if (destination.way == Way::staged)
      continue;
    else if (destination.way == Way::push)
      s.endpoint->signal(Signal::produced, number_sent(attempt, destination) + 1);
    else if (!destination.ready)
      s.endpoint->signal(Signal::offered, number_sent(attempt, destination) + 1);
  }
  if (attempt.alike) commit_alike(program_->destinations(attempt.step), attempt.bytes);
  for (const CallOperand& source : program_->sources(attempt.step)) {
    if (!source.is_message || source.way == Way::push) continue;
    Stream& s = stream(attempt.channel, source.stream);
    ++s.received[at(source.way)];
    if (source.way == Way::pull)
      s.endpoint->signal(Signal::taken, number_received(attempt, source) + 1);
    else if (!attempt.takes_long)
      s.endpoint->release();
  }
}

// Point 6.
bool Executor::offers_taken(const Attempt& attempt) {
  for (const CallOperand& destination : program_->destinations(attempt.step)) {
    if (!destination.is_message || destination.way != Way::pull) continue;
    Stream& s = stream(attempt.channel, destination.stream);
    if (s.endpoint->signalled(Signal::taken) <= number_sent(attempt, destination)) return false;
  }
  return true;
}

}  // namespace tutti::runtime
