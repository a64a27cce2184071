// kernel_block.hpp: what a block of any kernel does besides its work: it hears that a call has
// failed, writes down and tells that one has, says that it is in where memory may be touched
// directly, and finds memory that peers name.
//
// A Policy says what threads, synchronisation, memory order and time are: on a GPU
// (cuda_policy.cuh) or on threads of a processor, under tests. It has
//   team()                       this thread's number, and how many there are in the block
//   sync(), sync_or(flag)        all threads of the block; the second tells whether any had a flag
//   store_release(site, p, v), load_acquire(site, p)    at the scope of the system
//   store_relaxed(p, v), load_relaxed(p)                the same
//   store_first(p, v), load_later(p)                    the same, of which no load comes before a
//                                                       store that the thread made earlier
//   claim(p)                     whether this one is the first, in this rank
//   store_word(p, data, flag), load_word(p, flag, data) both halves at once
//   now_ns(), pause()
//
// Knows nothing of what the block works on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/gpu/device_world.hpp"
#include "runtime/gpu/sites.hpp"

namespace tutti::runtime::gpu {

template <class Policy>
class KernelBlock {
 public:
  TUTTI_HOST_DEVICE KernelBlock(Policy& policy, const DeviceWorld& world)
      : policy_(policy), world_(world) {}

 protected:
  // What somebody has told this rank of a failure, or 0.
  TUTTI_HOST_DEVICE std::uint64_t notice() const {
    return policy_.load_relaxed(world_.notices[world_.rank]);
  }

  // Writes down and tells the first failure of this rank; further ones go unsaid.
  TUTTI_HOST_DEVICE void post(const Failure& failure) {
    ErrorRecord& error = *world_.error;
    if (!policy_.claim(&error.claimed)) return;
    static_cast<Failure&>(error) = failure;
    policy_.store_release(Site::error_post, &error.ready, std::uint64_t{1});
    for (std::uint32_t rank = 0; rank < world_.shape.ranks; ++rank)
      policy_.store_relaxed(world_.notices[rank], make_notice(failure.why, failure.culprit));
  }

  // Says that somebody is in before it looks at gates: the host closes one before it looks who is
  // in. So one of the two sees the other.
  TUTTI_HOST_DEVICE void begin_visit(std::uint32_t channel) {
    std::uint64_t* const word = &world_.visits[channel];
    policy_.store_first(word, policy_.load_relaxed(word) + 1);
  }

  // Whether the call went well or not: all threads have come here from the same sync, behind which
  // none of them touches anything of a peer's but control memory.
  TUTTI_HOST_DEVICE void end_visit(std::uint32_t channel) {
    std::uint64_t* const word = &world_.visits[channel];
    policy_.store_release(Site::visit_post, word, policy_.load_relaxed(word) + 1);
  }

  // Whether peers may be told of own memory. Requires  it is within a visit.
  TUTTI_HOST_DEVICE bool is_open(const MemoryRef& memory) const {
    return memory.generation == 0 ||
           policy_.load_later(&world_.gates[memory.region]) == memory.generation;
  }

  // Memory that a peer has told of, as it is mapped here; null: it cannot be addressed.
  TUTTI_HOST_DEVICE std::byte* memory_of(std::uint32_t rank, const MemoryRef& memory) const {
    if (memory.region == 0 || memory.region >= world_.regions) return nullptr;
    const std::size_t region = std::size_t{rank} * world_.regions + memory.region;
    // Past a cache that may hold what stood there before the peer's region came.
    const std::uint64_t base = policy_.load_relaxed(&world_.region_bases[region]);
    return reinterpret_cast<std::byte*>(base + memory.offset);
  }

  Policy& policy_;
  const DeviceWorld& world_;
};

}  // namespace tutti::runtime::gpu
