// queue.hpp: a bounded queue of frames in memory that two ranks share, and the two counters that
// travel beside it. One directed connection of the memory and shm transports is one such queue.
//
// What one core writes and another reads travels in cache lines, and every line that changes hands
// costs about the same, however little of it is used. So a small frame (up to 48 bytes) is one
// line: the frame's number, its header and its payload together, published by one store. The
// consumer looks at one line only, the next cell's; that line's number says whether the frame is
// there, so that no shared tail index goes back and forth. Larger payloads lie in slots, which are
// used in order, so that a cell need not say which. The consumer's position lies on a line of its
// own, which the producer reads only when the queue looks full.
//
//   | description | released | produced | granted | cells ... | slots ...                        |
//     once          consumer   producer   producer  producer    producer, read by the consumer
//
// All that the other side wrote is checked before use: a peer gone mad is reported (corrupt()), and
// costs neither a crash nor a read outside the queue.
//
// Does not know ranks, processes, or who owns the memory; never blocks, wakes nobody
// (doorbell.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/assert.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::fifo {

inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::size_t kInlineBytes = 48;

// How a queue's memory is divided; both sides compute it from the same options.
struct Layout {
  std::uint32_t cell_count = 0;  // a power of two
  std::uint32_t slot_count = 0;
  std::uint64_t slot_bytes = 0;

  // Slots of `frame_bytes_max`, as many as `queue_bytes` holds but at least two.
  static Layout of(std::size_t frame_bytes_max, std::size_t queue_bytes);

  std::size_t cells_offset() const;
  std::size_t slots_offset() const;
  std::size_t bytes() const;

  friend bool operator==(const Layout&, const Layout&) = default;
};

// Where a frame's payload lies.
enum class Place : std::uint32_t { in_cell = 1, in_slot = 2 };

struct alignas(kLineBytes) Cell {
  std::atomic<std::uint32_t> number;  // of the frame it holds, counted from 1 modulo 2^32
  std::atomic<std::uint32_t> tag;
  std::atomic<std::uint32_t> bytes;
  std::atomic<Place> place;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Cell) == kLineBytes);

// The head of a queue's memory, one line for each thing that somebody else writes.
struct Control {
  struct alignas(kLineBytes) Description {
    std::uint64_t magic;
    Layout layout;
  };
  struct alignas(kLineBytes) Counter {
    std::atomic<std::uint64_t> value;
  };
  Description description;
  Counter released;    // by the consumer: frames in the low half, slots in the high half
  Counter signals[2];  // by the producer, indexed by Signal
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Writes the head of a new queue. Requires `memory` zero-filled, aligned to a line, and
// layout.bytes() long.
void initialize(std::byte* memory, const Layout& layout);

// True when `memory` holds a queue of exactly this layout.
bool describes(const std::byte* memory, const Layout& layout);

// The side that sends. Closed until attach(), and again after close(): then it has no room.
//
// Threading  one thread.
class Producer {
 public:
  // Requires  describes(memory, layout), a queue that nothing has been sent through.
  // Lifetime  of the memory: until close() or destruction.
  void attach(std::byte* memory, const Layout& layout);
  void close() { control_ = nullptr; }
  bool attached() const { return control_ != nullptr; }

  // As Endpoint.
  std::span<std::byte> reserve(std::size_t bytes);
  void commit(std::uint32_t tag, std::size_t bytes);
  void signal(Signal which, std::uint64_t value);

  // True once after room appeared that an earlier reserve() had missed.
  bool room_appeared();

  // The consumer's position makes no sense.
  bool corrupt() const { return corrupt_; }

 private:
  void refresh();
  std::span<std::byte> full();

  Control* control_ = nullptr;
  Cell* cells_ = nullptr;
  std::byte* slots_ = nullptr;
  Layout layout_;
  std::uint32_t sent_ = 0;        // frames committed, modulo 2^32
  std::uint32_t slots_sent_ = 0;  // slots committed, modulo 2^32
  std::uint32_t slot_ = 0;        // the next slot's place
  std::uint32_t released_ = 0;    // the consumer's position when last looked at
  std::uint32_t slots_released_ = 0;
  Place reserved_ = Place::in_cell;
  bool starved_ = false;
  bool corrupt_ = false;
  // A small frame is built here and copied at commit: were it built in its cell, the consumer's
  // looking at the cell would take the line away between two stores.
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

  // True once for every frame and every counter value that peek() and signalled() have not shown.
  bool news();

  // A frame waits to be released. Does not count as showing it.
  bool readable() const;

  // A cell makes no sense.
  bool corrupt() const { return corrupt_; }

 private:
  Cell& next() const { return cells_[taken_ & (layout_.cell_count - 1)]; }

  Control* control_ = nullptr;
  Cell* cells_ = nullptr;
  const std::byte* slots_ = nullptr;
  Layout layout_;
  std::uint32_t taken_ = 0;  // frames released, modulo 2^32
  std::uint32_t slots_taken_ = 0;
  std::uint32_t slot_ = 0;
  std::uint32_t shown_ = 0;  // number of the newest frame that was shown
  std::uint64_t seen_[2] = {0, 0};
  bool corrupt_ = false;
};

// ---- The hot path, here so that endpoints inline it ----

inline std::span<std::byte> Producer::reserve(std::size_t bytes) {
  if (control_ == nullptr) return {};
  TUTTI_ASSERT(bytes <= layout_.slot_bytes, "a frame may be frame_bytes_max() long at most");
  if (sent_ - released_ == layout_.cell_count) refresh();
  if (sent_ - released_ == layout_.cell_count) return full();
  if (bytes <= kInlineBytes) {
    reserved_ = Place::in_cell;
    return {staging_, bytes};
  }
  if (slots_sent_ - slots_released_ == layout_.slot_count) refresh();
  if (slots_sent_ - slots_released_ == layout_.slot_count) return full();
  reserved_ = Place::in_slot;
  return {slots_ + slot_ * layout_.slot_bytes, bytes};
}

inline void Producer::commit(std::uint32_t tag, std::size_t bytes) {
  if (control_ == nullptr) return;
  Cell& cell = cells_[sent_ & (layout_.cell_count - 1)];
  if (reserved_ == Place::in_cell) {
    // All of it, whatever `bytes` is: a copy of a length known to the compiler is a few moves.
    std::memcpy(cell.payload, staging_, kInlineBytes);
  } else {
    slots_sent_ += 1;
    slot_ = slot_ + 1 == layout_.slot_count ? 0 : slot_ + 1;
  }
  cell.tag.store(tag, std::memory_order_relaxed);
  cell.bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
  cell.place.store(reserved_, std::memory_order_relaxed);
  sent_ += 1;
  cell.number.store(sent_, std::memory_order_release);
}

inline void Producer::signal(Signal which, std::uint64_t value) {
  if (control_ == nullptr) return;
  control_->signals[static_cast<std::size_t>(which)].value.store(value, std::memory_order_release);
}

inline bool Consumer::readable() const {
  return control_ != nullptr && next().number.load(std::memory_order_acquire) == taken_ + 1;
}

inline bool Consumer::peek(Frame& frame) {
  if (!readable()) return false;
  const Cell& cell = next();
  const std::uint32_t bytes = cell.bytes.load(std::memory_order_relaxed);
  const Place place = cell.place.load(std::memory_order_relaxed);
  const bool in_cell = place == Place::in_cell;
  if (bytes > (in_cell ? kInlineBytes : layout_.slot_bytes) ||
      (!in_cell && place != Place::in_slot)) {
    corrupt_ = true;
    return false;
  }
  frame.tag = cell.tag.load(std::memory_order_relaxed);
  frame.payload = {in_cell ? cell.payload : slots_ + slot_ * layout_.slot_bytes, bytes};
  shown_ = taken_ + 1;
  return true;
}

inline void Consumer::release() {
  if (control_ == nullptr) return;
  if (next().place.load(std::memory_order_relaxed) == Place::in_slot) {
    slots_taken_ += 1;
    slot_ = slot_ + 1 == layout_.slot_count ? 0 : slot_ + 1;
  }
  taken_ += 1;
  const std::uint64_t position = (std::uint64_t{slots_taken_} << 32) | taken_;
  control_->released.value.store(position, std::memory_order_release);
}

inline std::uint64_t Consumer::signalled(Signal which) {
  const auto index = static_cast<std::size_t>(which);
  if (control_ == nullptr) return seen_[index];
  seen_[index] = control_->signals[index].value.load(std::memory_order_acquire);
  return seen_[index];
}

}  // namespace tutti::transport::fifo
