// peer.hpp: what the harness asks of a library, and all that it knows of one. Each contender is a
// program of its own that links the harness and exactly one file that implements this.
//
// Knows nothing of clocks or sizes: how a call is measured is the same for all.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tutti::comparison {

enum class Memory {
  plain,    // malloc, as most programs have it
  library,  // whatever the library itself hands out
};

// One rank's hold on a library.
//
// Errors  what fails says why on stderr and returns false or null.
class Peer {
 public:
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Name, version and how the ranks talk, in one line.
  virtual std::string describe() const = 0;

  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) = 0;

  // The sum over all ranks, on all ranks, out of place.
  virtual bool all_reduce(const float* input, float* output, std::size_t count) = 0;
};

// Joins the ranks that the launcher started. Null: it could not be, and why is on stderr.
std::unique_ptr<Peer> join(int* argc, char*** argv, Memory memory);

}  // namespace tutti::comparison
