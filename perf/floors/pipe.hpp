// pipe.hpp: two-way traffic between the workers through slots of shared memory, small enough to
// stay in the cache: each fills slots of its own and empties those of the other.
#pragma once

#include <algorithm>

#include "perf/floors/workers.hpp"

namespace tutti::floors {

class Pipe {
 public:
  static constexpr std::size_t kMostChunk = std::size_t{256} << 10;
  static constexpr std::uint64_t kSlots = 3;

  // Takes kBytes of shared memory, zeros at first.
  Pipe(const Workers& workers, std::byte* memory)
      : mine_(reinterpret_cast<End*>(memory)[workers.index()]),
        theirs_(reinterpret_cast<End*>(memory)[workers.other()]) {}

  // A slot of ours that the other has emptied; full() says that it is filled.
  std::byte* empty() {
    if (filled_ >= kSlots) wait_for(theirs_.emptied.value, filled_ - kSlots + 1);
    return mine_.slots[filled_ % kSlots];
  }
  void full() { mine_.filled.value.store(++filled_, std::memory_order_release); }

  // A slot that the other has filled; taken() says that we are done with it.
  std::byte* next() {
    wait_for(theirs_.filled.value, emptied_ + 1);
    return theirs_.slots[emptied_ % kSlots];
  }
  void taken() { mine_.emptied.value.store(++emptied_, std::memory_order_release); }

 private:
  struct End {
    Flag filled;   // of its owner's slots
    Flag emptied;  // of the other's
    // Slots do not begin at the same place of a page; see the buffers in floor_peer.cc.
    alignas(64) std::byte slots[kSlots][kMostChunk + 3 * 64];
  };

  End& mine_;
  End& theirs_;
  std::uint64_t filled_ = 0;
  std::uint64_t emptied_ = 0;

 public:
  static constexpr std::size_t kBytes = (2 * sizeof(End) + 4095) / 4096 * 4096;
};

}  // namespace tutti::floors
