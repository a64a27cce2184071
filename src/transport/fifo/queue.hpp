// queue.hpp: a bounded queue of frames in memory that two ranks share, and the counters that
// travel beside it. One directed connection of the memory and shm transports is one such queue.
//
// What one core writes and another reads travels in cache lines, and every line that changes hands
// costs about the same, however little of it is used. So a tiny frame (up to 48 bytes) is one line:
// the frame's number, its header and its payload together, published by one store. The consumer
// looks at one line only, the next cell's; that line's number says whether the frame is there, so
// that no shared tail index goes back and forth. A small frame (up to 4 KiB and some headers) fills
// the lines that follow, too: the consumer knows where they are before it knows what they hold, and
// fetches all of them at once. Larger payloads lie one behind the other in a ring of bytes, each in
// one piece, and their cell says where. What several peers get alike lies once in the sender's
// outbox (outbox.hpp), and the cells say where. One long frame at a time may lie in the consumer's
// outbox, in a place that it has lent for that. The consumer's position lies on a line of its own,
// which the producer reads only when it does not know of a cell that is free. Between two who
// answer each other it always does: a frame says how many of the other direction's were released.
//
// A few cells are warm: frames go from one of them to the next as long as the consumer keeps up,
// so that their lines stay in both cores' nearest caches. Where it does not, frames go on to the
// spare cells. Each cell says which one the next frame will be in. When a frame is sent, the lines
// of the next one are taken back from the consumer's cache, while there is time.
//
//   | description | released | outbox | loan     | signals  | cells ... | payloads ...           |
//     once          consumer   once     producer   producer   producer    producer, read by the
//                                                                         consumer
//
// All that the other side wrote is checked before use: a peer gone mad is reported (corrupt()), and
// costs neither a crash nor a read outside the queue.
//
// Does not know ranks, processes, or who owns the memory; never blocks, wakes nobody
// (doorbell.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/assert.hpp"
#include "base/cache_line.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::fifo {

using base::kLineBytes;
inline constexpr std::size_t kHeaderBytes = 16;                       // of a cell
inline constexpr std::size_t kTinyBytes = kLineBytes - kHeaderBytes;  // beside the header
// The cells; the first ones are warm.
inline constexpr std::size_t kCellCount = 32;  // a power of two
inline constexpr std::size_t kWarmCount = 4;
inline constexpr std::size_t kWarmBytes = kTinyBytes + 64 * kLineBytes;  // of payload, in the cell
inline constexpr std::size_t kSpareBytes = kTinyBytes + 8 * kLineBytes;

// How a queue's memory is divided; both sides compute it from the same options.
struct Layout {
  std::uint64_t frame_bytes_max = 0;  // whole lines
  std::uint64_t payload_bytes = 0;    // at least three frames, whole lines

  static Layout of(std::size_t frame_bytes_max, std::size_t queue_bytes);

  std::size_t cells_offset() const;
  std::size_t payloads_offset() const;
  std::size_t bytes() const;

  friend bool operator==(const Layout&, const Layout&) = default;
};

// The first line of a cell.
struct alignas(kLineBytes) Cell {
  // Of the frame it holds, counted from 1; how many frames of the other direction its sender has
  // released since the frame before; and the cell that the next one will be in.
  std::atomic<std::uint32_t> number;
  std::atomic<std::uint32_t> tag;
  std::atomic<std::uint32_t> bytes;
  std::atomic<std::uint32_t> place;  // of the payload: of the two below, or which line of the ring
  std::byte payload[kTinyBytes];     // and the lines that follow
};
static_assert(sizeof(Cell) == kLineBytes);
inline constexpr std::uint32_t kInCell = 0xffffffff;    // from the header on
inline constexpr std::uint32_t kBehind = 0xfffffffe;    // from the next line on
inline constexpr std::uint32_t kOnLoan = 0xfffffffd;    // in the consumer's outbox, where it said
inline constexpr std::uint32_t kInOutbox = 0x80000000;  // and which line of it; none of the above

inline constexpr std::uint32_t kNumberBits = 21;
inline constexpr std::uint32_t kReleasedBits = 6;
// What is more than that is told with the frames after it.
inline constexpr std::uint64_t kReleasedMax = (1U << kReleasedBits) - 1;
// A cell that was passed by for 2^21 frames would seem to hold the next one. Once in so many frames
// all cells are gone through.
inline constexpr std::uint64_t kTourEvery = std::uint64_t{1} << 20;
// A consumer that did not keep up is looked after again after so many frames.
inline constexpr std::uint64_t kAsksEvery = 8;

inline std::uint32_t numbered(std::uint64_t frame, std::size_t next_cell,
                              std::uint64_t released = 0) {
  return static_cast<std::uint32_t>(next_cell) << (kNumberBits + kReleasedBits) |
         static_cast<std::uint32_t>(released) << kNumberBits |
         static_cast<std::uint32_t>(frame & ((1U << kNumberBits) - 1));
}
inline bool holds(std::uint32_t number, std::uint64_t frame) {
  return ((number ^ static_cast<std::uint32_t>(frame)) << (32 - kNumberBits)) == 0;
}
inline std::uint64_t released_with(std::uint32_t number) {
  return number >> kNumberBits & kReleasedMax;
}
// Whoever wrote it, it is one of the cells.
inline std::size_t cell_after(std::uint32_t number) {
  return number >> (kNumberBits + kReleasedBits);
}
static_assert(kCellCount == std::size_t{1} << (32 - kNumberBits - kReleasedBits));
static_assert(kTourEvery + kCellCount < 1U << kNumberBits);

// How much a cell holds.
inline std::size_t room_of(std::size_t cell) {
  return cell < kWarmCount ? kWarmBytes : kSpareBytes;
}
// Where it begins, behind the first one.
inline std::size_t offset_of(std::size_t cell) {
  const std::size_t warm = std::min(cell, kWarmCount);
  return warm * (kHeaderBytes + kWarmBytes) + (cell - warm) * (kHeaderBytes + kSpareBytes);
}

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
  Counter loan;      // by the producer: the latest one; see Loan
  Signals signals;   // by the producer, indexed by Signal
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// A place of the producer's outbox in which the consumer may put one long frame, as if that were in
// the queue of the other direction. What is made of the frame can be told others where it lies, and
// no line of it has to be taken back for that from those who read another one.
struct Loan {
  std::uint32_t number = 0;  // from 1; none with 0
  std::uint32_t line = 0;    // of the outbox

  static Loan of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  std::uint64_t word() const { return std::uint64_t{number} << 32 | line; }
};
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
  // The consumer runs on this very core: no line is to be fetched from another one.
  void share_core() { shares_core_ = true; }

  // As Endpoint.
  std::span<std::byte> reserve(std::size_t bytes);
  void commit(std::uint32_t tag, std::size_t bytes);
  // Whether a frame would lie in the ring; and room for one where the consumer lends it.
  bool is_long(std::size_t bytes) const { return bytes > room_of(next_) - kTinyBytes; }
  std::span<std::byte> reserve_on_loan(std::span<std::byte> place);
  bool is_on_loan() const { return place_ == kOnLoan; }
  // As Endpoint. Requires  fits_cell(head.size(), body.size()).
  bool send(std::uint32_t tag, std::span<const std::byte> head, std::span<const std::byte> body);
  // The next one.
  bool fits_cell(std::size_t head_bytes, std::size_t body_bytes) const {
    return head_bytes + body_bytes <= room_of(next_) && head_bytes <= kTinyBytes;
  }
  void signal(Signal which, std::uint64_t value);

  // Of frames that lie in the outbox (outbox.hpp). Where it lies, before the first of them:
  void announce(const MemoryReference& outbox);
  // A place of it for the consumer.
  void lend(std::uint32_t line);
  // Whether there is room for one, whose cell is asked for; then the frame.
  // Ensures  sent() is its number, from 1.
  bool may_post();
  void post(std::uint32_t tag, std::size_t bytes, std::uint32_t line);
  std::uint64_t sent() const { return sent_; }
  // Whether the consumer is through with that frame.
  bool is_released(std::uint64_t frame) {
    if (frame > released_ && control_ != nullptr) refresh();
    return frame <= released_;
  }

  // Of the queue that goes the other way: the frames of it that this side has released, which the
  // consumer is told with those of this one, and what it has told so.
  void tell_released(std::uint64_t frames) { taken_ = frames; }
  void hear_released(std::uint64_t more) { note_released(heard_ += more); }

  // True once after room appeared that an earlier reserve() had missed.
  bool room_appeared();

  // The consumer's position makes no sense.
  bool corrupt() const { return corrupt_; }

 private:
  void refresh();
  void note_released(std::uint64_t frames);
  bool has_cell();
  bool is_free(std::size_t cell) const { return frames_[cell] <= released_; }
  void claim(const std::byte* lines, std::size_t bytes) const;
  void publish(std::uint32_t tag, std::size_t bytes, std::uint32_t place);
  std::size_t choose_next();
  void own_next(std::size_t bytes_behind);
  std::span<std::byte> reserve_in_ring(std::size_t bytes);
  void stay_in_used_memory();
  std::span<std::byte> full();
  void starve();
  // Of what lies behind the cell's first line.
  std::byte* behind() const { return reinterpret_cast<std::byte*>(cell_ + 1); }

  Control* control_ = nullptr;
  std::byte* cells_ = nullptr;
  Cell* cell_ = nullptr;  // of the next frame
  std::byte* payloads_ = nullptr;
  Layout layout_;
  // Positions count up forever; modulo the number of cells, or of payload bytes, they are places.
  std::uint64_t sent_ = 0;      // frames committed
  std::uint64_t released_ = 0;  // frames released, as far as is known
  std::uint64_t heard_ = 0;     // of these, what the consumer has told with its own
  std::uint64_t taken_ = 0;     // frames of the other direction, and
  std::uint64_t told_ = 0;      // how many of them the consumer knows of
  std::uint64_t written_ = 0;   // end of the last payload
  std::uint64_t freed_ = 0;     // end of the last payload released
  std::uint64_t reserved_ = 0;  // where the payload that is being built begins
  std::uint64_t carried_ = 0;   // bytes of all payloads in the ring so far
  std::size_t used_ = 0;        // places below have been reserved before
  std::size_t next_ = 0;        // which cell that is
  std::size_t warm_ = 0;        // the last of each kind that was chosen
  std::size_t spare_ = kCellCount - 1;
  Reuse reuse_ = Reuse::soon;
  std::uint32_t place_ = kInCell;  // of what is being built, unless it is in the ring
  std::uint32_t loans_ = 0;
  bool shares_core_ = false;
  bool starved_ = false;
  std::uint64_t starved_at_ = 0;  // released_, when there was no room
  bool corrupt_ = false;
  std::array<std::uint64_t, kCellCount> ends_{};    // by frame: where its payload ended
  std::array<std::uint64_t, kCellCount> frames_{};  // by cell: the frame that it holds
  // A tiny frame is built here and copied at commit: were it built in its cell, the consumer's
  // looking at the cell would take the line away between two stores.
  alignas(kLineBytes) std::byte staging_[kTinyBytes] = {};
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

  // How many were released, ever, and what the frame that is shown says of the other direction's.
  std::uint64_t taken() const { return taken_; }
  std::uint64_t told() const { return released_with(number_); }

  // The next frame lies in an outbox that this side has not been shown.
  bool wants_outbox() const { return wants_outbox_; }
  MemoryReference outbox() const;
  const Layout& layout() const { return layout_; }
  void attach_outbox(std::byte* memory, std::size_t bytes) {
    outbox_ = {memory, bytes};
    wants_outbox_ = false;
  }

  // Where the peer lends `bytes` for a frame to it; null where it does not. And that it was used.
  std::byte* borrow(std::size_t bytes);
  void use_loan() { used_loan_ = offered_loan_; }
  // The other way round: the next frame that says so lies there.
  void lend(std::span<std::byte> place) { lent_ = place; }
  bool lends() const { return !lent_.empty(); }
  bool has_lent(const std::byte* place) const {
    return place == lent_.data() || place == returned_.data();
  }
  // The frame that is shown, if it lies where this side lent a place.
  std::span<std::byte> shown_on_loan() const { return returned_; }

  // True once for every frame and every counter value that peek() and signalled() have not shown.
  bool news();

  // A frame waits to be released. Does not count as showing it.
  bool readable() const;

  // A cell makes no sense.
  bool corrupt() const { return corrupt_; }

 private:
  void fetch_early();
  const std::byte* find_on_loan(std::size_t bytes);
  const std::byte* find_in_cell(std::size_t place, std::size_t bytes) const;
  const std::byte* find(std::size_t place, std::size_t bytes) const;

  Control* control_ = nullptr;
  const std::byte* cells_ = nullptr;
  const Cell* cell_ = nullptr;  // of the next frame
  const std::byte* payloads_ = nullptr;
  std::span<std::byte> outbox_;
  std::span<std::byte> lent_;       // to the peer, until there is a frame in it,
  std::span<std::byte> returned_;   // that frame, until it is released
  std::uint32_t offered_loan_ = 0;  // by the peer, by number
  std::uint32_t used_loan_ = 0;
  Layout layout_;
  std::uint64_t taken_ = 0;       // frames released
  std::uint64_t shown_ = 0;       // frames that were shown, now or before
  std::uint64_t fetched_ = 0;     // frames that were fetched early, or looked at
  std::size_t next_ = 0;          // which cell that is
  std::uint32_t number_ = 0;      // what is in it, once that is shown
  std::size_t likely_bytes_ = 0;  // of the next frame, in its cell
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

// A position that is not between what it was and what was sent leaves the queue full forever.
inline void Producer::note_released(std::uint64_t frames) {
  if (frames <= released_) return;
  if (frames > sent_) [[unlikely]] {
    corrupt_ = true;
    return;
  }
  released_ = frames;
  freed_ = ends_[(frames - 1) % kCellCount];
}

inline bool Producer::has_cell() {
  if (!is_free(next_)) [[unlikely]]
    refresh();
  return is_free(next_);
}

inline void Producer::claim(const std::byte* lines, std::size_t bytes) const {
  if (shares_core_) return;
  for (std::size_t at = 0; at < bytes; at += kLineBytes) base::claim_line(lines + at);
}

inline std::span<std::byte> Producer::reserve(std::size_t bytes) {
  if (control_ == nullptr) return {};
  TUTTI_ASSERT(bytes <= layout_.frame_bytes_max, "a frame has at most frame_bytes_max() bytes");
  if (!has_cell()) return full();
  // While the frame is being built. Not earlier: the consumer would take the line away again.
  base::claim_line(cell_);
  place_ = bytes <= kTinyBytes ? kInCell : kBehind;
  if (place_ == kInCell) return {staging_, bytes};
  if (is_long(bytes)) return reserve_in_ring(bytes);
  claim(behind(), bytes);
  return {behind(), bytes};
}

inline void Producer::commit(std::uint32_t tag, std::size_t bytes) {
  if (control_ == nullptr) return;
  if (place_ == kInCell) {
    std::memcpy(cell_->payload, staging_, kTinyBytes);
  } else if (place_ < kInOutbox) {
    written_ = reserved_ + (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    carried_ += bytes;
  }
  publish(tag, bytes, place_);
  own_next(place_ == kBehind ? bytes : 0);
}

inline void Producer::publish(std::uint32_t tag, std::size_t bytes, std::uint32_t place) {
  ends_[sent_ % kCellCount] = written_;
  frames_[next_] = ++sent_;
  const std::uint64_t released = std::min(taken_ - told_, kReleasedMax);
  told_ += released;
  next_ = choose_next();
  Cell& cell = *std::exchange(cell_, reinterpret_cast<Cell*>(cells_ + offset_of(next_)));
  cell.tag.store(tag, std::memory_order_relaxed);
  cell.bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
  cell.place.store(place, std::memory_order_relaxed);
  cell.number.store(numbered(sent_, next_, released), std::memory_order_release);
}

// What the next frame would have to wait for. Of a consumer that keeps up it is asked here which
// frames it has released, where its own frames do not tell; and as many lines of the next cell as
// the last frame had are taken back. The consumer reads none of them before they are written anew.
inline void Producer::own_next(std::size_t bytes_behind) {
  if (next_ < kWarmCount && !is_free((next_ + 1) % kWarmCount)) refresh();
  if (shares_core_ || !is_free(next_)) return;
  cell_->tag.store(0, std::memory_order_relaxed);
  base::own_lines(behind(), std::min(bytes_behind, room_of(next_) - kTinyBytes));
}

// The next warm cell, if the consumer is through with it as far as we know. That is asked again
// from time to time only: it takes the line away from a consumer that is busy.
inline std::size_t Producer::choose_next() {
  const std::size_t warm = (warm_ + 1) % kWarmCount;
  const bool asks = next_ < kWarmCount || sent_ % kAsksEvery == 0;
  if (!is_free(warm) && asks) refresh();
  if (is_free(warm) && sent_ % kTourEvery < kTourEvery - kCellCount) [[likely]]
    return warm_ = warm;
  const std::size_t spare = spare_ + 1 < kCellCount ? spare_ + 1 : kWarmCount;
  if (!is_free(spare) && frames_[warm] < frames_[spare]) return warm_ = warm;  // free before it
  return spare_ = spare;
}

// Written into the cell at once, the line that the consumer looks at last. The stores
// follow each other so closely that it hardly ever takes the line away in between.
inline bool Producer::send(std::uint32_t tag, std::span<const std::byte> head,
                           std::span<const std::byte> body) {
  TUTTI_ASSERT(fits_cell(head.size(), body.size()), "the frame fits a cell");
  if (control_ == nullptr) return false;
  if (!has_cell()) {
    starve();
    return false;
  }
  const std::size_t bytes = head.size() + body.size();
  claim(reinterpret_cast<const std::byte*>(cell_), kHeaderBytes + bytes);
  const std::size_t in_first_line = std::min(body.size(), kTinyBytes - head.size());
  if (in_first_line < body.size())
    std::memcpy(behind(), body.data() + in_first_line, body.size() - in_first_line);
  copy_tiny(cell_->payload, head.data(), head.size());
  copy_tiny(cell_->payload + head.size(), body.data(), in_first_line);
  publish(tag, bytes, kInCell);
  own_next(bytes > kTinyBytes ? bytes - kTinyBytes : 0);
  return true;
}

inline bool Producer::may_post() {
  if (control_ == nullptr || !has_cell()) return false;
  base::claim_line(cell_);
  return true;
}

inline void Producer::post(std::uint32_t tag, std::size_t bytes, std::uint32_t line) {
  publish(tag, bytes, kInOutbox + line);
  own_next(0);
}

inline void Producer::signal(Signal which, std::uint64_t value) {
  if (control_ == nullptr) return;
  control_->signals.values[static_cast<std::size_t>(which)].store(value, std::memory_order_release);
}

inline std::byte* Consumer::borrow(std::size_t bytes) {
  if (control_ == nullptr || outbox_.empty()) return nullptr;
  const Loan loan = Loan::of(control_->loan.value.load(std::memory_order_acquire));
  if (loan.number == used_loan_) return nullptr;
  offered_loan_ = loan.number;
  const std::size_t begin = std::size_t{loan.line} * kLineBytes;
  const bool fits = begin + layout_.frame_bytes_max <= outbox_.size();
  corrupt_ |= !fits;
  return fits && bytes <= layout_.frame_bytes_max ? outbox_.data() + begin : nullptr;
}

inline bool Consumer::readable() const {
  return control_ != nullptr && holds(cell_->number.load(std::memory_order_acquire), taken_ + 1);
}

// The next frame is likely to be as long as the last one. Its first line, which everything else
// waits for, and the others are then on their way together. Once for a frame: if it is only being
// written, its lines are taken away from who writes them.
inline void Consumer::fetch_early() {
  fetched_ = taken_ + 1;
  const auto* const first = reinterpret_cast<const std::byte*>(cell_);
  const std::size_t bytes = kHeaderBytes + std::min(likely_bytes_, room_of(next_));
  for (std::size_t at = kLineBytes; at < bytes; at += kLineBytes) __builtin_prefetch(first + at);
}

inline bool Consumer::peek(Frame& frame) {
  if (fetched_ == taken_ && control_ != nullptr) fetch_early();
  if (!readable()) return false;
  const Cell& cell = *cell_;
  const std::size_t bytes = cell.bytes.load(std::memory_order_relaxed);
  const std::size_t place = cell.place.load(std::memory_order_relaxed);
  const std::byte* payload = nullptr;
  if (place >= kBehind) {
    payload = find_in_cell(place, bytes);
  } else if (place == kOnLoan) {
    payload = find_on_loan(bytes);
  } else {
    wants_outbox_ = place >= kInOutbox && outbox_.empty();
    if (wants_outbox_) [[unlikely]]
      return false;
    payload = find(place, bytes);
  }
  if (bytes > layout_.frame_bytes_max || payload == nullptr) {
    corrupt_ = true;
    return false;
  }
  frame.tag = cell.tag.load(std::memory_order_relaxed);
  frame.payload = {payload, bytes};
  likely_bytes_ = place >= kBehind ? bytes : 0;
  shown_ = taken_ + 1;
  number_ = cell.number.load(std::memory_order_relaxed);
  return true;
}

// The payload in what was lent, which comes back with it; null when nothing was. A frame may be
// shown several times.
inline const std::byte* Consumer::find_on_loan(std::size_t bytes) {
  if (returned_.empty() && bytes <= lent_.size())
    returned_ = std::exchange(lent_, std::span<std::byte>()).first(bytes);
  return returned_.size() == bytes ? returned_.data() : nullptr;
}

// Where a payload in the cell begins; null when it is too long to be there.
inline const std::byte* Consumer::find_in_cell(std::size_t place, std::size_t bytes) const {
  const std::size_t skipped = place == kBehind ? kTinyBytes : 0;
  return skipped + bytes <= room_of(next_) ? cell_->payload + skipped : nullptr;
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
  returned_ = {};
  taken_ += 1;
  next_ = cell_after(number_);
  cell_ = reinterpret_cast<const Cell*>(cells_ + offset_of(next_));
  control_->released.value.store(taken_, std::memory_order_release);
}

inline std::uint64_t Consumer::signalled(Signal which) {
  const auto index = static_cast<std::size_t>(which);
  if (control_ == nullptr) return seen_[index];
  seen_[index] = control_->signals.values[index].load(std::memory_order_acquire);
  return seen_[index];
}

}  // namespace tutti::transport::fifo
