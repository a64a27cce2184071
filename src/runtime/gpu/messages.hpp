// messages.hpp: how the operands of a step become addresses, what is waited for before, and what is
// told afterwards: points 1 to 3, 5 and 6 of a step (lowered.hpp), one operand at a time, so that
// the threads of a block share the waiting.
//
// Every message has a number on its directed stream, over all calls; both ends count alike. A
// counter says up to which number something has happened to those that travel one way. The numbers
// of those that went other ways are passed over.
//
// Knows nothing of the order in which steps are done.
#pragma once

#include "runtime/gpu/call_context.hpp"
#include "runtime/gpu/flagged.hpp"

namespace tutti::runtime::gpu {

template <class Policy>
class Messages : public CallContext<Policy> {
 public:
  using Context = CallContext<Policy>;
  using Context::Context;

 protected:
  using Context::policy_;
  using Context::program_;
  using Context::shared_;
  using Context::world_;

  TUTTI_HOST_DEVICE bool is_flagged() const {
    return shared_.call.protocol == Protocol::low_latency;
  }

  // The same at both ends (collectives::travels_direct).
  TUTTI_HOST_DEVICE Way way_of(const DeviceOperand& message, bool sent) const {
    if (is_flagged()) return Way::flagged;
    if (!shared_.call.direct || message.form == Direct::none) return Way::staged;
    const ProgramPeer& peer = program_.peers()[message.peer];
    const std::uint32_t theirs = this->state(peer.rank).addressable;
    const std::uint32_t sender = sent ? shared_.addressable : theirs;
    const std::uint32_t receiver = sent ? theirs : shared_.addressable;
    const std::uint32_t sender_wanted = sent ? peer.ours : peer.theirs;
    const std::uint32_t bit = 1U << message.buffer;
    if (message.form == Direct::pull) return (sender & bit) != 0 ? Way::pull : Way::staged;
    const bool pushed = (receiver & bit) != 0 && (sender_wanted & ~sender) == 0;
    return pushed ? Way::push : Way::staged;
  }

  // Of a direct message: no word is waited for.
  TUTTI_HOST_DEVICE bool is_ready(const DeviceOperand& message, bool sent) const {
    if ((message.ready & kReadyAtArrival) == 0) return false;
    const std::uint32_t beside = message.ready >> kReadyBesideShift;
    if (beside == 0) return true;
    const std::uint32_t theirs = this->state(program_.peers()[message.peer].rank).addressable;
    const std::uint32_t receiver = sent ? theirs : shared_.addressable;
    return (receiver >> (beside - 1) & 1U) != 0;
  }

  TUTTI_HOST_DEVICE std::uint64_t number_sent(std::uint32_t peer, std::uint32_t ordinal,
                                              std::uint64_t slice) const {
    const ProgramPeer& p = program_.peers()[peer];
    return this->state(p.rank).sent + slice * p.sends + ordinal + 1;
  }
  TUTTI_HOST_DEVICE std::uint64_t number_received(std::uint32_t peer, std::uint32_t ordinal,
                                                  std::uint64_t slice) const {
    const ProgramPeer& p = program_.peers()[peer];
    return this->state(p.rank).received + slice * p.receives + ordinal + 1;
  }

  // Points 1 and 6: what was offered in a message has been taken, if it was offered.
  TUTTI_HOST_DEVICE bool await_taken(const Await& await, Moment moment) {
    if (!shared_.call.direct || (shared_.addressable >> await.buffer & 1U) == 0) return true;
    const std::uint32_t rank = program_.peers()[await.peer].rank;
    const std::uint64_t number = number_sent(await.peer, await.ordinal, moment.slice);
    return this->wait({&this->from(rank).taken, number, Site::taken_see, Awaited::taken, rank},
                      moment);
  }

  // Point 2.
  TUTTI_HOST_DEVICE void grant(const DeviceOperand& source, Moment moment) {
    if (way_of(source, false) != Way::push || is_ready(source, false)) return;
    const std::uint32_t rank = program_.peers()[source.peer].rank;
    policy_.store_release(Site::granted_post, &this->to(rank).granted,
                          number_received(source.peer, source.ordinal, moment.slice));
  }

  // ---- Point 3: the place of an operand, and what must have happened before it is touched ----

  TUTTI_HOST_DEVICE bool find(const DeviceOperand& operand, bool sent, Place& place,
                              Moment moment) {
    if (operand.kind == OperandKind::memory) {
      place.base = shared_.call.memory[operand.buffer];
      place.chunk = operand.chunk;
      return true;
    }
    const std::uint32_t rank = program_.peers()[operand.peer].rank;
    place.way = way_of(operand, sent);
    Wait wait;
    wait.peer = rank;
    if (place.way == Way::flagged || place.way == Way::staged)
      sent ? find_room(rank, place, wait) : find_slot(rank, place, wait);
    else
      sent ? find_their_memory(operand, place, wait, moment)
           : find_content(operand, place, wait, moment);
    if (wait.word != nullptr && !this->wait(wait, moment)) return false;
    if (!place.in_slot) return true;
    return sent ? begin_message(rank, place) : check_message(rank, place, moment);
  }

  // What the peer sent direct: in its memory or in the own.
  TUTTI_HOST_DEVICE void find_content(const DeviceOperand& source, Place& place, Wait& wait,
                                      Moment moment) {
    PeerState& state = this->state(wait.peer);
    Mailbox& mailbox = this->from(wait.peer);
    const bool pushed = place.way == Way::push;
    place.number = wait.number = number_received(source.peer, source.ordinal, moment.slice);
    place.chunk = source.chunk;
    place.base = pushed ? shared_.call.memory[source.buffer] : state.memory[source.buffer];
    place.told = !pushed;
    if (!pushed && is_ready(source, false)) return;
    wait.awaited = Awaited::data;
    wait.word = pushed ? &mailbox.produced : &mailbox.offered;
    wait.site = pushed ? Site::produced_see : Site::offered_see;
  }

  // Where the peer wants to have it; what it pulls is nowhere to be stored.
  TUTTI_HOST_DEVICE void find_their_memory(const DeviceOperand& destination, Place& place,
                                           Wait& wait, Moment moment) {
    const bool ready = is_ready(destination, true);
    place.number = wait.number = number_sent(destination.peer, destination.ordinal, moment.slice);
    place.chunk = destination.chunk;
    place.told = place.way == Way::push || !ready;
    if (place.way == Way::pull) return;
    place.base = this->state(wait.peer).memory[destination.buffer];
    if (ready) return;
    wait.awaited = Awaited::grant;
    wait.word = &this->from(wait.peer).granted;
    wait.site = Site::granted_see;
  }

  TUTTI_HOST_DEVICE std::byte* flagged_slot(std::byte* box, std::uint64_t before) const {
    return box + world_.shape.flagged_at(this->channel(), before);
  }
  TUTTI_HOST_DEVICE std::byte* payload(std::byte* payloads, std::uint64_t before) const {
    return payloads + world_.shape.payload_at(this->channel(), before);
  }
  TUTTI_HOST_DEVICE SlotHeader& header(std::byte* box, std::uint64_t before) const {
    return *reinterpret_cast<SlotHeader*>(box + world_.shape.header_at(this->channel(), before));
  }

  // The next message in the queue from `rank`. A word that carries a flag is waited for by who
  // reads it.
  TUTTI_HOST_DEVICE void find_slot(std::uint32_t rank, Place& place, Wait& wait) {
    PeerState& state = this->state(rank);
    const bool flagged = place.way == Way::flagged;
    const std::uint64_t before = flagged ? state.flagged_received++ : state.queued_received++;
    place.number = wait.number = before + 1;
    place.base = flagged ? flagged_slot(world_.inboxes[rank], before)
                         : payload(world_.inbox_payloads[rank], before);
    place.in_slot = place.told = true;
    if (flagged) return;
    wait.awaited = Awaited::data;
    wait.word = &this->from(rank).filled;
    wait.site = Site::filled_see;
  }

  // Room for the next message in the queue to `rank`.
  TUTTI_HOST_DEVICE void find_room(std::uint32_t rank, Place& place, Wait& wait) {
    PeerState& state = this->state(rank);
    const bool flagged = place.way == Way::flagged;
    const std::uint64_t before = flagged ? state.flagged_sent++ : state.queued_sent++;
    place.number = before + 1;
    place.base = flagged ? flagged_slot(world_.outboxes[rank], before)
                         : payload(world_.outbox_payloads[rank], before);
    place.in_slot = true;
    place.told = !flagged;
    if (before < world_.shape.slots) return;
    wait.number = place.number - world_.shape.slots;
    wait.awaited = Awaited::room;
    wait.word = flagged ? &this->from(rank).word_freed : &this->from(rank).freed;
    wait.site = flagged ? Site::word_freed_see : Site::freed_see;
  }

  TUTTI_HOST_DEVICE bool begin_message(std::uint32_t rank, Place& place) {
    if (place.way == Way::flagged) {
      store_unit(policy_, place.base, 0, shared_.call.signature, flag_of(place.number - 1));
      return true;
    }
    header(world_.outboxes[rank], place.number - 1).signature = shared_.call.signature;
    return true;
  }

  // Whether it is one of this call.
  TUTTI_HOST_DEVICE bool check_message(std::uint32_t rank, Place& place, Moment moment) {
    std::uint64_t signature = 0;
    if (place.way == Way::flagged) {
      const auto leave = [&](std::uint32_t polls) {
        return this->gives_up(polls, Awaited::data, rank, moment);
      };
      if (!load_unit(policy_, place.base, 0, flag_of(place.number - 1), signature, leave))
        return false;
    } else {
      signature = header(world_.inboxes[rank], place.number - 1).signature;
    }
    if (signature == shared_.call.signature) return true;
    this->fail(Why::mismatch, Awaited::data, rank, rank + 1, moment);
    return false;
  }

  // ---- Point 5 ----

  TUTTI_HOST_DEVICE void tell(const DeviceOperand& operand, const Place& place, bool sent) {
    if (!place.told) return;
    const std::uint32_t rank = program_.peers()[operand.peer].rank;
    Mailbox& mailbox = this->to(rank);
    std::uint64_t* word = &mailbox.produced;
    Site site = Site::produced_post;
    if (place.way == Way::staged) {
      // Whoever carries it further need not take the whole slot.
      if (sent) header(world_.outboxes[rank], place.number - 1).bytes = shared_.payload_bytes;
      word = sent ? &mailbox.filled : &mailbox.freed;
      site = sent ? Site::filled_post : Site::freed_post;
    } else if (place.way == Way::pull) {
      word = sent ? &mailbox.offered : &mailbox.taken;
      site = sent ? Site::offered_post : Site::taken_post;
    } else if (place.way == Way::flagged) {
      word = &mailbox.word_freed;
      site = Site::word_freed_post;
    }
    policy_.store_release(site, word, place.number);
  }
};

}  // namespace tutti::runtime::gpu
