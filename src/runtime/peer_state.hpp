// peer_state.hpp: what a rank knows in a call of one of those that it meets: whether they have told
// each other of the call, and where the peer's memory lies.
//
// Knows records and addresses. How they come is the executor's business.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/lowered.hpp"
#include "runtime/arrival.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

struct PeerState {
  Endpoint* endpoint = nullptr;  // of the first channel
  bool is_neighbour = false;     // it runs on our core
  bool sends = false;            // to us, in this program
  bool begins_long = false;      // its first message is a long one, for memory of ours
  bool arrival_sent = false;
  bool arrival_due = false;         // expected, and not seen yet
  bool settled = false;             // the ways of all messages are decided
  bool record_leads = false;        // it was seen, as the head of the first message
  collectives::Addressable mine;    // which of our buffers the peer can touch
  collectives::Addressable theirs;  // which of the peer's buffers we can touch
  // The same of the call that direct_round_ was laid out for.
  collectives::Addressable usual_mine;
  collectives::Addressable usual_theirs;
  std::array<std::byte*, 3> memory = {};
  collectives::Addressable attached;  // of theirs: `memory` is an address in the peer's process
  KnownMemory known;                  // where `memory` lies, as long as that is right there:
  std::uint64_t known_generation = 0;

  void begin_call(bool direct) {
    begin_again(direct);
    if (!direct) return;
    mine = {};
    forget_theirs();
  }
  void begin_again(bool direct) {
    arrival_sent = record_leads = false;
    arrival_due = direct || sends;
    settled = !direct;
  }
  void forget_theirs() {
    theirs = attached = {};
    memory = {};
    known.forget();
  }
};

}  // namespace tutti::runtime
