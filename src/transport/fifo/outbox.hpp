// outbox.hpp: a frame that several peers get alike, written once.
//
// Through queues alone a rank would write it once for each of them, into lines that each have to
// be fetched from the core that read them last, and peers that share a core would fetch it once
// each. So it lies in memory that all peers can reach, and each peer's queue has a cell that says
// where. Frames follow those of the queue in their order, and are released like them: so much of
// the outbox is free again as all peers have released.
//
// Does not know how peers reach memory; their endpoints do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/cache_line.hpp"
#include "transport/fifo/endpoint.hpp"
#include "transport/fifo/queue.hpp"

namespace tutti::transport::fifo {

class Outbox {
 public:
  static constexpr std::size_t kSlotBytes = sizeof(Cell);  // whole lines, for what a cell can hold
  static constexpr std::size_t kSlots = 16;
  static constexpr std::size_t kBytes = kSlots * kSlotBytes;

  // Lifetime  of `memory`, kBytes of it: until nobody reads what was sent.
  explicit Outbox(std::byte* memory) : memory_(memory) {}
  std::byte* memory() const { return memory_; }

  // As Endpoint::send, to all of them or to none. False also where one of them cannot reach it.
  // Requires  endpoints of one rank to different peers, QueueEndpoints.
  bool send(std::span<Endpoint* const> endpoints, std::uint32_t tag,
            std::span<const std::byte> head, std::span<const std::byte> body);

 private:
  struct Use {
    QueueEndpoint* endpoint = nullptr;
    std::uint64_t frame = 0;
  };

  bool is_free(const std::vector<Use>& slot) const;

  std::byte* memory_;
  std::array<std::vector<Use>, kSlots> slots_;  // by whom they were last used
  std::size_t next_ = 0;
};

inline bool Outbox::is_free(const std::vector<Use>& slot) const {
  for (const Use& use : slot)
    if (!use.endpoint->is_released(use.frame)) return false;
  return true;
}

inline bool Outbox::send(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                         std::span<const std::byte> head, std::span<const std::byte> body) {
  const std::size_t bytes = head.size() + body.size();
  std::vector<Use>& slot = slots_[next_];
  if (bytes > kSlotBytes || !is_free(slot)) return false;
  for (Endpoint* endpoint : endpoints)
    if (!static_cast<QueueEndpoint*>(endpoint)->may_post(*this)) return false;
  std::byte* const place = memory_ + next_ * kSlotBytes;
  for (std::size_t line = 0; line < bytes; line += kLineBytes) base::claim_line(place + line);
  std::memcpy(place, head.data(), head.size());
  std::memcpy(place + head.size(), body.data(), body.size());
  slot.clear();
  for (Endpoint* endpoint : endpoints) {
    auto* const queue = static_cast<QueueEndpoint*>(endpoint);
    queue->post(tag, bytes, static_cast<std::uint32_t>(next_ * kSlotBytes / kLineBytes));
    slot.push_back({queue, queue->sent()});
  }
  next_ = (next_ + 1) % kSlots;
  return true;
}

}  // namespace tutti::transport::fifo
