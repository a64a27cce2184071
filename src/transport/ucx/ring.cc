// ring.cc: see ring.hpp.
#include "transport/ucx/ring.hpp"

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/assert.hpp"

namespace tutti::transport::ucx {

// Kept where it can be found, so that nobody takes it for lost.
void RingMemory::abandon() {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<std::byte*>;
  if (memory_ == nullptr) return;
  const std::lock_guard lock(*mutex);
  kept->push_back(std::exchange(memory_, nullptr));
}

// ---- Outbox ----

std::byte* Outbox::room(std::size_t bytes) {
  if (sent_ - released_ >= kFramesMax) return nullptr;
  const std::uint64_t position = place_after(end_, bytes, memory_.capacity());
  const std::uint64_t freed = sent_ == released_ ? position : freed_;
  if (position + span_of(bytes) - freed > memory_.capacity()) return nullptr;
  reserved_ = position;
  return memory_.at(position);
}

// What turned out shorter may belong before the ring's end although its room was after it.
Outbox::Sent Outbox::commit(std::size_t bytes) {
  const Sent sent{sent_, place_after(end_, bytes, memory_.capacity())};
  if (sent.position != reserved_)
    std::memmove(memory_.at(sent.position), memory_.at(reserved_), bytes);
  end_ = sent.position + span_of(bytes);
  ends_[sent_ % kFramesMax] = end_;
  sent_ += 1;
  return sent;
}

void Outbox::free_until(std::uint64_t released) {
  TUTTI_ASSERT(released <= sent_, "frames are released that were never sent");
  if (released <= released_) return;
  released_ = released;
  freed_ = ends_[(released - 1) % kFramesMax];
}

// ---- Inbox ----

const char* Inbox::objection(const Claim& claim) {
  if (claim.bytes > frame_bytes_max_) return "a frame that is too long";
  if (claim.number < next_ || claim.number - released_ >= kFramesMax ||
      slot(claim.number).state != State::none)
    return "a frame out of its order";
  const std::size_t capacity = memory_.capacity();
  const std::size_t span = span_of(claim.bytes);
  const bool alone = claim.number == released_;  // then all of the ring is free
  if (claim.position % kGrainBytes != 0 || claim.position % capacity + span > capacity ||
      claim.position < end_)
    return "a frame in no place";
  const std::uint64_t freed = alone ? claim.position : freed_;
  if (claim.position - freed > capacity - span) return "a frame without room for it";
  return nullptr;
}

std::byte* Inbox::admit(const Claim& claim, const char*& why) {
  why = objection(claim);
  if (why != nullptr) return nullptr;
  std::byte* const place = memory_.at(claim.position);
  if (place == nullptr) return nullptr;
  slot(claim.number) = {State::coming, claim.tag, claim.position, claim.bytes};
  admitted_ += 1;
  if (!follow()) {
    why = "a frame in another one's place";
    return nullptr;
  }
  return place;
}

// Goes over those that are in order now; each must lie where the one before it says.
bool Inbox::follow() {
  while (next_ - released_ < kFramesMax && slot(next_).state != State::none) {
    const Slot& found = slot(next_);
    if (found.position != place_after(end_, found.bytes, memory_.capacity())) return false;
    end_ = found.position + span_of(found.bytes);
    next_ += 1;
  }
  return true;
}

void Inbox::finish(std::uint64_t number) {
  TUTTI_ASSERT(slot(number).state == State::coming, "a frame is whole that was not coming");
  slot(number).state = State::whole;
}

bool Inbox::front(Frame& frame) {
  const Slot& oldest = slot(released_);
  if (oldest.state != State::whole || released_ == next_) return false;
  frame.tag = oldest.tag;
  frame.payload = {memory_.at(oldest.position), oldest.bytes};
  return true;
}

void Inbox::release() {
  Slot& oldest = slot(released_);
  TUTTI_ASSERT(oldest.state == State::whole, "release() without a frame");
  freed_ = oldest.position + span_of(oldest.bytes);
  oldest.state = State::none;
  released_ += 1;
  admitted_ -= 1;
}

bool Inbox::owes() const {
  return 2 * (released_ - told_) >= kFramesMax || 2 * (freed_ - told_end_) >= memory_.capacity();
}

}  // namespace tutti::transport::ucx
