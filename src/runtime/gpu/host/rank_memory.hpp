// rank_memory.hpp: what a rank of a device world owns on its device as long as the world lives:
// control memory, where it stands with its peers, its view of the world, and the record in which
// its kernels write why they failed.
//
// Knows nothing of calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/gpu/host/device.hpp"

namespace tutti::runtime::gpu {

// All ranks are in one process, whose devices and host have one space of addresses, so that one
// region holds all memory: its base is the same everywhere, and where nothing lies.
inline constexpr std::uint32_t kEverywhere = 1;
inline constexpr std::uint32_t kRegionCount = 2;  // with the one that is none
inline constexpr std::uintptr_t kEverywhereBase = 4096;

// How ranks reach each other's control memory, by rank.
struct Links {
  std::vector<std::byte*> inboxes;         // what they tell this one
  std::vector<std::byte*> outboxes;        // what this one tells them
  std::vector<std::byte*> inbox_payloads;  // of the slots of those
  std::vector<std::byte*> outbox_payloads;
  std::vector<std::uint64_t*> notices;  // the first words
};

// Through control memory; of those whose is null, none yet.
Links direct_links(const ControlShape& shape, Rank rank, std::span<std::byte* const> controls);

// Movable. Lifetime  not longer than its device's.
class RankMemory {
 public:
  // Control memory, zeroed. `regions`: how many each rank has at most; where there are more than
  // kRegionCount, the others come and go. Blocking.
  static Result<RankMemory> make(Device& device, const ControlShape& shape, Rank rank,
                                 std::uint32_t regions = kRegionCount);
  RankMemory(RankMemory&& other) noexcept;
  RankMemory& operator=(RankMemory&&) = delete;
  // Blocking: memory of a device goes when nothing uses it.
  ~RankMemory();

  Device& device() const { return *device_; }
  std::byte* control() const { return memory_; }
  const DeviceWorld* world() const { return world_; }
  std::size_t bytes() const { return bytes_; }
  const ControlShape& shape() const { return shape_; }

  // Tells the rank where it meets all ranks. Blocking.
  Status connect(const Links& links);

  // Words of the host that stand behind the control memory, on each rank at the same place: by
  // peer, whether it has left the world for good. Tells the rank whose control memory this is.
  // Blocking.
  Status say_goodbye(std::byte* control) const;
  // Whether the peer has said so. Blocking.
  Result<bool> has_left(Rank peer) const;

  // ---- Regions that come and go. Blocking. ----

  // Where a region of the peer's is mapped here; null: nowhere (any more).
  Status set_region(Rank peer, std::uint32_t region, const std::byte* base) const;
  // Which generation of an own region the peers may be told of; 0: none.
  Status set_gate(std::uint32_t region, std::uint32_t generation) const;
  // How often a block of the channel has entered and left calls that may touch memory directly: an
  // odd number while one is in.
  Result<std::uint64_t> visits(std::uint32_t channel) const;

  // The rank's first failure, as far as it is known by now; `why` is none before.
  ErrorRecord error() const;
  // Makes all blocks of the rank leave, now and in later calls. Any thread.
  Status give_notice(Why why, std::uint32_t culprit) const;
  // The same for the peer whose control memory this is.
  Status give_notice_to(std::byte* control, Why why, std::uint32_t culprit) const;

 private:
  RankMemory(Device& device, const ControlShape& shape, Rank rank, std::uint32_t regions)
      : device_(&device), shape_(shape), rank_(rank), regions_(regions) {}

  Device* device_;
  ControlShape shape_;
  Rank rank_;
  std::uint32_t regions_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  const DeviceWorld* world_ = nullptr;
  ErrorRecord* error_ = nullptr;  // in memory that the host reads, too
};

}  // namespace tutti::runtime::gpu
