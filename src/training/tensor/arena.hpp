// arena.hpp: where tensors' memory comes from: it counts bytes by what they are for, and keeps
// freed blocks for the next tensor of that size, so that a step after the first one asks the
// system for nothing.
//
// "Memory per rank" in tables and proofs is what an arena counted.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace tutti::training {

// What memory is for.
enum class MemoryKind : unsigned char {
  parameter,      // what the model computes with
  gradient,       // of all micro-batches so far, or of the one that runs
  optimizer,      // moments and master copies
  activation,     // what forward keeps for backward, and what flows between modules
  communication,  // packed for, or arriving from, other ranks
};

inline constexpr std::size_t kMemoryKinds = 5;

std::string_view to_string(MemoryKind kind);

// Where an arena gets its blocks. Both are called under the arena's lock.
struct MemorySource {
  std::function<void*(std::size_t bytes)> allocate;  // 64-byte aligned, or null: none left
  std::function<void(void* memory)> free;

  static MemorySource of_the_system();
};

// Threading  any thread.
// Lifetime   blocks may outlive the arena.
class Arena {
 public:
  explicit Arena(MemorySource source = MemorySource::of_the_system());
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Uninitialised memory, 64-byte aligned, counted as `kind` until the last owner lets go.
  // Ends the process with a text when the system has none left.
  std::shared_ptr<std::byte> allocate(MemoryKind kind, std::size_t bytes);

  // Bytes that tensors asked for (not what blocks were rounded up to).
  std::size_t bytes(MemoryKind kind) const;  // now
  std::size_t peak(MemoryKind kind) const;   // the most since the last reset_peaks()
  std::size_t total_peak() const;            // the most of all kinds together
  void reset_peaks();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tutti::training
