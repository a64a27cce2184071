// cuda_policy.cuh: a block of CUDA threads as the interpreter sees it (call_context.hpp): words
// that ranks tell each other go through loads with acquire and stores with release at the scope of
// the system, which peers on other GPUs, and the host, belong to.
//
// Barriers of a block order its threads, and memory order is cumulative: what all threads have
// stored before a barrier is released by the one that tells, and what it has acquired is seen by
// all behind the next one.
//
// Knows nothing of programs. For nvcc alone; other compilers find nothing here.
#pragma once

#if defined(__CUDACC__)

#include <cstdint>

#include "runtime/gpu/call_context.hpp"

namespace tutti::runtime::gpu {

class CudaPolicy {
 public:
  __device__ __forceinline__ Team team() const { return {threadIdx.x, blockDim.x}; }

  __device__ __forceinline__ void sync() { __syncthreads(); }
  __device__ __forceinline__ bool sync_or(bool flag) { return __syncthreads_or(flag) != 0; }

  __device__ __forceinline__ void store_release(Site, std::uint64_t* to, std::uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  __device__ __forceinline__ std::uint64_t load_acquire(Site, const std::uint64_t* from) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ __forceinline__ void store_relaxed(std::uint64_t* to, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  __device__ __forceinline__ std::uint64_t load_relaxed(const std::uint64_t* from) const {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ __forceinline__ void store_first(std::uint64_t* to, std::uint64_t value) {
    store_relaxed(to, value);
    asm volatile("fence.sc.sys;" ::: "memory");
  }
  __device__ __forceinline__ std::uint64_t load_later(const std::uint64_t* from) {
    return load_acquire(Site::gate_see, from);
  }
  __device__ __forceinline__ bool claim(std::uint32_t* word) {
    return atomicCAS(word, 0U, 1U) == 0;
  }

  // Eight aligned bytes are one access: the flag says that the data is there.
  __device__ __forceinline__ void store_word(FlaggedWord* to, std::uint32_t data,
                                             std::uint32_t flag) {
    store_relaxed(reinterpret_cast<std::uint64_t*>(to), std::uint64_t{flag} << 32 | data);
  }
  __device__ __forceinline__ bool load_word(const FlaggedWord* from, std::uint32_t flag,
                                            std::uint32_t& data) {
    const std::uint64_t both = load_relaxed(reinterpret_cast<const std::uint64_t*>(from));
    data = static_cast<std::uint32_t>(both);
    return static_cast<std::uint32_t>(both >> 32) == flag;
  }

  __device__ __forceinline__ std::uint64_t now_ns() const {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
  }
  __device__ __forceinline__ void pause() {}
};

}  // namespace tutti::runtime::gpu

#endif
