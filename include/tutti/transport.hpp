// transport.hpp: how bytes get from one rank to another, as the executor sees it.
//
// A Transport connects the ranks of one communicator; an Endpoint is one rank's connection to one
// peer on one channel. There are two ways to move data, and every transport offers the first:
//
//   frames   a bounded first-in-first-out queue in each direction. The sender builds a frame in
//            place (reserve, commit), the receiver reads it in place (peek, release). A reduction
//            can therefore read its operand straight from the queue: no copy of its own.
//   direct   where the hardware lets a rank load and store a peer's memory, export_memory and
//            import_memory translate addresses, and signal and signalled carry monotone
//            counters, so that data need not be copied through the queue at all.
//
// Some transports move bytes by themselves between two pieces of memory that neither end touches
// meanwhile, a GPU's for instance: such memory is lent to them (Transport::lend), and frames say
// what of it is to be moved.
//
// Knows bytes, ranks and channels. Does not know chunks, collectives or topology, never blocks,
// never calls upward: what happened is data that poll(), peek() and signalled() return.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/types.hpp"

#pragma GCC visibility push(default)
namespace tutti {

// Memory of one rank as a peer may name it. Plain data: it travels in arrival records.
struct MemoryReference {
  static constexpr std::uint32_t kAttached = 0xffffffff;

  std::uint32_t region = 0;  // 0: not addressable by the peer
  std::uint64_t offset = 0;

  // Memory that the peer does not load and store, but has the system copy (Endpoint::attached).
  static MemoryReference of_attached(const void* memory) {
    return {kAttached, reinterpret_cast<std::uintptr_t>(memory)};
  }
  bool addressable() const { return region != 0; }
  bool attached() const { return region == kAttached; }
  friend bool operator==(const MemoryReference&, const MemoryReference&) = default;
};

// The counters that a rank raises for a peer; what they count is the executor's business.
// A counter starts at 0 and never falls.
enum class Signal : std::uint8_t {
  offered,
  produced,
  granted,
  taken,
  failed,  // no count: how the sender's communicator ended (see the runtime's notice)
};

inline constexpr std::size_t kSignalCount = 5;

// Of a transport's shared_words().
inline constexpr std::size_t kSharedWordCount = 192;

// Of a transport's shared_memory(), for each rank.
inline constexpr std::size_t kSharedBytesEach = std::size_t{400} << 10;

// A frame that has arrived. The payload lies in the transport until release().
struct Frame {
  std::uint32_t tag = 0;  // the sender's, uninterpreted
  std::span<const std::byte> payload;
  std::size_t lent_bytes = 0;  // that belong to it and lie with the sender still: fetch()
};

// Whose memory is lent.
enum class MemoryKind : std::uint8_t {
  host,
  cuda,  // a GPU's: the processor neither reads nor writes it
};

// Memory of this rank that a transport reads and writes at any time, until it has let go of it.
struct LentMemory {
  std::shared_ptr<std::byte> memory;
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::host;
};

// A piece of it.
struct LentPlace {
  std::uint32_t region = 0;  // what lend() gave; 0: none
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// What goes before lent bytes in a frame is at most so long.
inline constexpr std::size_t kLentHeadBytesMax = 32;

// What take() found.
enum class Taken : std::uint8_t {
  nothing,  // the frame has not arrived, or not all of it
  frame,    // it lies where it was wanted, and is released
  other,    // a frame that was not asked for, or one that peek() shows as cheaply
};

// One rank's connection to one peer on one channel. Connects on first use: an endpoint that is
// still connecting has no room to reserve and nothing to peek.
//
// Threading  the thread that drives this rank's work; one at a time.
// Blocking   never.
// Errors     sticky: after the first failure status() says it, reserve() and peek() find nothing.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Room to build the next outgoing frame: exactly `bytes` long, or empty when the queue is full
  // or not connected yet (poll and ask again).
  // Requires  bytes <= Transport::frame_bytes_max(). A reservation ends with commit() or with the
  //           next reserve(). bytes == 0 gives room too: a non-null empty span.
  virtual std::span<std::byte> reserve(std::size_t bytes) = 0;

  // Sends the first `bytes` bytes of what was reserved. Ensures frames arrive in order, once each.
  // The bytes before this call happen before the peer's peek() of the frame.
  virtual void commit(std::uint32_t tag, std::size_t bytes) = 0;

  // The oldest frame that arrived and was not released; false when there is none.
  // Lifetime  of the payload: until release().
  virtual bool peek(Frame& frame) = 0;

  // Gives the oldest frame's room back to the sender. Requires  peek() found one.
  virtual void release() = 0;

  // The peer takes turns with this rank on one core, so that nothing has to be fetched from another
  // one. Changes nothing but how fast it is.
  virtual void share_core() {}

  // A frame of `head` and then `body`, as reserve(), copying and commit() would send it; where
  // TransportTraits::moves_itself, `body` is read where it lies, without a copy on the way. False
  // when there is no room (poll and ask again). Both may be changed as soon as this has returned.
  // Requires  head.size() + body.size() <= Transport::frame_bytes_max().
  virtual bool send(std::uint32_t tag, std::span<const std::byte> head,
                    std::span<const std::byte> body);

  // As peek(), but the frame need not be whole: of what has come of it, `bytes` bytes at least are
  // shown, or all if it is shorter. Where TransportTraits::moves_itself, no more is read for it, so
  // that take() can put the rest where it belongs.
  virtual bool peek_head(std::size_t bytes, Frame& frame);

  // The oldest frame, if it has that tag and `head` and `place.size()` bytes: those behind `head`
  // are put there, and it is released; where TransportTraits::moves_itself, without a copy on the
  // way. Until it is whole, some of it may be there, nothing is written between calls, and only the
  // same call goes on with it: meanwhile peek() finds nothing.
  virtual Taken take(std::uint32_t tag, std::size_t head, std::span<std::byte> place);

  // As send(), but the frame ends with bytes of lent memory, which the transport reads where they
  // lie, until lent_read() counts the frame; meanwhile they must not change. False: there is no
  // room (poll and ask again), or the transport is lent nothing.
  // Requires  head.size() <= kLentHeadBytesMax; body.bytes > 0.
  virtual bool send_lent(std::uint32_t tag, std::span<const std::byte> head,
                         const LentPlace& body) {
    static_cast<void>(tag);
    static_cast<void>(head);
    static_cast<void>(body);
    return false;
  }
  // So many frames of send_lent(), counted from the first one, are not read any more.
  virtual std::uint64_t lent_read() { return 0; }

  // Begins to put the lent bytes of the oldest frame into lent memory; then the frame may be
  // released. Whoever releases it without does not want them. False: not now (poll and ask again).
  // Requires  peek() found it; place.bytes == its lent_bytes > 0; no second time for one frame.
  virtual bool fetch(const LentPlace& place) {
    static_cast<void>(place);
    return false;
  }
  // So many times, counted from the first one, fetch() has come to its end: the bytes are there.
  virtual std::uint64_t fetched() { return 0; }

  // Raises a counter that the peer sees. Requires  value >= every earlier value of this signal;
  // Ensures  memory written before is visible to a peer that has seen the value. Only where direct
  // access exists, or the counter is carried by other means (every transport carries counters).
  virtual void signal(Signal which, std::uint64_t value) = 0;

  // The highest value of the peer's counter seen so far.
  virtual std::uint64_t signalled(Signal which) = 0;

  // Names [memory, memory + bytes) so that the peer can load and store it, or says that it cannot
  // (region 0). Cost: a look-up; the first time that this peer gets this region also a system call.
  virtual MemoryReference export_memory(const void* memory, std::size_t bytes) = 0;

  // Where the peer's exported memory lies here; null when it cannot be addressed.
  // Requires  the reference came from the peer's export_memory on this endpoint.
  // Ensures   null when [offset, offset + bytes) leaves the region.
  virtual std::byte* import_memory(const MemoryReference& reference, std::size_t bytes) = 0;

  // Other than before once what import_memory() gave may not be right any more; 0: ask each time.
  virtual std::uint64_t import_generation() const { return 0; }

  // Whether this rank and the peer can have the system copy from and to any of each other's memory.
  // False may become true, once.
  virtual bool attached() const { return false; }

  // Names [memory, memory + bytes) for that, or says that it cannot be done: the two are not
  // attached, or the system does not copy this memory, as that of devices. Cost: a look-up; for
  // memory that was not asked for lately a system call.
  virtual MemoryReference attach_memory(const void* memory, std::size_t bytes) {
    static_cast<void>(memory);
    static_cast<void>(bytes);
    return {};
  }

  // Copies `bytes` bytes from the peer's memory at that address, and to it. They happen after what
  // the peer did before it was seen by signalled() or peek(), and before what is signalled next.
  // Requires  attached().
  // Errors    peer_lost; aborted: the peer has withdrawn its memory; system_error: there is no such
  //           memory, or the system has changed its mind. Some of it may have been copied.
  virtual Status read_attached(std::byte* to, std::uint64_t from, std::size_t bytes) {
    static_cast<void>(to);
    static_cast<void>(from);
    static_cast<void>(bytes);
    return Status(StatusCode::unsupported, "this transport reaches no plain memory");
  }
  virtual Status write_attached(std::uint64_t to, const std::byte* from, std::size_t bytes) {
    static_cast<void>(to);
    static_cast<void>(from);
    static_cast<void>(bytes);
    return Status(StatusCode::unsupported, "this transport reaches no plain memory");
  }

  // Ok, or why this connection is dead (peer_lost names the rank).
  virtual Status status() const = 0;
};

inline bool Endpoint::send(std::uint32_t tag, std::span<const std::byte> head,
                           std::span<const std::byte> body) {
  const std::span<std::byte> room = reserve(head.size() + body.size());
  if (room.data() == nullptr) return false;
  std::copy(head.begin(), head.end(), room.begin());
  std::copy(body.begin(), body.end(), room.begin() + static_cast<std::ptrdiff_t>(head.size()));
  commit(tag, head.size() + body.size());
  return true;
}

inline bool Endpoint::peek_head(std::size_t, Frame& frame) { return peek(frame); }

inline Taken Endpoint::take(std::uint32_t tag, std::size_t head, std::span<std::byte> place) {
  Frame frame;
  if (!peek(frame)) return Taken::nothing;
  if (frame.tag != tag || frame.payload.size() != head + place.size()) return Taken::other;
  const auto body = frame.payload.subspan(head);
  std::copy(body.begin(), body.end(), place.begin());
  release();
  return Taken::frame;
}

// What a transport can do, for the planner's choice and for conformance tests.
struct TransportTraits {
  std::string_view name;
  bool direct = false;        // a peer's exported memory can be loaded and stored
  bool any_memory = false;    // and all memory can be exported, not only some
  bool immediate = false;     // what connected peers do shows without poll()
  bool moves_itself = false;  // send() and take() of long frames spare a copy
  bool attaches = false;      // Endpoint::attached() may be true
};

// All connections of one rank within one communicator.
//
// Threading  as Endpoint.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual TransportTraits traits() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // The largest payload of one frame, the same on all ranks. Units: bytes.
  virtual std::size_t frame_bytes_max() const = 0;

  // The connection to `peer` on `channel`, made on first use.
  // Requires  peer != rank(), 0 <= channel < channel_count().
  // Errors    system_error, peer_lost. Lifetime of the Endpoint: the transport's.
  virtual Result<Endpoint*> endpoint(Rank peer, int channel) = 0;

  // As Endpoint::send, the same frame by several endpoints of one channel: by all of them, or by
  // none, where the transport cannot write it once for all, or has no room for one of them.
  // Requires  this transport's endpoints, to different peers.
  virtual bool send_to_all(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                           std::span<const std::byte> head, std::span<const std::byte> body) {
    static_cast<void>(endpoints);
    static_cast<void>(tag);
    static_cast<void>(head);
    static_cast<void>(body);
    return false;
  }

  // As Endpoint::reserve() and commit(), of one frame that several endpoints of one channel send
  // alike: it is built once. Empty where send_to_all() would give false. Nothing else is sent to
  // these peers between the two.
  // Requires  as send_to_all(); the same endpoints both times.
  virtual std::span<std::byte> reserve_for_all(std::span<Endpoint* const> endpoints,
                                               std::size_t bytes) {
    static_cast<void>(endpoints);
    static_cast<void>(bytes);
    return {};
  }

  // As reserve_for_all(), of a frame that is made of the one that `from` shows, element by element:
  // the room may be that very frame's, which holds it then. A transport sees to it that a peer's
  // frames come to lie where that can be, once it was asked for. Empty where the room would be
  // another one.
  // Requires  as reserve_for_all(); `from` is one of this transport's, shows a frame, and is not
  // released before the new one is committed.
  virtual std::span<std::byte> reserve_in_place(std::span<Endpoint* const> endpoints,
                                                Endpoint& from, std::size_t bytes) {
    static_cast<void>(endpoints);
    static_cast<void>(from);
    static_cast<void>(bytes);
    return {};
  }
  virtual void commit_for_all(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                              std::size_t bytes) {
    static_cast<void>(endpoints);
    static_cast<void>(tag);
    static_cast<void>(bytes);
  }

  // Words that all ranks see, kSharedWordCount of them and zeros at first, for what they agree on;
  // none where the transport has no memory that all of them reach. Which is for what, is the
  // caller's affair. Lifetime  the transport's.
  virtual std::span<std::atomic<std::uint64_t>> shared_words() { return {}; }

  // Memory that all ranks see: size() * kSharedBytesEach bytes from a page's beginning on, zeros at
  // first, which cost nothing until they are touched; none where the transport has none. What is
  // where, is the caller's affair. Lifetime  the transport's.
  virtual std::span<std::byte> shared_memory() { return {}; }

  // To be called after a store there that sleeping peers may be waiting for.
  // Cost  a look at a line of each of them.
  virtual void wake_sharers() {}

  // From now on sleep() also ends once that word of the shared memory is this number; null: no more
  // than what else ends it.
  virtual void await_shared(const std::atomic<std::uint64_t>* word, std::uint64_t number) {
    static_cast<void>(word);
    static_cast<void>(number);
  }

  // How many channels there are per peer.
  virtual int channel_count() const = 0;

  // The first peer of a higher rank than `after` that has opened its side of `channel` while this
  // rank has not; -1: nobody. Who cannot be answered stays a caller: go on after it.
  // Cost  a look at every peer.
  virtual Rank caller(int channel, Rank after = -1) {
    static_cast<void>(channel);
    static_cast<void>(after);
    return -1;
  }

  // Whether Endpoint::attached() of all ranks. Cost  a look at every rank, until it is so.
  virtual bool all_attached() { return false; }

  // A call begins whose buffers will be exported; they are the program's from before it. What is to
  // be asked once for all of them is asked here. Without it, each export asks for itself. At the
  // end no peer uses them any more, or they were withdrawn.
  virtual void begin_direct_call() {}
  virtual void end_direct_call() {}

  // Moves bytes: flushes, receives, accepts connections. True when anything happened.
  // Errors  the first failure of any connection, sticky, naming the rank. The other connections go
  //         on all the same, and every call still moves them.
  virtual Result<bool> poll() = 0;

  // Sleeps until something may have happened, at most `timeout_us`. May return early.
  // Blocking  yes; only waiters call it, never the executor. Ensures no lost wake-up: what a peer
  //           did before this call either makes it return or was visible to the last poll().
  virtual void sleep(std::int64_t timeout_us) = 0;

  // Memory that peers of this transport can address, for the executor's own scratch; null when the
  // transport has none (plain memory serves then). Freed by release_shareable.
  virtual void* allocate_shareable(std::size_t bytes) = 0;
  virtual void release_shareable(void* memory) = 0;

  // Memory that was exported, or shown as attached, and that peers may still be storing to although
  // the call has failed here: from now on they do not reach it. Its contents stay.
  virtual void withdraw_memory(const void* memory, std::size_t bytes) {
    static_cast<void>(memory);
    static_cast<void>(bytes);
  }

  // Whether it moves such memory by itself: ok, or unsupported with the reason.
  virtual Status can_lend(MemoryKind kind) {
    static_cast<void>(kind);
    return Status(StatusCode::unsupported,
                  std::string(traits().name) + " moves no memory that is lent to it");
  }

  // Lends memory, and says by which number endpoints know it (never 0). The transport shares in its
  // ownership until nothing can touch it any more, at the latest when the transport is destroyed;
  // where that cannot be known after a failure, for as long as the process lives.
  // Errors  those of can_lend(); unsupported: not this memory, with the reason.
  virtual Result<std::uint32_t> lend(const LentMemory& memory) { return can_lend(memory.kind); }

  // This rank gives up, for that reason: peers that see it leave shall hear whose fault it was.
  virtual void give_up(const Status& why) { static_cast<void>(why); }

  // True when everything committed has left this process: its buffers are free.
  virtual bool flushed() const = 0;

  // True when the peers' hosts have it, too: destroying the transport now loses nothing, whatever
  // they still say. Cost: possibly a system call for each connection.
  virtual bool delivered() const { return flushed(); }

  // Bytes that the transport holds for queues.
  virtual std::size_t memory_bytes() const = 0;
};

// An all-gather of small blobs among all ranks, through whatever the world met by. Transports use
// it once, when a communicator is made, to exchange addresses. Blocking, with a deadline.
using ExchangeFunction = std::function<Result<std::vector<std::string>>(const std::string& mine)>;

}  // namespace tutti
#pragma GCC visibility pop
