// peer.hpp: what the harness asks of a library, and all that it knows of one. Each contender is a
// program of its own that links the harness and exactly one file that implements this.
//
// Knows nothing of clocks or sizes: how a call is measured is the same for all.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "perf/comparison/work.hpp"

namespace tutti::comparison {

enum class Memory {
  plain,    // whole pages of malloc's family
  library,  // whatever the library itself hands out
};

// Plain memory begins where a page does, as in the benchmarks of MPI and in the floors. Where
// malloc() happens to put a buffer within a cache line decides how fast many copies are, and it
// depends on what the process allocated and freed before: on the order of the measurements, not the
// contender.
inline void* allocate_plain(std::size_t bytes) {
  constexpr std::size_t kPageBytes = 4096;
  return std::aligned_alloc(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
}

// A rank's memory for a call. Broadcast has one buffer, which is both.
struct Buffers {
  void* input = nullptr;
  void* output = nullptr;
};

struct Call {
  Operation operation = Operation::all_reduce;
  Type type = Type::f32;
  std::size_t count = 0;           // elements of a block, see Work
  std::span<const Buffers> ranks;  // of each rank that the peer holds

  const void* input() const { return ranks.front().input; }
  void* output() const { return ranks.front().output; }
  std::size_t block_bytes() const { return count * size_of(type); }
};

// One process's hold on a library: that of one rank, but for a floor, whose two workers do the work
// of all ranks.
//
// Errors  what fails says why on stderr and returns false or null.
class Peer {
 public:
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;

  virtual int rank() const = 0;  // the first of those that it holds
  virtual int size() const = 0;
  virtual int held() const { return 1; }

  // Name, version and how the ranks talk, in one line.
  virtual std::string describe() const = 0;

  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) = 0;

  // Why this library has no such operation; empty if it has.
  virtual std::string unable(Operation, Type) const { return {}; }

  // A floor knows several ways to do the same; the harness tries them all and measures the best.
  // The same on all ranks; a library has one, without a name.
  virtual std::vector<std::string> ways(const Call&) { return {""}; }
  virtual void choose(std::size_t /*way*/) {}

  // Out of place but for broadcast; sums are sums.
  virtual bool run(const Call& call) = 0;
};

// Joins the ranks that the launcher started. Null: it could not be, and why is on stderr.
std::unique_ptr<Peer> join(int* argc, char*** argv, Memory memory);

}  // namespace tutti::comparison
