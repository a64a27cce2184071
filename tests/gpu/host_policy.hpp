// host_policy.hpp: a block of a GPU as threads of a processor, so that the device's algorithm runs
// under the thread sanitizer. Stores with release and loads with acquire are those of C++; any one
// site can be weakened, and the sanitizer must then find what it guarded.
//
// A word with a flag is one access on a GPU. Here its data is an access of its own that the flag
// publishes: so the sanitizer also sees who reads and overwrites it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "runtime/gpu/call_context.hpp"

namespace tutti::runtime::gpu {

// All threads of a block, again and again.
class Barrier {
 public:
  explicit Barrier(std::uint32_t size) : size_(size) {}

  // Whether any of the threads had a flag.
  bool meet(bool flag) {
    if (size_ == 1) return flag;
    const std::uint64_t round = round_.load(std::memory_order_relaxed);
    if (flag) flags_.fetch_or(1U << round % 2, std::memory_order_relaxed);
    if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      waiting_.store(0, std::memory_order_relaxed);
      flags_.fetch_and(1U << round % 2,
                       std::memory_order_relaxed);  // the next round begins without
      round_.store(round + 1, std::memory_order_release);
    } else {
      while (round_.load(std::memory_order_acquire) == round) std::this_thread::yield();
    }
    // The last one of the next round clears it, after this thread has come there.
    return (flags_.load(std::memory_order_relaxed) >> round % 2 & 1U) != 0;
  }

 private:
  const std::uint32_t size_;
  std::atomic<std::uint32_t> waiting_ = 0;
  std::atomic<std::uint32_t> flags_ = 0;
  std::atomic<std::uint64_t> round_ = 0;
};

inline constexpr int kNoSite = -1;
// The site that is weakened in this process. Set before there are threads.
inline int weakened_site = kNoSite;

class HostPolicy {
 public:
  HostPolicy(Barrier& barrier, Team team) : barrier_(barrier), team_(team) {}

  Team team() const { return team_; }
  void sync() { barrier_.meet(false); }
  bool sync_or(bool flag) { return barrier_.meet(flag); }

  // Orders are told as constants: the sanitizer takes others for the strongest.
  template <class T>
  void store_release(Site site, T* to, T value) {
    if (is_weak(site))
      std::atomic_ref(*to).store(value, std::memory_order_relaxed);
    else
      std::atomic_ref(*to).store(value, std::memory_order_release);
  }
  template <class T>
  T load_acquire(Site site, const T* from) {
    const std::atomic_ref word(*const_cast<T*>(from));
    if (is_weak(site)) return word.load(std::memory_order_relaxed);
    return word.load(std::memory_order_acquire);
  }
  void store_relaxed(std::uint64_t* to, std::uint64_t value) {
    std::atomic_ref(*to).store(value, std::memory_order_relaxed);
  }
  std::uint64_t load_relaxed(const std::uint64_t* from) const {
    return std::atomic_ref(*const_cast<std::uint64_t*>(from)).load(std::memory_order_relaxed);
  }
  void store_first(std::uint64_t* to, std::uint64_t value) {
    std::atomic_ref(*to).store(value, std::memory_order_seq_cst);
  }
  std::uint64_t load_later(const std::uint64_t* from) const {
    const std::atomic_ref word(*const_cast<std::uint64_t*>(from));
    if (is_weak(Site::gate_see)) return word.load(std::memory_order_relaxed);
    return word.load(std::memory_order_seq_cst);
  }
  // The host's part: it opens a gate when all is mapped, or closes it and then looks who is in.
  static void set_gate(std::uint64_t* gate, std::uint64_t generation) {
    if (is_weak(Site::gate_post))
      std::atomic_ref(*gate).store(generation, std::memory_order_relaxed);
    else
      std::atomic_ref(*gate).store(generation, std::memory_order_seq_cst);
  }
  bool claim(std::uint32_t* word) {
    return std::atomic_ref(*word).exchange(1, std::memory_order_relaxed) == 0;
  }

  void store_word(FlaggedWord* to, std::uint32_t data, std::uint32_t flag) {
    to->data = data;
    store_release(Site::word_post, &to->flag, flag);
  }
  bool load_word(const FlaggedWord* from, std::uint32_t flag, std::uint32_t& data) {
    if (load_acquire(Site::word_see, &from->flag) != flag) return false;
    data = from->data;
    return true;
  }

  std::uint64_t now_ns() const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }
  void pause() { std::this_thread::yield(); }

 private:
  static bool is_weak(Site site) { return weakened_site == static_cast<int>(site); }

  Barrier& barrier_;
  Team team_;
};

}  // namespace tutti::runtime::gpu
