// device_world.hpp: the memory in which the ranks of a device world meet, and what one call of one
// rank is told.
//
// Every rank owns a piece of control memory that all others can load and store: an inbox for each
// peer, with a mailbox for each channel and the slots of the queues that lead to it. A slot is a
// header, which stands with the words that are told, and a payload, which may lie elsewhere: what
// is carried to other hosts is moved by network cards, which want nothing but payloads. What a rank
// waits for always lies in its own memory, and a word has one writer, so that nobody ever resets
// anything: all numbers only grow, over all calls.
//
// What only two ranks do (device_exchange.hpp) has lanes of its own in each inbox, which
// collectives do not use: other ranks need not know how often two have met.
//
// What changes from call to call stands in memory, too (DeviceCall), or is advanced by the kernel
// itself (PeerState, sequences): a captured graph launches the same kernel with the same arguments
// again, and it is the next call.
//
// Knows nothing of CUDA, or of what a program does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/gpu/device_program.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

inline constexpr std::size_t kVectorBytes = 16;  // what a thread loads and stores at once
inline constexpr std::size_t kUnitBytes = 8;     // the same of low latency: two words with flags
inline constexpr std::size_t kBufferCount = 3;   // by Buffer

// Memory of a rank as its peers find it: `offset` bytes into one of the regions that they have
// mapped. Region 0 is none: what lies there cannot be addressed.
struct MemoryRef {
  std::uint32_t region = 0;
  std::uint32_t generation = 0;  // of a region that comes and goes: which one of that number
  std::uint64_t offset = 0;

  friend bool operator==(const MemoryRef&, const MemoryRef&) = default;
};

// What a rank tells each peer when it enters a call in which messages may travel direct.
struct ArrivalRecord {
  std::uint64_t number = 0;  // of the meetings of these two, from 1; published last
  std::uint64_t signature = 0;
  MemoryRef memory[kBufferCount];
};

// What `from` tells the mailbox's owner. Numbers are of messages, over all calls of the channel.
struct alignas(128) Mailbox {
  std::uint64_t entered = 0;     // the call that `from` is in: make_entry()
  std::uint64_t offered = 0;     // messages to the owner up to here may be pulled
  std::uint64_t produced = 0;    // messages to the owner up to here have been pushed
  std::uint64_t granted = 0;     // messages of the owner up to here may be pushed
  std::uint64_t taken = 0;       // messages of the owner up to here have been pulled
  std::uint64_t filled = 0;      // messages in the owner's queue, and
  std::uint64_t freed = 0;       // of those that the owner sent, how many have been read
  std::uint64_t word_freed = 0;  // the same of low latency
  // Two, because a rank may be in its next call while a peer still reads the record of this one;
  // in the one after that it cannot be: it takes the peer's next record to get there.
  ArrivalRecord arrivals[2];
};

// What is told of a queued message, beside its payload.
struct SlotHeader {
  std::uint64_t signature = 0;
  std::uint64_t bytes = 0;  // of the payload, to a multiple of kVectorBytes
};

// What `from` tells the owner of one lane of transfers between the two. Numbers are of messages,
// over all launches.
struct alignas(128) LaneBox {
  std::uint64_t sent = 0;      // messages to the owner
  std::uint64_t received = 0;  // of those that the owner sent: that have been read
};

// What is told of a message on a lane.
struct LaneHeader {
  std::uint64_t transfer_bytes = 0;  // of all that is sent with it; both ends name the same
  MemoryRef offered;  // where the rest of the sender's part lies; none: the next bytes of it stand
                      // in the slot
};

// Four bytes with the flag that says whose they are, loaded and stored at once.
struct alignas(8) FlaggedWord {
  std::uint32_t data = 0;
  std::uint32_t flag = 0;
};

// How control memory is laid out; the same on all ranks: a notice, and an inbox for each rank, with
// all that this rank tells the owner. Sizes are of the payload of one slot.
struct ControlShape {
  std::uint32_t ranks = 1;
  std::uint32_t channels = 1;
  std::uint32_t slots = 4;          // of each queue; at least 2
  std::uint32_t slot_bytes = 0;     // a multiple of kVectorBytes
  std::uint32_t flagged_bytes = 0;  // low latency; a multiple of kUnitBytes
  std::uint32_t lanes = 0;          // of transfers from one rank to another; 0: there are none

  static constexpr std::size_t kNoticeBytes = 128;

  TUTTI_HOST_DEVICE std::size_t stream(std::uint32_t channel, std::uint32_t from) const {
    return static_cast<std::size_t>(channel) * ranks + from;
  }
  TUTTI_HOST_DEVICE std::size_t streams() const {
    return static_cast<std::size_t>(channels) * ranks;
  }
  // Of one direction: the states of all lanes.
  TUTTI_HOST_DEVICE std::size_t lane_states() const { return std::size_t{lanes} * ranks; }
  // Twice the payload, and a unit that says what it is.
  TUTTI_HOST_DEVICE std::size_t flagged_stride() const {
    return 2 * (std::size_t{flagged_bytes} + kUnitBytes);
  }

  // ---- Within an inbox ----

  TUTTI_HOST_DEVICE std::size_t mailbox_at(std::uint32_t channel) const {
    return channel * sizeof(Mailbox);
  }
  TUTTI_HOST_DEVICE std::size_t slot(std::uint32_t channel, std::uint64_t number) const {
    return std::size_t{channel} * slots + number % slots;
  }
  TUTTI_HOST_DEVICE std::size_t header_at(std::uint32_t channel, std::uint64_t number) const {
    return mailbox_at(channels) + slot(channel, number) * sizeof(SlotHeader);
  }
  TUTTI_HOST_DEVICE std::size_t flagged_at(std::uint32_t channel, std::uint64_t number) const {
    return header_at(channels, 0) + slot(channel, number) * flagged_stride();
  }
  // A lane: its box, the headers of its messages, and their payloads.
  TUTTI_HOST_DEVICE std::size_t lane_at(std::uint32_t lane) const {
    return aligned(flagged_at(channels, 0)) + lane * lane_bytes();
  }
  TUTTI_HOST_DEVICE std::size_t lane_header_at(std::uint64_t number) const {
    return sizeof(LaneBox) + number % slots * sizeof(LaneHeader);
  }
  TUTTI_HOST_DEVICE std::size_t lane_payload_at(std::uint64_t number) const {
    return lane_payloads_at() + number % slots * slot_bytes;
  }
  // The payloads of all slots, which stand last, and where one of them lies among them.
  TUTTI_HOST_DEVICE std::size_t payloads_at() const { return lane_at(lanes); }
  TUTTI_HOST_DEVICE std::size_t payload_at(std::uint32_t channel, std::uint64_t number) const {
    return slot(channel, number) * slot_bytes;
  }
  TUTTI_HOST_DEVICE std::size_t payload_bytes() const { return aligned(payload_at(channels, 0)); }
  TUTTI_HOST_DEVICE std::size_t inbox_bytes() const { return payloads_at() + payload_bytes(); }

  // ---- Within control memory ----

  TUTTI_HOST_DEVICE std::size_t inbox_at(std::uint32_t from) const {
    return kNoticeBytes + from * inbox_bytes();
  }
  TUTTI_HOST_DEVICE std::size_t bytes() const { return inbox_at(ranks); }

 private:
  TUTTI_HOST_DEVICE std::size_t lane_payloads_at() const {
    return aligned(sizeof(LaneBox) + slots * sizeof(LaneHeader));
  }
  TUTTI_HOST_DEVICE std::size_t lane_bytes() const {
    return aligned(lane_payloads_at() + std::size_t{slots} * slot_bytes);
  }
  TUTTI_HOST_DEVICE static std::size_t aligned(std::size_t bytes) {
    return (bytes + alignof(Mailbox) - 1) / alignof(Mailbox) * alignof(Mailbox);
  }
};

// Where a rank stands with a peer on one channel, in its own memory; only its own block uses it.
struct PeerState {
  std::uint64_t sent = 0;  // messages of earlier calls, whichever way they went
  std::uint64_t received = 0;
  std::uint64_t queued_sent = 0;  // through slots, of all calls
  std::uint64_t queued_received = 0;
  std::uint64_t flagged_sent = 0;
  std::uint64_t flagged_received = 0;
  std::uint64_t met = 0;  // arrival records exchanged
  // Of this call: what the peer's record said.
  std::byte* memory[kBufferCount] = {};
  std::uint32_t addressable = 0;  // by bits
  std::uint32_t unused = 0;
};

// Where a rank stands on one lane in one direction, in its own memory; of one launch, only the
// block uses it that the lane belongs to.
struct LaneState {
  std::uint64_t messages = 0;  // sent or received, over all launches
  // Of this launch.
  std::uint64_t done = 0;      // bytes of its part of that transfer
  std::uint64_t offered = 0;   // the number of the last message that offers memory; 0: none does
  std::uint32_t transfer = 0;  // the one that is under way
  std::uint32_t unused = 0;
};

// Why a call failed. As the upper half of a notice, none is no notice.
enum class Why : std::uint32_t {
  none,
  aborted,      // somebody said so
  timeout,      // the deadline passed
  mismatch,     // the peer made another call
  misaligned,   // a buffer does not lie at a multiple of its elements' size
  too_large,    // a message of single elements does not fit a slot, or there are too many elements
  peer_failed,  // with what it told
};

// What was waited for.
enum class Awaited : std::uint32_t { nothing, arrival, data, room, grant, taken };

// What failed: a call of all ranks, or transfers that two ranks agree on.
enum class Work : std::uint32_t { collective, transfers };

// What a block knows of a failure.
struct Failure {
  Why why = Why::none;
  Awaited awaited = Awaited::nothing;
  std::uint32_t peer = 0;     // the one that was waited for
  std::uint32_t culprit = 0;  // rank + 1 of the one that is missing or told of a failure; or 0
  Work work = Work::collective;
  std::uint32_t channel = 0;  // or lane
  std::uint32_t step = 0;     // or transfer, by its place among those of the launch
  std::uint32_t unused = 0;
  std::uint64_t slice = 0;  // or bytes of the lane's part that are through
};

// The first failure of a rank.
struct ErrorRecord : Failure {
  std::uint64_t ready = 0;  // published last
  std::uint32_t claimed = 0;
  std::uint32_t unused = 0;
};

// In the first word of control memory: why in the upper half, the culprit's rank + 1 in the lower.
// Any rank, and the host, may store it: then all blocks of this rank leave.
constexpr std::uint64_t make_notice(Why why, std::uint32_t culprit) {
  return static_cast<std::uint64_t>(why) << 32 | culprit;
}

// The number of a call in the upper bits, some of its signature in the lower ones: who waits for a
// rank that makes another call, in which it sends nothing of what is waited for, is told.
constexpr int kEntrySignatureBits = 24;
constexpr std::uint64_t make_entry(std::uint64_t sequence, std::uint64_t signature) {
  return sequence << kEntrySignatureBits | signature >> (64 - kEntrySignatureBits);
}

// One rank's view of the world; lives as long as the communicator.
struct DeviceWorld {
  ControlShape shape;
  std::uint32_t rank = 0;
  std::uint32_t regions = 1;             // that each rank has, the one that is none included
  std::byte* const* inboxes = nullptr;   // by rank: what it tells this one
  std::byte* const* outboxes = nullptr;  // by rank: what this one tells it, as it is mapped here
  // By rank: the payloads of the slots that belong to those.
  std::byte* const* inbox_payloads = nullptr;
  std::byte* const* outbox_payloads = nullptr;
  std::uint64_t* const* notices = nullptr;      // by rank: its first word, the same
  const std::uint64_t* region_bases = nullptr;  // by rank and region: its address, the same
  PeerState* peers = nullptr;                   // by channel and rank
  std::uint64_t* sequences = nullptr;           // by channel: calls so far
  ErrorRecord* error = nullptr;
  // Where regions come and go while there are calls; null where they do not. By own region: the
  // generation that all peers have mapped; 0: not all have, and none may be told of it.
  const std::uint64_t* gates = nullptr;
  // By channel, odd while its block is in a call in which memory may be touched directly. The host
  // closes a gate, then waits until nobody is in who may have seen it open.
  std::uint64_t* visits = nullptr;
  // By direction, lane and rank: those that it sends on, then those that it receives on.
  LaneState* lanes = nullptr;
};

// How the queues of a call work; all ranks choose alike.
enum class Protocol : std::uint32_t {
  simple,       // slots that are filled, then told of; and direct messages
  low_latency,  // everything through words that carry a flag each: nothing is told twice
};

// What one call is. The host writes it before the call; a captured graph replays with what stands
// there.
struct DeviceCall {
  std::uint64_t count = 0;  // elements of a block
  std::byte* memory[kBufferCount] = {};
  MemoryRef shared[kBufferCount];  // the same as the peers find it
  std::uint64_t signature = 0;     // equal on all ranks that make the same call
  std::uint64_t timeout_ns = 0;    // 0: wait for ever
  std::uint32_t element_bytes = 1;
  ReduceOp op = ReduceOp::sum;
  bool direct = false;  // the same on all ranks; of the simple protocol
  Protocol protocol = Protocol::simple;
  std::uint32_t channels = 1;  // blocks of the kernel; the same on all ranks
  // Of a sum with factors: so many blocks of the rank's own numbers, which go to memory[0], each
  // times the factor, before anything else happens. They may lie there. Null: there is no factor.
  std::uint32_t unscaled_blocks = 0;
  const std::byte* unscaled = nullptr;
  std::uint64_t factor = 0;  // the bits of an element, from the first byte on
};

}  // namespace tutti::runtime::gpu
