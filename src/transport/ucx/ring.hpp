// ring.hpp: the two ends of a queue of frames whose order and room do not depend on the network.
//
// Sender and receiver have a ring of the same size each, and a frame has the same place in both.
// What the receiver has not released is still taken in the sender's ring, so that a frame that fits
// there has room at its destination, whatever the receiver does: nothing ever waits in a queue of
// the network's. The sender says where a frame lies, because a long one may be on its way still
// when shorter ones that were sent later are there; the receiver believes it within the bounds that
// keep released and unreleased frames apart, and once it knows all that came before, to the byte.
//
// Knows positions, numbers and memory. Does not know UCX.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "tutti/transport.hpp"

namespace tutti::transport::ucx {

// Frames that may be on their way or unreleased at once.
inline constexpr std::size_t kFramesMax = 64;
// Frames begin at multiples of it, and take multiples of it.
inline constexpr std::size_t kGrainBytes = 64;

// What a frame takes in a ring; an empty one, too, has a place of its own.
inline constexpr std::size_t span_of(std::size_t bytes) {
  return bytes == 0 ? kGrainBytes : (bytes + kGrainBytes - 1) / kGrainBytes * kGrainBytes;
}

// The room of a ring for such options. No frame is cut in two, so that what is left at the ring's
// end may be as long as one; two of the longest fit wherever the first of them begins, without
// which ranks in a circle would wait for each other (docs/adr/0003-queues-hold-two-messages.md).
inline constexpr std::size_t ring_bytes(std::size_t queue_bytes, std::size_t frame_bytes_max) {
  const std::size_t frame = span_of(frame_bytes_max);
  return frame + (span_of(queue_bytes) < 2 * frame ? 2 * frame : span_of(queue_bytes));
}

// Where the frame after `end` lies: there, or at the ring's next beginning if it would cross it.
inline constexpr std::uint64_t place_after(std::uint64_t end, std::size_t bytes,
                                           std::size_t capacity) {
  const std::size_t offset = end % capacity;
  return offset + span_of(bytes) <= capacity ? end : end + (capacity - offset);
}

class RingMemory {
 public:
  explicit RingMemory(std::size_t capacity) : capacity_(capacity) {}
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;
  ~RingMemory() { ::operator delete (memory_, std::align_val_t{kAlignment}); }

  std::size_t capacity() const { return capacity_; }
  std::size_t bytes() const { return memory_ == nullptr ? 0 : capacity_; }
  // Made at its first use. Null: there is no memory.
  std::byte* at(std::uint64_t position) {
    if (memory_ == nullptr) [[unlikely]]
      make();
    return memory_ == nullptr ? nullptr : memory_ + position % capacity_;
  }
  // It could not be made.
  bool missing() const { return missing_; }
  // Leaves the memory as it is for as long as the process lives: a peer may still read it.
  void abandon();

 private:
  static constexpr std::size_t kAlignment = 4096;
  void make() {
    memory_ = static_cast<std::byte*>(
        ::operator new (capacity_, std::align_val_t{kAlignment}, std::nothrow));
    missing_ = memory_ == nullptr;
  }

  std::size_t capacity_;
  std::byte* memory_ = nullptr;
  bool missing_ = false;
};

// The sender's end.
class Outbox {
 public:
  explicit Outbox(std::size_t capacity) : memory_(capacity) {}

  struct Sent {
    std::uint64_t number = 0;
    std::uint64_t position = 0;
  };

  // Room for the next frame; null: the receiver has none, or there is no memory.
  std::byte* room(std::size_t bytes);
  // The frame that was built in the last room(), of `bytes` there or fewer.
  Sent commit(std::size_t bytes);
  std::byte* at(std::uint64_t position) { return memory_.at(position); }
  std::uint64_t sent() const { return sent_; }

  // So many, counted from the beginning, are released, and nothing of them is read here any more.
  // Requires  released <= sent().
  void free_until(std::uint64_t released);

  std::size_t memory_bytes() const { return memory_.bytes(); }
  bool memory_missing() const { return memory_.missing(); }
  void abandon() { memory_.abandon(); }

 private:
  RingMemory memory_;
  std::array<std::uint64_t, kFramesMax> ends_{};  // of the unreleased, by number
  std::uint64_t end_ = 0;                         // of the last frame
  std::uint64_t reserved_ = 0;                    // where the last room() was
  std::uint64_t freed_ = 0;                       // what lies before is released
  std::uint64_t sent_ = 0;
  std::uint64_t released_ = 0;
};

// The receiver's end.
class Inbox {
 public:
  Inbox(std::size_t capacity, std::size_t frame_bytes_max)
      : memory_(capacity), frame_bytes_max_(frame_bytes_max) {}

  struct Claim {
    std::uint64_t number = 0;
    std::uint64_t position = 0;
    std::uint32_t tag = 0;
    std::size_t bytes = 0;
  };

  // Where a frame that arrives goes; null when it makes no sense, and `why` says so, or, without a
  // `why`, when there is no memory.
  std::byte* admit(const Claim& claim, const char*& why);
  // All of it is there. Requires  admitted, and not finished.
  void finish(std::uint64_t number);

  // The oldest frame, if it is whole.
  bool front(Frame& frame);
  void release();
  std::uint64_t released() const { return released_; }
  // Nothing is unreleased that has been admitted.
  bool empty() const { return admitted_ == 0; }
  // Frames released since the sender was told are so much that it may be short of room.
  bool owes() const;
  void told() {
    told_ = released_;
    told_end_ = freed_;
  }
  bool all_told() const { return told_ == released_; }

  std::size_t memory_bytes() const { return memory_.bytes(); }

 private:
  enum class State : std::uint8_t { none, coming, whole };
  struct Slot {
    State state = State::none;
    std::uint32_t tag = 0;
    std::uint64_t position = 0;
    std::size_t bytes = 0;
  };
  Slot& slot(std::uint64_t number) { return slots_[number % kFramesMax]; }
  const char* objection(const Claim& claim);
  bool follow();

  RingMemory memory_;
  std::size_t frame_bytes_max_;
  std::array<Slot, kFramesMax> slots_{};
  std::uint64_t next_ = 0;  // all frames before this number have been admitted
  std::uint64_t end_ = 0;   // of the last of them
  std::uint64_t freed_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t told_end_ = 0;
  std::size_t admitted_ = 0;
};

}  // namespace tutti::transport::ucx
