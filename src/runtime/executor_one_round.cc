// How a small call of one round (one_round.hpp) is made again. Nothing is set up: what the general
// way keeps of a call under way is not needed by one that is over before anybody asks. Where a peer
// is late, or anything is not as expected, the general way takes over, as if it had sent what was
// sent here.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/pause.hpp"
#include "runtime/executor.hpp"
#include "runtime/flight/ticks.hpp"
#include "runtime/frame_tag.hpp"

namespace tutti::runtime {
namespace {

constexpr auto kTag = static_cast<std::uint32_t>(FrameTag::arrival_with_data);

}  // namespace

bool Executor::post_again(const Call& call, const collectives::Plan& usual) {
  const collectives::Plan& plan = foretold_plan(usual, call.signature);
  if (plan.settings.direct) return post_direct_again(call, usual, plan);
  const SharedProgram& program = turn_of(call, plan);
  const bool again =
      done() && status_.ok() && (repeats(call, plan, program) || repeats_twin(call, plan, program));
  if (!again || (round_->empty() && !is_combining())) return false;
  // What was foretold must be chosen before anything is sent, and once.
  if (usual.plain != nullptr && round_->relays() && !is_combining()) return false;
  enter_again(call);
  choose_foretold_plan(usual);
  if (&plan != &usual) tell_of(plan, usual);
  if (is_combining()) {
    records_[call_.signature.sequence % kRecordsKept] = call_.record;
    begin_combining();
    return true;
  }
  posted_ = 0;
  if (round_->relays() && !relay()) return false;
  records_[call_.signature.sequence % kRecordsKept] = call_.record;
  if (posted_ == 0 && round_->tells_all_alike() &&
      transport_.send_to_all(told_alike_, kTag, record_before(round_->sends().front().bytes),
                             body_of(round_->sends().front())))
    posted_ = round_->sends().size();
  for (; posted_ < round_->sends().size(); ++posted_) {
    const OneRound::Send& send = round_->sends()[posted_];
    if (!peers_[send.peer].endpoint->send(kTag, record_before(send.bytes), body_of(send))) break;
  }
  // What needs nobody, while the others' are under way; all again where it goes on another way.
  for (std::size_t i = 0; i < round_->early(); ++i) run_action(round_->actions()[i]);
  return true;
}

// The call's record as it stands before a message of so many bytes.
std::span<const std::byte> Executor::record_before(std::size_t message_bytes) {
  const std::size_t room = record_room(message_bytes);
  if (room == kArrivalBytes) return call_.record;
  put_record(call_.record, room, long_record_.data());
  return std::span(long_record_).first(room);
}

// What differs from the call before.
void Executor::enter_again(const Call& call) {
  call_.signature = call.signature;
  call_.input = call.input;
  call_.output = call.output;
  call_.record = call.record;
  own_ = {const_cast<std::byte*>(call.input), call.output, scratch_};  // indexed by Buffer
}

// Makes what is to be sent of what others have given, and sends it where it is made for all alike.
// False: they have given nothing, or there is no room for it, and nothing was done.
bool Executor::relay() {
  std::uint64_t missed_at = 0;
  if (!find_messages(round_->gathered(), 0, missed_at)) return false;
  const std::size_t before = record_room(round_->sends().front().bytes);
  const std::size_t bytes = before + round_->sends().front().bytes;
  std::span<std::byte> room;
  if (round_->tells_all_alike()) room = transport_.reserve_for_all(told_alike_, bytes);
  if (room.data() != nullptr) {
    run_action(round_->relay(), put_record(call_.record, before, room.data()));
    transport_.commit_for_all(told_alike_, kTag, bytes);
    posted_ = round_->sends().size();
  } else if (has_room_for(round_->sends())) {
    run_action(round_->relay());
  } else {
    return false;
  }
  for (const OneRound::Receive& receive : round_->gathered())
    peers_[receive.peer].endpoint->release();
  return true;
}

// For each of these messages. Requires  they are the first ones of the call to their peers.
bool Executor::has_room_for(const std::vector<OneRound::Send>& sends) {
  return std::all_of(sends.begin(), sends.end(), [this](const OneRound::Send& send) {
    return peers_[send.peer].endpoint->reserve(record_room(send.bytes) + send.bytes).data() !=
           nullptr;
  });
}

// False: one peer is late, or something else came. Who needs this core in order to come is looked
// for first, and not waited for.
bool Executor::find_again(int looks, std::uint64_t& missed_at) {
  if (is_combining() || call_.signature.direct) missed_at = 0;
  if (is_combining()) return done() || find_sums(looks);
  if (call_.signature.direct) return find_direct_again(looks);
  return posted_ == round_->sends().size() && !any_has_failed() &&
         find_messages(round_->receives(), looks, missed_at);
}

// What is missed takes a while to come, in which there is time to read the clock.
bool Executor::find_messages(const OneRound::Receives& receives, int looks,
                             std::uint64_t& missed_at) {
  for (const OneRound::Receive& receive : receives) {
    const Peer& peer = peers_[receive.peer];
    Frame frame;
    while (!peer.endpoint->peek(frame)) {
      if (peer.is_neighbour || --looks < 0) return false;
      base::pause_core();
      missed_at = flight::ticks();
    }
    const std::size_t before = record_room(receive.bytes);
    const bool as_expected =
        frame.payload.size() == before + receive.bytes && frame.tag == kTag &&
        std::memcmp(frame.payload.data(), call_.record.data(), kArrivalBytes) == 0;
    if (!as_expected) [[unlikely]]
      return false;
    messages_[receive.peer] = frame.payload.data() + before;
  }
  return true;
}

bool Executor::end_again(bool found) {
  if (is_combining()) {
    if (found && !done()) end_combining();
    return finished_;
  }
  const bool direct = call_.signature.direct;
  if (found && !(direct && any_has_failed()))
    direct ? finish() : take_messages();
  else
    direct ? resume_direct() : resume();
  return finished_;
}

// A call that only sends waits for nobody, and would never hear. Asked while messages are on their
// way, where there is time; of direct calls at the end, when memory of peers was read.
bool Executor::any_has_failed() const {
  for (const Peer& peer : peers_)
    if (peer.endpoint->signalled(Signal::failed) != 0) [[unlikely]]
      return true;
  return false;
}

void Executor::take_messages() {
  for (std::size_t i = round_->early(); i < round_->actions().size(); ++i)
    run_action(round_->actions()[i]);
  for (const OneRound::Receive& receive : round_->gathered())
    ++call_streams_[receive.peer]->received_before;
  for (const OneRound::Receive& receive : round_->receives()) {
    peers_[receive.peer].endpoint->release();
    ++call_streams_[receive.peer]->received_before;
  }
  for (const OneRound::Send& send : round_->sends()) ++call_streams_[send.peer]->sent_before;
  if (has_plans_) note_plan();
}

std::span<const std::byte> Executor::body_of(const OneRound::Send& send) const {
  return {own_memory(send.buffer) + send.offset, send.bytes};
}

const std::byte* Executor::find_source(const OneRound::Place& from) const {
  return from.peer == OneRound::kOwn ? own_memory(from.buffer) + from.offset : messages_[from.peer];
}

// From one place to one, of few bytes: as run_action(), without its lists.
void Executor::copy_one(const OneRound::Action& action) {
  const std::byte* const from = find_source(round_->place(action.sources));
  const OneRound::Place& place = round_->place(action.destinations);
  std::byte* const to = own_memory(place.buffer) + place.offset;
  if (to != from) std::memcpy(to, from, action.elements * element_bytes_);
}

// Also `to` gets the result, if it is not null: a place from which other cores read it. Up to 4
// KiB, to find out how that is best stored costs what it gains.
void Executor::run_action(const OneRound::Action& action, std::byte* to) {
  if (action.is_one_copy() && to == nullptr && !streaming_ &&
      action.elements * element_bytes_ <= StoreChoice::kLeastBytes)
    return copy_one(action);
  source_pointers_.clear();
  destination_pointers_.clear();
  sources_are_ = Sources::own;
  for (std::uint32_t i = action.sources; i < action.destinations; ++i) {
    const OneRound::Place& from = round_->place(i);
    if (from.peer != OneRound::kOwn && !peers_[from.peer].is_neighbour)
      sources_are_ = Sources::fetched;
    source_pointers_.add(find_source(from));
  }
  for (std::uint32_t i = action.destinations; i < action.end; ++i) {
    const OneRound::Place& place = round_->place(i);
    std::byte* const memory = own_memory(place.buffer) + place.offset;
    if (action.kind != StepKind::copy || memory != source_pointers_.front())
      destination_pointers_.add(memory);
  }
  if (to != nullptr && action.elements * element_bytes_ > StoreChoice::kLeastBytes) {
    far_pointers_.clear();
    far_pointers_.add(to);
    far_is_queued_ = true;
    return store_where_quicker(action.kind, action.finish, action.elements);
  }
  if (to == nullptr) return store_own(action.kind, action.finish, action.elements);
  destination_pointers_.add(to);
  store(action.kind, action.finish, action.elements, kernels::StoreHint::cached);
}

// The call as the general way begins it, of which so much has been sent.
void Executor::resume() {
  const bool all_live = begin_call();
  const auto sends = std::span(round_->sends()).first(posted_);
  for (const OneRound::Send& send : sends) {
    peers_[send.peer].arrival_sent = true;
    ++call_streams_[send.peer]->sent[static_cast<std::size_t>(Way::staged)];
  }
  for (const OneRound::Receive& receive : round_->gathered()) {
    peers_[receive.peer].arrival_due = false;
    --arrivals_due_;
    ++call_streams_[receive.peer]->received[static_cast<std::size_t>(Way::staged)];
  }
  if (round_->relays()) short_done_.ran = short_done_.complete = round_->relay_bit();
  if (!all_live) hear_of_failures();
}

}  // namespace tutti::runtime
