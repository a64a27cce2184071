// queue.hpp: a bounded queue of frames in memory that two ranks share, and the counters that
// travel beside it. One directed connection of the memory and shm transports is one such queue.
//
// What one core writes and another reads travels in cache lines, and every line that changes hands
// costs about the same, however little of it is used. So a tiny frame (up to 48 bytes) is one line:
// the frame's number, its header and its payload together, published by one store. The consumer
// looks at one line only, the next cell's; that line's number says whether the frame is there, so
// that no shared tail index goes back and forth. A small frame (up to 1 KiB and some headers) fills
// the lines that follow, too: the consumer knows where they are before it knows what they hold, and
// fetches all of them at once. Larger payloads lie one behind the other in a ring of bytes, each in
// one piece, and their cell says where. What several peers get alike lies once in the sender's
// outbox (outbox.hpp), and the cells say where. The consumer's position lies on a line of its own,
// which the producer reads only when the queue looks full.
//
//   | description | released | outbox | signals  | cells ... | payloads ...                    |
//     once          consumer   once     producer   producer    producer, read by the consumer
//
// All that the other side wrote is checked before use: a peer gone mad is reported (corrupt()), and
// costs neither a crash nor a read outside the queue.
//
// Does not know ranks, processes, or who owns the memory; never blocks, wakes nobody
// (doorbell.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "base/cache_line.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::fifo {

using base::kLineBytes;
inline constexpr std::size_t kHeaderBytes = 16;                            // of a cell
inline constexpr std::size_t kTinyBytes = kLineBytes - kHeaderBytes;       // beside the header
inline constexpr std::size_t kInlineBytes = kTinyBytes + 16 * kLineBytes;  // in the whole cell

// How a queue's memory is divided; both sides compute it from the same options.
struct Layout {
  std::uint64_t cell_count = 0;       // a power of two
  std::uint64_t frame_bytes_max = 0;  // whole lines
  std::uint64_t payload_bytes = 0;    // at least three frames, whole lines

  static Layout of(std::size_t frame_bytes_max, std::size_t queue_bytes);

  std::size_t cells_offset() const;
  std::size_t payloads_offset() const;
  std::size_t bytes() const;

  friend bool operator==(const Layout&, const Layout&) = default;
};

struct alignas(kLineBytes) Cell {
  std::atomic<std::uint32_t> number;  // of the frame it holds, counted from 1 modulo 2^32
  std::atomic<std::uint32_t> tag;
  std::atomic<std::uint32_t> bytes;
  std::atomic<std::uint32_t> place;  // of the payload: kInCell, or which line of the ring
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Cell) == kHeaderBytes + kInlineBytes);
inline constexpr std::uint32_t kInCell = 0xffffffff;
inline constexpr std::uint32_t kInOutbox = 0x80000000;  // and which line of it; not kInCell

// The head of a queue's memory, one line for each thing that somebody else writes.
struct Control {
  struct alignas(kLineBytes) Description {
    std::uint64_t magic;
    Layout layout;
  };
  struct alignas(kLineBytes) Counter {
    std::atomic<std::uint64_t> value;
  };
  struct alignas(kLineBytes) Outbox {  // as a MemoryReference, before the first frame in it
    std::atomic<std::uint64_t> offset;
    std::atomic<std::uint32_t> region;
  };
  struct alignas(kLineBytes) Signals {
    std::atomic<std::uint64_t> values[kSignalCount];
  };
  Description description;
  Counter released;  // by the consumer: frames
  Outbox outbox;     // by the producer
  Signals signals;   // by the producer, indexed by Signal
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Writes the head of a new queue. Requires `memory` zero-filled, aligned to a line, and
// layout.bytes() long.
void initialize(std::byte* memory, const Layout& layout);

// True when `memory` holds a queue of exactly this layout.
bool describes(const std::byte* memory, const Layout& layout);

// Where the next payload goes in a queue that the consumer has emptied.
//   soon  to the ring's beginning: memory that was never touched costs a page fault at each side,
//         and then a place in the caches.
//   late  on, all the way round: between two cores a line that the reader's cache still holds costs
//         more than one that it has lost since. Memory is taken little by little, as it is earned.
enum class Reuse : std::uint8_t { soon, late };

// The side that sends. Closed until attach(), and again after close(): then it has no room.
//
// Threading  one thread.
class Producer {
 public:
  // Requires  describes(memory, layout), a queue that nothing has been sent through.
  // Lifetime  of the memory: until close() or destruction.
  void attach(std::byte* memory, const Layout& layout, Reuse reuse = Reuse::soon);
  void close() { control_ = nullptr; }
  bool attached() const { return control_ != nullptr; }

  // As Endpoint.
  std::span<std::byte> reserve(std::size_t bytes);
  void commit(std::uint32_t tag, std::size_t bytes);
  // As Endpoint. Requires  fits_cell(head.size(), body.size()).
  bool send(std::uint32_t tag, std::span<const std::byte> head, std::span<const std::byte> body);
  static bool fits_cell(std::size_t head_bytes, std::size_t body_bytes) {
    return head_bytes + body_bytes <= kInlineBytes && head_bytes <= kTinyBytes;
  }
  void signal(Signal which, std::uint64_t value);

  // Of frames that lie in the outbox (outbox.hpp). Where it lies, before the first of them:
  void announce(const MemoryReference& outbox);
  // Whether there is room for one; then the frame. Ensures  sent() is its number, from 1.
  bool may_post() { return control_ != nullptr && has_cell(); }
  void post(std::uint32_t tag, std::size_t bytes, std::uint32_t line);
  std::uint64_t sent() const { return sent_; }
  // Whether the consumer is through with that frame.
  bool is_released(std::uint64_t frame) {
    if (frame > released_ && control_ != nullptr) refresh();
    return frame <= released_;
  }

  // True once after room appeared that an earlier reserve() had missed.
  bool room_appeared();

  // The consumer's position makes no sense.
  bool corrupt() const { return corrupt_; }

 private:
  void refresh();
  bool has_cell();
  static void claim(const Cell& cell, std::size_t bytes);
  void publish(Cell& cell, std::uint32_t tag, std::size_t bytes, std::uint32_t place);
  std::span<std::byte> reserve_in_ring(std::size_t bytes);
  void stay_in_used_memory();
  std::span<std::byte> full();
  std::size_t cell_index() const { return sent_ & (layout_.cell_count - 1); }

  Control* control_ = nullptr;
  Cell* cells_ = nullptr;
  std::byte* payloads_ = nullptr;
  Layout layout_;
  // Positions count up forever; modulo the number of cells, or of payload bytes, they are places.
  std::uint64_t sent_ = 0;      // frames committed
  std::uint64_t released_ = 0;  // frames released, when last looked at
  std::uint64_t written_ = 0;   // end of the last payload
  std::uint64_t freed_ = 0;     // end of the last payload released
  std::uint64_t reserved_ = 0;  // where the payload that is being built begins
  std::uint64_t carried_ = 0;   // bytes of all payloads in the ring so far
  std::size_t used_ = 0;        // places below have been reserved before
  Reuse reuse_ = Reuse::soon;
  bool in_cell_ = true;  // or it is small and goes into its cell
  bool starved_ = false;
  bool corrupt_ = false;
  std::vector<std::uint64_t> ends_;  // by cell: where its frame's payload ended
  // A frame for a cell is built here and copied at commit: were it built in its cell, the
  // consumer's looking at the cell would take the line away between two stores.
  alignas(kLineBytes) std::byte staging_[kInlineBytes] = {};
};

// The side that receives. Closed until attach(), and again after close(): then nothing arrives.
//
// Threading  one thread.
class Consumer {
 public:
  void attach(std::byte* memory, const Layout& layout);
  void close() { control_ = nullptr; }
  bool attached() const { return control_ != nullptr; }

  // As Endpoint.
  bool peek(Frame& frame);
  void release();
  std::uint64_t signalled(Signal which);

  // The next frame lies in an outbox that this side has not been shown.
  bool wants_outbox() const { return wants_outbox_; }
  MemoryReference outbox() const;
  const Layout& layout() const { return layout_; }
  void attach_outbox(const std::byte* memory, std::size_t bytes) {
    outbox_ = {memory, bytes};
    wants_outbox_ = false;
  }

  // True once for every frame and every counter value that peek() and signalled() have not shown.
  bool news();

  // A frame waits to be released. Does not count as showing it.
  bool readable() const;

  // A cell makes no sense.
  bool corrupt() const { return corrupt_; }

 private:
  const std::byte* find(std::size_t place, std::size_t bytes) const;
  Cell& next() const { return cells_[taken_ & (layout_.cell_count - 1)]; }

  Control* control_ = nullptr;
  Cell* cells_ = nullptr;
  const std::byte* payloads_ = nullptr;
  std::span<const std::byte> outbox_;
  Layout layout_;
  std::uint64_t taken_ = 0;  // frames released
  std::uint64_t shown_ = 0;  // frames that were shown, now or before
  std::uint64_t seen_[kSignalCount] = {};
  bool wants_outbox_ = false;
  bool corrupt_ = false;
};

// ---- The hot path, here so that endpoints inline it ----

// The first and the last kPiece of `bytes` bytes; they may overlap.
template <std::size_t kPiece>
void copy_ends(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, kPiece);
  std::memcpy(to + bytes - kPiece, from + bytes - kPiece, kPiece);
}

// memcpy() of at most kTinyBytes, in a few moves.
inline void copy_tiny(std::byte* to, const std::byte* from, std::size_t bytes) {
  static_assert(kTinyBytes <= 3 * 16);
  if (bytes > 32) std::memcpy(to + 16, from + 16, 16);
  if (bytes >= 16) return copy_ends<16>(to, from, bytes);
  if (bytes >= 8) return copy_ends<8>(to, from, bytes);
  if (bytes >= 4) return copy_ends<4>(to, from, bytes);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

inline bool Producer::has_cell() {
  if (sent_ - released_ == layout_.cell_count) [[unlikely]]
    refresh();
  return sent_ - released_ < layout_.cell_count;
}

// The lines of a cell that so many bytes take.
inline void Producer::claim(const Cell& cell, std::size_t bytes) {
  base::claim_line(&cell);
  for (std::size_t line = kTinyBytes; line < bytes; line += kLineBytes)
    base::claim_line(cell.payload + line);
}

inline std::span<std::byte> Producer::reserve(std::size_t bytes) {
  if (control_ == nullptr) return {};
  TUTTI_ASSERT(bytes <= layout_.frame_bytes_max, "a frame has at most frame_bytes_max() bytes");
  if (!has_cell()) return full();
  // While the frame is being built. Not earlier: the consumer would take the line away again.
  in_cell_ = bytes <= kInlineBytes;
  claim(cells_[cell_index()], in_cell_ ? bytes : 0);
  if (!in_cell_) return reserve_in_ring(bytes);
  return {staging_, bytes};
}

inline void Producer::commit(std::uint32_t tag, std::size_t bytes) {
  if (control_ == nullptr) return;
  Cell& cell = cells_[cell_index()];
  std::uint32_t place = kInCell;
  if (in_cell_) {
    // Whole lines, whatever `bytes` is: a copy of a length known to the compiler is a few moves.
    // The first one last, together with what publishes it: the consumer looks at it all the time,
    // and could take it away in between.
    for (std::size_t line = kTinyBytes; line < bytes; line += kLineBytes)
      std::memcpy(cell.payload + line, staging_ + line, kLineBytes);
    std::memcpy(cell.payload, staging_, kTinyBytes);
  } else {
    place = static_cast<std::uint32_t>(reserved_ % layout_.payload_bytes / kLineBytes);
    written_ = reserved_ + (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    carried_ += bytes;
  }
  publish(cell, tag, bytes, place);
}

inline void Producer::publish(Cell& cell, std::uint32_t tag, std::size_t bytes,
                              std::uint32_t place) {
  ends_[cell_index()] = written_;
  cell.tag.store(tag, std::memory_order_relaxed);
  cell.bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
  cell.place.store(place, std::memory_order_relaxed);
  sent_ += 1;
  cell.number.store(static_cast<std::uint32_t>(sent_), std::memory_order_release);
}

// Written into the cell at once, the line that the consumer looks at last. The stores
// follow each other so closely that it hardly ever takes the line away in between.
inline bool Producer::send(std::uint32_t tag, std::span<const std::byte> head,
                           std::span<const std::byte> body) {
  TUTTI_ASSERT(fits_cell(head.size(), body.size()), "the frame fits a cell");
  if (control_ == nullptr) return false;
  if (!has_cell()) {
    starved_ = true;
    return false;
  }
  const std::size_t bytes = head.size() + body.size();
  Cell& cell = cells_[cell_index()];
  claim(cell, bytes);
  const std::size_t in_first_line = std::min(body.size(), kTinyBytes - head.size());
  if (in_first_line < body.size())
    std::memcpy(cell.payload + kTinyBytes, body.data() + in_first_line,
                body.size() - in_first_line);
  copy_tiny(cell.payload, head.data(), head.size());
  copy_tiny(cell.payload + head.size(), body.data(), in_first_line);
  publish(cell, tag, bytes, kInCell);
  return true;
}

inline void Producer::post(std::uint32_t tag, std::size_t bytes, std::uint32_t line) {
  Cell& cell = cells_[cell_index()];
  base::claim_line(&cell);
  publish(cell, tag, bytes, kInOutbox + line);
}

inline void Producer::signal(Signal which, std::uint64_t value) {
  if (control_ == nullptr) return;
  control_->signals.values[static_cast<std::size_t>(which)].store(value, std::memory_order_release);
}

inline bool Consumer::readable() const {
  return control_ != nullptr &&
         next().number.load(std::memory_order_acquire) == static_cast<std::uint32_t>(taken_ + 1);
}

inline bool Consumer::peek(Frame& frame) {
  if (!readable()) return false;
  const Cell& cell = next();
  const std::size_t bytes = cell.bytes.load(std::memory_order_relaxed);
  const std::size_t place = cell.place.load(std::memory_order_relaxed);
  const std::byte* payload = cell.payload;
  if (place != kInCell) {
    wants_outbox_ = place >= kInOutbox && outbox_.empty();
    if (wants_outbox_) [[unlikely]]
      return false;
    payload = find(place, bytes);
  }
  if (bytes > layout_.frame_bytes_max || (place == kInCell && bytes > kInlineBytes) ||
      payload == nullptr) {
    corrupt_ = true;
    return false;
  }
  frame.tag = cell.tag.load(std::memory_order_relaxed);
  frame.payload = {payload, bytes};
  shown_ = taken_ + 1;
  return true;
}

// A payload outside its cell; null when it cannot be there.
inline const std::byte* Consumer::find(std::size_t place, std::size_t bytes) const {
  const bool shared = place >= kInOutbox;
  const std::size_t begin = (shared ? place - kInOutbox : place) * kLineBytes;
  if (begin + bytes > (shared ? outbox_.size() : layout_.payload_bytes)) return nullptr;
  return (shared ? outbox_.data() : payloads_) + begin;
}

inline void Consumer::release() {
  if (control_ == nullptr) return;
  taken_ += 1;
  control_->released.value.store(taken_, std::memory_order_release);
}

inline std::uint64_t Consumer::signalled(Signal which) {
  const auto index = static_cast<std::size_t>(which);
  if (control_ == nullptr) return seen_[index];
  seen_[index] = control_->signals.values[index].load(std::memory_order_acquire);
  return seen_[index];
}

}  // namespace tutti::transport::fifo
