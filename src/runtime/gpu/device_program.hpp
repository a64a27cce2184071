// device_program.hpp: a lowered program as a GPU reads it: one piece of memory without pointers,
// so that it can be copied to a device as it is. encode.hpp makes it, interpret.hpp runs it.
//
// A block takes the instructions one after the other, once for every slice. Their order is one in
// which no rank ever waits for what comes later on another one (encode.cc says how it is found), so
// nothing needs to be tried twice and a wait is a loop on one word.
//
// Knows nothing of addresses, sizes or time: those are bound when a call starts (device_world.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/gpu/qualifiers.hpp"

namespace tutti::runtime::gpu {

inline constexpr std::uint32_t kProgramVersion = 1;

// Sources and destinations of one step together.
inline constexpr std::uint32_t kOperandsMax = 160;

// Numbers that keep all arithmetic with chunks within 64 bits.
inline constexpr std::uint64_t kCountMax = std::uint64_t{1} << 44;
inline constexpr std::uint32_t kPartsMax = 1U << 16;

enum class InstructionKind : std::uint8_t {
  grant,   // tells the peer that it may store where operand `operands` lands
  copy,    // point 1 and points 3 to 5 of a step (lowered.hpp)
  reduce,  // the same
  await,   // point 6, for all that was offered; done in the last slice only
};

struct Instruction {
  InstructionKind kind = InstructionKind::copy;
  bool finish = false;        // of a reduce: all contributions are in
  std::uint16_t pieces = 1;   // chunks of every operand
  std::uint16_t sources = 0;  // operands, from `operands` on; destinations follow them
  std::uint16_t destinations = 0;
  std::uint32_t operands = 0;
  std::uint32_t awaits = 0;      // what must have been taken before: from here
  std::uint32_t awaits_end = 0;  // up to here
  std::uint32_t chunk = 0;       // any operand's first in memory: it says how long the pieces are
  std::uint32_t step = 0;        // of the lowered program, for people
};

enum class OperandKind : std::uint8_t { memory, message };
// Of a message; as collectives::DirectForm.
enum class Direct : std::uint8_t { none, pull, push };

struct DeviceOperand {
  OperandKind kind = OperandKind::memory;
  Direct form = Direct::none;
  std::uint8_t buffer = 0;    // of memory; of a message: that its direct form touches
  std::uint8_t ready = 0;     // of a message: a bit set of Ready
  std::uint32_t chunk = 0;    // the first, in that buffer
  std::uint32_t peer = 0;     // of a message: index into the program's peers
  std::uint32_t ordinal = 0;  // among all messages of its directed stream
};

// Whether what a direct message touches is ready as soon as its owner has entered the call.
inline constexpr std::uint8_t kReadyAtArrival = 1;
// ... only if a message of the other direction is pulled: one that lies in that buffer (plus one).
inline constexpr int kReadyBesideShift = 1;

// A message to `peer` that, if it is pulled, must have been taken.
struct Await {
  std::uint32_t peer = 0;
  std::uint32_t ordinal = 0;
  std::uint32_t buffer = 0;  // in which it is offered
};

struct ProgramPeer {
  std::uint32_t rank = 0;
  std::uint32_t sends = 0;     // messages to it, per slice
  std::uint32_t receives = 0;  // and from it
  std::uint32_t ours = 0;      // which of our buffers direct messages would touch, by bits
  std::uint32_t theirs = 0;    // and which of the peer's
};

// At the beginning of a program; the tables follow, each at its offset in bytes.
struct ProgramHeader {
  std::uint32_t version = kProgramVersion;
  std::uint32_t bytes = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t chunks = 1;  // per block
  std::uint32_t message_chunks_max = 1;
  std::uint32_t scratch_blocks = 0;
  std::uint32_t peer_count = 0;
  std::uint32_t instruction_count = 0;
  std::uint32_t peers_at = 0;
  std::uint32_t instructions_at = 0;
  std::uint32_t operands_at = 0;
  std::uint32_t awaits_at = 0;

  template <typename T>
  TUTTI_HOST_DEVICE const T* table(std::uint32_t at) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(this) + at);
  }
  TUTTI_HOST_DEVICE const ProgramPeer* peers() const { return table<ProgramPeer>(peers_at); }
  TUTTI_HOST_DEVICE const Instruction* instructions() const {
    return table<Instruction>(instructions_at);
  }
  TUTTI_HOST_DEVICE const DeviceOperand* operands() const {
    return table<DeviceOperand>(operands_at);
  }
  TUTTI_HOST_DEVICE const Await* awaits() const { return table<Await>(awaits_at); }
};

static_assert(sizeof(Instruction) == 28 && sizeof(DeviceOperand) == 16 && sizeof(Await) == 12 &&
                  sizeof(ProgramPeer) == 20 && sizeof(ProgramHeader) == 52,
              "devices read these as they lie");

}  // namespace tutti::runtime::gpu
