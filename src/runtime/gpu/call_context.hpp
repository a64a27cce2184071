// call_context.hpp: what a block knows while it runs one call: where everything lies, how it waits,
// and how it gives up.
//
// Every wait is a loop on one word of the rank's own control memory. It ends when the number has
// come, when somebody says that the call has failed, or at the deadline; then the first one to fail
// writes down why, tells everybody, and all threads of the block leave together at the next sync.
// kernel_block.hpp says what a Policy has.
//
// Knows nothing of steps; interpret.hpp does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/gpu/device_cut.hpp"
#include "runtime/gpu/device_program.hpp"
#include "runtime/gpu/kernel_block.hpp"
#include "runtime/gpu/passes.hpp"
#include "runtime/gpu/sites.hpp"

namespace tutti::runtime::gpu {

// As runtime::Way.
enum class Way : std::uint8_t { memory, staged, pull, push, flagged };

// Where an operand of the step at hand lies.
struct Place {
  std::byte* base = nullptr;  // null: nothing is to be touched
  std::uint64_t number = 0;   // of a message: what its counter will say
  std::uint32_t chunk = 0;    // in a buffer that begins at `base`
  Way way = Way::memory;
  bool in_slot = false;  // `base` is a message's payload in one piece
  bool told = false;     // whether the peer is told of it afterwards
};

// What the threads of a block share.
struct BlockShared {
  DeviceCall call;
  Cut cut;
  std::uint64_t sequence = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t piece_bytes = 0;    // of the chunk that is being done
  std::uint64_t payload_bytes = 0;  // of all of the step's, as they lie in a slot
  std::uint32_t addressable = 0;    // of the own buffers, by bits
  bool visits = false;              // that this call counts as a visit to regions
  Place places[kOperandsMax];
  std::byte* pointers[kOperandsMax];
  std::uint32_t flags[kOperandsMax];
  bool is_slot[kOperandsMax];
};

// Where in a call a block is, for the error record.
struct Moment {
  std::uint32_t step = 0;
  std::uint64_t slice = 0;
};

// Until a word holds a number, or a higher one. Without a word there is nothing to wait for.
struct Wait {
  const std::uint64_t* word = nullptr;
  std::uint64_t number = 0;
  Site site = Site::arrival_see;
  Awaited awaited = Awaited::nothing;
  std::uint32_t peer = 0;
};

template <class Policy>
class CallContext : public KernelBlock<Policy> {
 public:
  using Block = KernelBlock<Policy>;

  TUTTI_HOST_DEVICE CallContext(Policy& policy, BlockShared& shared, const DeviceWorld& world,
                                const ProgramHeader& program)
      : Block(policy, world), shared_(shared), program_(program) {}

 protected:
  using Block::policy_;
  using Block::world_;

  // ---- Where things are ----

  TUTTI_HOST_DEVICE std::uint32_t channel() const { return shared_.cut.channel; }

  // What `peer` tells us, and what we tell it.
  TUTTI_HOST_DEVICE Mailbox& from(std::uint32_t peer) const {
    return *reinterpret_cast<Mailbox*>(world_.inboxes[peer] + world_.shape.mailbox_at(channel()));
  }
  TUTTI_HOST_DEVICE Mailbox& to(std::uint32_t peer) const {
    return *reinterpret_cast<Mailbox*>(world_.outboxes[peer] + world_.shape.mailbox_at(channel()));
  }
  TUTTI_HOST_DEVICE PeerState& state(std::uint32_t peer) const {
    return world_.peers[world_.shape.stream(channel(), peer)];
  }

  // ---- Failure ----

  // Writes down and tells the first failure of this rank. The culprit is a rank + 1, or 0.
  TUTTI_HOST_DEVICE void fail(Why why, Awaited awaited, std::uint32_t peer, std::uint32_t culprit,
                              Moment moment) {
    Failure failure;
    failure.why = why;
    failure.awaited = awaited;
    failure.peer = peer;
    failure.culprit = culprit;
    failure.channel = channel();
    failure.step = moment.step;
    failure.slice = moment.slice;
    this->post(failure);
  }

  // What a rank stores that is in the call that this one is in.
  TUTTI_HOST_DEVICE std::uint64_t entry() const {
    return make_entry(shared_.sequence, shared_.call.signature);
  }

  // Whether `peer` is in another call, of the same number.
  TUTTI_HOST_DEVICE bool differs(std::uint32_t peer) const {
    const std::uint64_t entered = policy_.load_relaxed(&from(peer).entered);
    return entered != entry() && entered >> kEntrySignatureBits == shared_.sequence;
  }

  // Somebody who has not even entered the call, or else the one that was waited for.
  TUTTI_HOST_DEVICE std::uint32_t find_missing(std::uint32_t peer) const {
    for (std::uint32_t rank = 0; rank < world_.shape.ranks; ++rank)
      if (rank != world_.rank &&
          policy_.load_relaxed(&from(rank).entered) >> kEntrySignatureBits < shared_.sequence)
        return rank + 1;
    return peer + 1;
  }

  // Whether a wait that has been in vain so far is to end.
  TUTTI_HOST_DEVICE bool gives_up(std::uint32_t polls, Awaited awaited, std::uint32_t peer,
                                  Moment moment) {
    constexpr std::uint32_t kPollsPerLook = 16;  // at the peer's call, and at the clock
    const std::uint64_t notice = this->notice();
    if (notice != 0) {
      fail(static_cast<Why>(notice >> 32), awaited, peer, static_cast<std::uint32_t>(notice),
           moment);
      return true;
    }
    if (polls % kPollsPerLook != kPollsPerLook - 1) return false;
    if (differs(peer)) {
      fail(Why::mismatch, awaited, peer, peer + 1, moment);
      return true;
    }
    if (shared_.deadline_ns == 0 || policy_.now_ns() < shared_.deadline_ns) return false;
    fail(Why::timeout, awaited, peer, find_missing(peer), moment);
    return true;
  }

  // ---- Waiting ----

  TUTTI_HOST_DEVICE bool wait(const Wait& wait, Moment moment) {
    for (std::uint32_t polls = 0;; ++polls) {
      if (policy_.load_acquire(wait.site, wait.word) >= wait.number) return true;
      if (gives_up(polls, wait.awaited, wait.peer, moment)) return false;
      policy_.pause();
    }
  }

  BlockShared& shared_;
  const ProgramHeader& program_;
};

}  // namespace tutti::runtime::gpu
