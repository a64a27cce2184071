// encode.hpp: from lowered programs to what a GPU interprets.
//
// A block takes instructions in their order, where the host's executor takes what can be taken, so
// the order must be right for every mixture of staged and direct messages. It is found here, once,
// for the whole world: which is why the programs of all ranks are asked for. Worlds whose memory
// can be reached from each other are not large.
//
// Knows nothing of devices.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/lowered.hpp"
#include "runtime/gpu/device_program.hpp"

namespace tutti::runtime::gpu {

// A program in one piece of memory, aligned as a device wants it.
class EncodedProgram {
 public:
  EncodedProgram() = default;
  explicit EncodedProgram(std::vector<std::uint64_t> words) : words_(std::move(words)) {}

  const ProgramHeader& header() const {
    return *reinterpret_cast<const ProgramHeader*>(words_.data());
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(words_)); }

 private:
  std::vector<std::uint64_t> words_;
};

// The programs of all ranks.
// Requires  one verified program per rank, in the order of ranks.
// Errors    unsupported: a step has too many operands, or reduces along a tree of more than three
//           sources; or no order serves all mixtures of ways.
// Cost      a look at every message of the world.
Result<std::vector<EncodedProgram>> encode(std::span<const collectives::LoweredProgram> programs);

}  // namespace tutti::runtime::gpu
