// outbox.hpp: a frame that several peers get alike, written once.
//
// Through queues alone a rank would write it once for each of them, into lines that each have to
// be fetched from the core that read them last, and peers that share a core would fetch it once
// each. So it lies in memory that all peers can reach, and each peer's queue has a cell that says
// where. Frames follow those of the queue in their order, and are released like them: so much of
// the outbox is free again as all peers have released. Places for short frames come first, then
// some for long ones, of which the first that is free is taken: it may still be in the caches.
//
// A long frame may be made of a peer's, such as a sum to which that peer gave a part. Once that was
// so, this peer is lent a place for its next one. What is made of it then lies where it came: its
// lines go there and back, where they would go there, and others back, which both had to be taken
// from the caches of those who read them before.
//
// Does not know how peers reach memory; their endpoints do.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/cache_line.hpp"
#include "transport/fifo/endpoint.hpp"
#include "transport/fifo/queue.hpp"

namespace tutti::transport::fifo {

class Outbox {
 public:
  static constexpr std::size_t kSlotBytes = kHeaderBytes + kWarmBytes;  // whole lines, as a cell
  static constexpr std::size_t kSlots = 4;
  static constexpr std::size_t kLongSlots = 4;

  static std::size_t bytes_of(const Layout& layout) {
    return kSlots * kSlotBytes + kLongSlots * layout.frame_bytes_max;
  }

  // Lifetime  of `memory`, bytes_of(layout) of it: until nobody reads what was sent.
  Outbox(std::byte* memory, const Layout& layout)
      : memory_(memory), frame_bytes_max_(layout.frame_bytes_max), bytes_(bytes_of(layout)) {}
  std::byte* memory() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

  // As Endpoint::send, to all of them or to none. False also where one of them cannot reach it.
  // Requires  endpoints of one rank to different peers, QueueEndpoints.
  bool send(std::span<Endpoint* const> endpoints, std::uint32_t tag,
            std::span<const std::byte> head, std::span<const std::byte> body);

  // Room for a frame to be built in, and then: tells these endpoints' peers of it. A reservation
  // ends with the next one; nothing else is sent to these peers before it is committed. Empty as
  // send() gives false.
  // Requires  of both as send(); bytes <= the layout's frame_bytes_max.
  std::span<std::byte> reserve(std::span<Endpoint* const> endpoints, std::size_t bytes);
  void commit(std::span<Endpoint* const> endpoints, std::uint32_t tag, std::size_t bytes);
  // As reserve(), where a peer's frame lies here, and the new one may take its place. If that is
  // not so, it will be so when the peer has its next one.
  // Requires  of `from` as of endpoints; it shows a frame.
  std::span<std::byte> reserve_in_place(std::span<Endpoint* const> endpoints, Endpoint& from,
                                        std::size_t bytes);

 private:
  struct Use {
    QueueEndpoint* endpoint = nullptr;
    std::uint64_t frame = 0;
  };

  using Uses = std::vector<Use>;  // of a place, by whom it was last used

  static bool is_free(const Uses& uses);
  static bool can_tell(std::span<Endpoint* const> endpoints, const Outbox& outbox);
  bool is_long_free(std::size_t slot) const;
  std::size_t free_long_slot(std::size_t from = 0) const;
  void lend(std::span<Endpoint* const> told);
  static void tell(std::span<Endpoint* const> endpoints, std::uint32_t tag, std::size_t bytes,
                   std::size_t at, Uses& uses);
  std::byte* slot(std::size_t number) const { return memory_ + number * kSlotBytes; }
  bool fits_slot(std::size_t bytes) const { return bytes <= kSlotBytes && is_free(slots_[next_]); }
  std::size_t long_at(std::size_t slot) const {
    return kSlots * kSlotBytes + slot * frame_bytes_max_;
  }

  std::byte* memory_;
  std::size_t frame_bytes_max_;
  std::size_t bytes_;
  std::array<Uses, kSlots> slots_;
  std::size_t next_ = 0;
  std::array<Uses, kLongSlots> long_slots_;
  bool in_slot_ = false;                                // what is being built, or
  std::size_t reserved_ = 0;                            // in which of the long ones
  std::array<QueueEndpoint*, kLongSlots> borrowers_{};  // to whom a long one was last lent
  QueueEndpoint* next_borrower_ = nullptr;              // to whom one is to be
};

inline bool Outbox::is_free(const Uses& uses) {
  for (const Use& use : uses)
    if (!use.endpoint->is_released(use.frame)) return false;
  return true;
}

inline bool Outbox::can_tell(std::span<Endpoint* const> endpoints, const Outbox& outbox) {
  for (Endpoint* endpoint : endpoints)
    if (!static_cast<QueueEndpoint*>(endpoint)->may_post(outbox)) return false;
  return true;
}

inline void Outbox::tell(std::span<Endpoint* const> endpoints, std::uint32_t tag, std::size_t bytes,
                         std::size_t at, Uses& uses) {
  uses.clear();
  for (Endpoint* endpoint : endpoints) {
    auto* const queue = static_cast<QueueEndpoint*>(endpoint);
    queue->post(tag, bytes, static_cast<std::uint32_t>(at / kLineBytes));
    uses.push_back({queue, queue->sent()});
  }
}

inline bool Outbox::send(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                         std::span<const std::byte> head, std::span<const std::byte> body) {
  const std::size_t bytes = head.size() + body.size();
  if (!fits_slot(bytes)) return false;
  std::byte* const place = reserve(endpoints, bytes).data();
  if (place == nullptr) return false;
  std::memcpy(place, head.data(), head.size());
  std::memcpy(place + head.size(), body.data(), body.size());
  commit(endpoints, tag, bytes);
  return true;
}

inline std::span<std::byte> Outbox::reserve(std::span<Endpoint* const> endpoints,
                                            std::size_t bytes) {
  if (!can_tell(endpoints, *this)) return {};
  in_slot_ = fits_slot(bytes);
  if (in_slot_) {
    for (std::size_t at = 0; at < bytes; at += kLineBytes) base::claim_line(slot(next_) + at);
    return {slot(next_), bytes};
  }
  reserved_ = free_long_slot();
  if (reserved_ == kLongSlots) return {};
  return {memory_ + long_at(reserved_), bytes};
}

// What is lent is the borrower's until a frame in it was released.
inline bool Outbox::is_long_free(std::size_t slot) const {
  const QueueEndpoint* const borrower = borrowers_[slot];
  return is_free(long_slots_[slot]) &&
         (borrower == nullptr || !borrower->has_on_loan(memory_ + long_at(slot)));
}

inline std::size_t Outbox::free_long_slot(std::size_t from) const {
  while (from < kLongSlots && !is_long_free(from)) ++from;
  return from;
}

inline std::span<std::byte> Outbox::reserve_in_place(std::span<Endpoint* const> endpoints,
                                                     Endpoint& from, std::size_t bytes) {
  auto* const peer = static_cast<QueueEndpoint*>(&from);
  if (bytes > kSlotBytes) next_borrower_ = peer;
  const std::span<std::byte> shown = peer->shown_on_loan();
  if (shown.size() != bytes || !can_tell(endpoints, *this)) return {};
  in_slot_ = false;
  const auto at = static_cast<std::size_t>(shown.data() - memory_);
  reserved_ = (at - long_at(0)) / frame_bytes_max_;
  return shown;
}

// To one who was told of a frame here, and therefore knows the outbox, where another place is left
// for frames that are made of nobody's.
inline void Outbox::lend(std::span<Endpoint* const> told) {
  QueueEndpoint* const to = std::exchange(next_borrower_, nullptr);
  const std::size_t slot = free_long_slot();
  const bool knows = std::find(told.begin(), told.end(), to) != told.end();
  if (!knows || to->lends() || free_long_slot(slot + 1) >= kLongSlots) return;
  borrowers_[slot] = to;
  const std::size_t at = long_at(slot);
  to->lend({memory_ + at, frame_bytes_max_}, static_cast<std::uint32_t>(at / kLineBytes));
}

inline void Outbox::commit(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                           std::size_t bytes) {
  if (!in_slot_) {
    tell(endpoints, tag, bytes, long_at(reserved_), long_slots_[reserved_]);
    if (next_borrower_ != nullptr) lend(endpoints);
    return;
  }
  tell(endpoints, tag, bytes, next_ * kSlotBytes, slots_[next_]);
  next_ = (next_ + 1) % kSlots;
  if (is_free(slots_[next_])) base::own_lines(slot(next_), bytes);
}

}  // namespace tutti::transport::fifo
