// workers.hpp: the two processes of a floor, one per core, and the memory that they share.
//
// Processes, not threads, because ranks of the libraries that floors are held against are
// processes: memory that two of them share has small pages here, and each has its own page table. A
// thread's larger pages would be a floor that none of them can stand on.
//
// Knows nothing of operations.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::floors {

inline constexpr std::size_t kPairOfLines = 128;  // which prefetchers fetch together

// A number that one worker counts up and the other waits for.
struct alignas(kPairOfLines) Flag {
  std::atomic<std::uint64_t> value;
};

// Returns when `value` has reached `target`; makes no system call if that is soon.
void wait_for(const std::atomic<std::uint64_t>& value, std::uint64_t target);

// Puts this process onto the n-th CPU that it may use, if there are that many.
void pin(int index);

// One worker's view of both. Both call the same members in the same order.
class Workers {
 public:
  static constexpr std::size_t kCommonBytes = std::size_t{16} << 20;

  // Becomes two processes; the result is the caller's part. Each may use `heap` bytes of memory
  // that both share; they are only reserved. Call it before there are threads.
  static std::unique_ptr<Workers> split(std::size_t heap);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();  // the first one waits for the second, and fails if that failed

  int index() const { return index_; }
  int other() const { return 1 - index_; }
  int other_process() const { return other_process_; }

  // Shared by both, zeros at first; the first pages are those of this class.
  std::byte* common() const { return memory_ + kOwnBytes; }
  std::byte* heap(int worker) const {
    return memory_ + kOwnBytes + kCommonBytes + static_cast<std::size_t>(worker) * heap_;
  }

  // "I am here", and a wait until the other has said that as often.
  void signal() { flag(index_).value.store(++signals_, std::memory_order_release); }
  void await() const { wait_for(flag(other()).value, signals_); }
  void meet() {
    signal();
    await();
  }

 private:
  static constexpr std::size_t kOwnBytes = 4096;

  Workers(std::byte* memory, std::size_t heap) : memory_(memory), heap_(heap) {}
  Flag& flag(int worker) const { return reinterpret_cast<Flag*>(memory_)[worker]; }

  std::byte* memory_;
  std::size_t heap_;
  int index_ = 0;
  int other_process_ = 0;
  std::uint64_t signals_ = 0;
};

}  // namespace tutti::floors
