// pinned.hpp: page-locked host memory that grows and is used again: words that streams wait for,
// and the memory in which calls of a device's memory are made.
//
// What has been made stays until its owner goes: to unlock memory can mean to wait for the whole
// device, and what the device does may be waiting for us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/cuda/driver.hpp"
#include "tutti/communicator.hpp"

namespace tutti::nccl {

// Lifetime  until nothing enqueued uses it; a context of the driver is current at the end.
class PinnedArena {
 public:
  // At least so many bytes, aligned to a page; the memory of an earlier call is still valid, and is
  // the same where it is large enough. Null for no bytes, as long as there is no memory.
  Result<std::byte*> reserve(const transport::cuda::Driver& driver, std::size_t bytes);

 private:
  // Memory that ranks of this host can reach directly. Where the driver does not lock such memory,
  // memory of the driver.
  struct Block {
    struct Deallocate {
      void operator()(void* place) const { deallocate(place); }
    };
    std::unique_ptr<void, Deallocate> memory;
    transport::cuda::PinnedMemory pinned;
  };
  static Result<Block> make_block(const transport::cuda::Driver& driver, std::size_t bytes);

  std::vector<Block> blocks_;  // the last is the one in use
};

// Words of zero, each in a cache line of its own. Lifetime: as PinnedArena.
class PinnedCells {
 public:
  Result<std::uint32_t*> take(const transport::cuda::Driver& driver);
  // Requires  a word that is zero, and that no stream will look at or change.
  void give_back(std::uint32_t* cell) { free_.push_back(cell); }

 private:
  std::vector<transport::cuda::PinnedMemory> pages_;
  std::vector<std::uint32_t*> free_;
};

}  // namespace tutti::nccl
