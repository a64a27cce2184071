// How a small call moves (short_program.hpp): the same six points as any other (lowered.hpp),
// without what cutting takes. Sets nothing up and decides nothing; start() has done so.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/pause.hpp"
#include "runtime/executor.hpp"
#include "runtime/frame_tag.hpp"

namespace tutti::runtime {
namespace {

constexpr int kWhole = 0;  // the only channel

std::size_t at(Way way) { return static_cast<std::size_t>(way); }

// Where nothing is direct, the compiler leaves out what is only asked of direct messages: small
// calls spend a seventh of their instructions on it otherwise.
template <bool kDirect>
Way way_of(const CallOperand& message) {
  return kDirect ? message.way : Way::staged;
}

}  // namespace

bool Executor::advance_short() {
  return call_.signature.direct ? advance_short<true>() : advance_short<false>();
}

template <bool kDirect>
bool Executor::advance_short() {
  bool moved = false;
  misses_neighbour_ = false;
  std::uint64_t bit = 1;
  for (const ShortStep& step : short_->steps()) {
    if ((short_done_.complete & bit) == 0) moved |= try_short<kDirect>(step, bit);
    if (!status_.ok()) [[unlikely]]
      break;
    bit <<= 1;
  }
  if (short_done_.complete == short_->all()) slices_left_ = 0;
  return moved;
}

bool Executor::linger(int looks) {
  if (!may_linger()) return false;
  if (is_combining()) return !done() && advance_combining(looks);
  for (int look = 0; look < looks && !done(); ++look) {
    const bool met = call_.signature.direct && arrivals_due_ > 0 && meet_peers(false);
    if (advance_short() || met) {
      conclude();
      return true;
    }
    if (misses_neighbour()) return false;
    base::pause_core();
  }
  return false;
}

// A step stops at the first thing that it lacks, which may be another rank's. So neighbours that
// have not even come are looked for here.
bool Executor::misses_neighbour() {
  if (is_combining()) return combining_.misses_sum() && combining_.next_is_near();
  if (misses_neighbour_ || neighbours_.empty()) return misses_neighbour_;
  Frame frame;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    const Peer& p = peers_[peer];
    if (p.is_neighbour && p.arrival_due && !stream(kWhole, peer).endpoint->peek(frame)) return true;
  }
  return false;
}

template <bool kDirect>
bool Executor::try_short(const ShortStep& step, std::uint64_t bit) {
  bool moved = false;
  if (!kDirect && step.sends_at_once) return send_at_once(step, bit);
  if (!kDirect || (short_done_.ran & bit) == 0) {
    if (!may_begin(step)) return false;
    if (kDirect && step.may_land && (short_done_.granted & bit) == 0) {
      if (!grant_landings(step)) return false;
      short_done_.granted |= bit;
      moved = true;
    }
    if (!neighbours_.empty() && !neighbours_have_sent(step)) return moved;
    if (!find_sources<kDirect>(step) || !find_destinations<kDirect>(step)) return moved;
    if (step.elements > 0) compute(step.kind, step.finish, step.elements);
    if (kDirect && !is_copied()) [[unlikely]]
      return moved;
    if (kDirect && reads_peers_ && vouches_for_late_reads(destinations_of(step))) [[unlikely]]
      return moved;
    finish_messages<kDirect>(step);
    short_done_.ran |= bit;
    moved = true;
  }
  if (kDirect && step.may_offer && !offers_taken(step)) return moved;
  short_done_.complete |= bit;
  return true;
}

// All points of a step that sends: to each peer as soon as there is room for it. What is copied
// besides has time until the peers have theirs.
bool Executor::send_at_once(const ShortStep& step, std::uint64_t bit) {
  if (!may_begin(step)) return false;
  const std::byte* from =
      own_memory(program_->operand(step.sources).buffer) + short_->offset(step.sources);
  const std::span<const std::byte> body(from, step.elements * element_bytes_);
  destination_pointers_.clear();
  bool moved = false;
  bool all = true;
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    const CallOperand& destination = program_->operand(i);
    if (!destination.is_message) {
      std::byte* to = own_memory(destination.buffer) + short_->offset(i);
      if (to != from) destination_pointers_.add(to);
      continue;
    }
    std::uint64_t& sent = stream(kWhole, destination.stream).sent[at(Way::staged)];
    if (sent > destination.place) continue;
    if (sent == destination.place && send_message(destination.stream, body)) {
      ++sent;
      moved = true;
    } else {
      all = false;
    }
  }
  if (!all) return moved;
  if (!destination_pointers_.all().empty()) {
    forget_sources();
    source_pointers_.add(from);
    store_own(StepKind::copy, false, step.elements);
  }
  short_done_.complete |= bit;
  return true;
}

bool Executor::send_message(std::size_t peer, std::span<const std::byte> body) {
  Peer& p = peers_[peer];
  const bool is_first = !p.arrival_sent;
  const FrameTag tag = is_first ? FrameTag::arrival_with_data : FrameTag::data;
  const auto record = is_first ? record_before(body.size()) : std::span<const std::byte>();
  if (!p.endpoint->send(static_cast<std::uint32_t>(tag), record, body)) return missing(peer);
  p.arrival_sent = true;
  return true;
}

// Point 1, where steps of `left` are not complete: whether they have only to offer first. One that
// has run and is not complete has been pulled from, or will be.
bool Executor::are_fused(const ShortStep& step, std::uint64_t left) const {
  return (left & ~(step.fused & short_done_.ran)) == 0 &&
         program_->operand(step.sources).way == Way::push;
}

// Point 2.
bool Executor::grant_landings(const ShortStep& step) {
  for (const CallOperand& source : sources_of(step)) {
    if (!source.is_message || source.way == Way::staged || source.way == Way::pull) continue;
    Stream& s = stream(kWhole, source.stream);
    if (source.way == Way::undecided) return missing(source.stream);
    if (s.received[at(Way::push)] != source.place) return false;
    if (!source.ready) s.endpoint->signal(Signal::granted, s.received_before + source.ordinal + 1);
    ++s.received[at(Way::push)];
  }
  return true;
}

// To be asked first. While one of them is missed, the core is given away; a look at what others
// send would be in vain then, and takes the line from the core that is about to write it.
bool Executor::neighbours_have_sent(const ShortStep& step) {
  Frame frame;
  for (const CallOperand& source : sources_of(step)) {
    if (!source.is_message || source.way != Way::staged) continue;
    const Peer& peer = peers_[source.stream];
    if (peer.is_neighbour && !peer.endpoint->peek(frame)) return missing(source.stream);
  }
  return true;
}

// Point 3, reading.
template <bool kDirect>
bool Executor::find_sources(const ShortStep& step) {
  forget_sources();
  for (std::uint32_t i = step.sources; i < step.destinations; ++i) {
    const CallOperand& source = program_->operand(i);
    const std::byte* place = nullptr;
    if (!source.is_message)
      place = own_memory(source.buffer) + short_->offset(i);
    else if (!find_source<kDirect>(source, short_->offset(i), step.elements * element_bytes_,
                                   place))
      return false;
    kDirect ? add_source(source, place) : source_pointers_.add(place);
  }
  return true;
}

template <bool kDirect>
bool Executor::find_source(const CallOperand& source, std::size_t offset, std::size_t bytes,
                           const std::byte*& place) {
  Stream& s = stream(kWhole, source.stream);
  const std::uint64_t number = s.received_before + source.ordinal;
  switch (way_of<kDirect>(source)) {
    case Way::staged: {
      std::span<const std::byte> payload;
      if (!find_message(source, bytes, payload)) return false;
      place = payload.data();
      return true;
    }
    case Way::pull:
      reads_peers_ = true;
      place = peers_[source.stream].memory[static_cast<std::size_t>(source.buffer)] + offset;
      if (s.received[at(Way::pull)] != source.place) return false;
      return source.ready || s.endpoint->signalled(Signal::offered) > number ||
             missing(source.stream);
    case Way::push:
      place = own_memory(source.buffer) + offset;
      return s.endpoint->signalled(Signal::produced) > number || missing(source.stream);
    case Way::undecided:
      break;
  }
  return false;
}

// The data of a message that is at the head of its queue; the first of a call comes behind the
// record of the peer's.
bool Executor::find_message(const CallOperand& source, std::size_t due,
                            std::span<const std::byte>& payload) {
  Stream& s = stream(kWhole, source.stream);
  Frame frame;
  if (s.received[at(Way::staged)] != source.place) return false;
  if (!s.endpoint->peek(frame)) return missing(source.stream);
  Peer& p = peers_[source.stream];
  const bool as_expected =
      p.arrival_due && frame.payload.size() == record_room(due) + due &&
      frame.tag == static_cast<std::uint32_t>(FrameTag::arrival_with_data) &&
      std::memcmp(frame.payload.data(), call_.record.data(), kArrivalBytes) == 0;
  if (as_expected) [[likely]] {
    p.arrival_due = false;
    --arrivals_due_;
    payload = frame.payload.subspan(record_room(due));
    return true;
  }
  if (p.arrival_due && !take_arrival(source.stream)) return false;
  return find_payload(kWhole, source.stream, due, payload);
}

// Point 3, writing.
template <bool kDirect>
bool Executor::find_destinations(const ShortStep& step) {
  forget_destinations();
  const std::size_t bytes = step.elements * element_bytes_;
  alike_ = are_alike(kWhole, destinations_of(step), bytes);
  if (alike_ && !reserve_alike(step, bytes)) return false;
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    const CallOperand& destination = program_->operand(i);
    std::byte* place = nullptr;
    if (!destination.is_message)
      place = own_memory(destination.buffer) + short_->offset(i);
    else if (!find_destination<kDirect>(destination, short_->offset(i), bytes, place))
      return false;
    else if (place == nullptr)
      continue;  // only offered, or told of what lies elsewhere
    if (step.kind == StepKind::copy && is_onto_itself(destination, place)) continue;
    add_destination(destination, place);
  }
  return true;
}

// False where it is not the turn of one of them.
bool Executor::reserve_alike(const ShortStep& step, std::size_t bytes) {
  for (const CallOperand& destination : destinations_of(step))
    if (destination.is_message && destination.way == Way::staged &&
        stream(kWhole, destination.stream).sent[at(Way::staged)] != destination.place)
      return false;
  told_place_ = reserve_for_told(kWhole, sources_of(step), bytes);
  alike_ = told_place_ != nullptr;
  return true;
}

template <bool kDirect>
bool Executor::find_destination(const CallOperand& destination, std::size_t offset,
                                std::size_t bytes, std::byte*& place) {
  Stream& s = stream(kWhole, destination.stream);
  const Way way = way_of<kDirect>(destination);
  if (way == Way::undecided) return missing(destination.stream);
  if (s.sent[at(way)] != destination.place) return false;
  if (way == Way::pull) return true;
  if (way == Way::staged && alike_) {
    if (destination.stream == told_as_) place = told_place_;
    return true;
  }
  if (way == Way::staged) {
    place = reserve_room(kWhole, destination.stream, bytes);
    return place != nullptr || missing(destination.stream);
  }
  place = peers_[destination.stream].memory[static_cast<std::size_t>(destination.buffer)] + offset;
  return destination.ready ||
         s.endpoint->signalled(Signal::granted) > s.sent_before + destination.ordinal ||
         missing(destination.stream);
}

// Point 5.
template <bool kDirect>
void Executor::finish_messages(const ShortStep& step) {
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    const CallOperand& destination = program_->operand(i);
    if (!destination.is_message) continue;
    Stream& s = stream(kWhole, destination.stream);
    const Way way = way_of<kDirect>(destination);
    const std::uint64_t number = s.sent_before + destination.ordinal;
    ++s.sent[at(way)];
    if (way == Way::staged && alike_)
      continue;
    else if (way == Way::staged)
      commit_message(kWhole, destination.stream, step.elements * element_bytes_);
    else if (way == Way::push)
      s.endpoint->signal(Signal::produced, number + 1);
    else if (!destination.ready)
      s.endpoint->signal(Signal::offered, number + 1);
  }
  if (alike_) commit_alike(destinations_of(step), step.elements * element_bytes_);
  for (const CallOperand& source : sources_of(step)) {
    const Way way = way_of<kDirect>(source);
    if (!source.is_message || way == Way::push) continue;
    Stream& s = stream(kWhole, source.stream);
    ++s.received[at(way)];
    if (way == Way::pull)
      s.endpoint->signal(Signal::taken, s.received_before + source.ordinal + 1);
    else
      s.endpoint->release();
  }
}

// Point 6.
bool Executor::offers_taken(const ShortStep& step) {
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    const CallOperand& destination = program_->operand(i);
    if (!destination.is_message || destination.way != Way::pull) continue;
    Stream& s = stream(kWhole, destination.stream);
    if (s.endpoint->signalled(Signal::taken) <= s.sent_before + destination.ordinal)
      return missing(destination.stream);
  }
  return true;
}

}  // namespace tutti::runtime
