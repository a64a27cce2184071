// attach.hpp: the system's copy from one process's memory to another's, which needs one pass where
// slots need two.
#pragma once

#include "perf/comparison/peer.hpp"
#include "perf/floors/workers.hpp"

namespace tutti::floors {

class Attach {
 public:
  static constexpr std::size_t kBytes = 4096;

  // Takes kBytes of shared memory, zeros at first.
  Attach(Workers& workers, std::byte* memory)
      : workers_(workers), told_(reinterpret_cast<Told*>(memory)) {}

  // Both tell where their buffers are; returns when the other has.
  comparison::Buffers enter(const comparison::Buffers& mine);

  // Of the other's memory. Ends the process when the system refuses.
  void read(std::byte* to, const std::byte* other, std::size_t bytes) const;
  void write(std::byte* other, const std::byte* from, std::size_t bytes) const;

 private:
  struct alignas(kPairOfLines) Told {
    comparison::Buffers buffers;
  };

  Workers& workers_;
  Told* told_;
};

}  // namespace tutti::floors
