// arrival.hpp: the record with which a rank enters a call, as its peers see it: what it called (so
// that different calls are an error and not a hang) and where its memory lies (so that both ends of
// a message decide alike whether it travels direct).
//
// Knows the record's bytes. They come from a peer, so decoding checks everything.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/cache_line.hpp"
#include "runtime/special_reduction.hpp"
#include "tutti/transport.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime {

// What all ranks of a communicator must agree on for one call.
struct Signature {
  std::uint32_t sequence = 0;  // of collective calls on the communicator
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  bool direct = false;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t plan_hash = 0;
  SpecialKind special = SpecialKind::none;  // what is summed is more than `op` says
  bool varied = false;  // blocks differ in size: `count` is all of them, where all ranks know it
  // Stands for all collective calls before this one. A call in which a rank only sends is over
  // before a peer that makes another one can be heard of; so the next one tells.
  std::uint32_t history = 0;

  friend bool operator==(const Signature&, const Signature&) = default;
};

// The history of the call that follows one.
inline std::uint32_t history_after(const Signature& s) {
  const std::uint64_t small =
      static_cast<std::uint64_t>(s.collective) | static_cast<std::uint64_t>(s.type) << 8 |
      static_cast<std::uint64_t>(s.op) << 16 | static_cast<std::uint64_t>(s.special) << 24 |
      static_cast<std::uint64_t>(s.direct) << 32 | static_cast<std::uint64_t>(s.varied) << 33 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.root)) << 34;
  std::uint64_t mixed = (s.plan_hash + s.history) * 0x9e3779b97f4a7c15U;
  mixed = ((mixed ^ mixed >> 32) + s.count) * 0xbf58476d1ce4e5b9U;
  mixed = ((mixed ^ mixed >> 29) + small) * 0x94d049bb133111ebU;
  return static_cast<std::uint32_t>(mixed >> 32);
}

// "ranks made different calls: rank 0 called ..., rank 1 called ...", or that they did before.
std::string disagreement(Rank rank, const Signature& signature, Rank other,
                         const Signature& theirs);

// "all_reduce #7: 1024 x float, sum, root 0, plan 1a2b3c4d5e6f7081"
std::string to_string(const Signature& signature);

// Indexed by Buffer.
using MemoryReferences = std::array<MemoryReference, 3>;

// How the copies of a direct call travel, where there is a choice (pull_choice.hpp).
enum class CopyWay : std::uint8_t {
  stored,    // by who has the data; to plain memory, through queues
  pulled,    // loaded by who needs them
  attached,  // the same, and the system copies what is plain memory
};

struct CopyWays {
  CopyWay now = CopyWay::stored;   // in this call; the same on all ranks
  CopyWay next = CopyWay::stored;  // in the next one of its kind, by the word of who leads

  friend bool operator==(const CopyWays&, const CopyWays&) = default;
};

struct Arrival {
  Signature signature;
  MemoryReferences memory{};  // only sent when signature.direct, and only what can be addressed
  CopyWays copies;            // only sent when signature.direct
};

inline constexpr std::size_t kArrivalBytes = 32;
// What a record takes up before a message of so many bytes in one frame. Longer frames begin where
// cache lines do; then so does the message, as most buffers do. Otherwise hardly a store of a copy
// would fit a line, and copying instructions are slow where the destination lies less than a line
// ahead of the source, modulo pages.
inline constexpr std::size_t kRecordRoomMax = base::kLineBytes;
inline constexpr std::size_t record_room(std::size_t message_bytes) {
  constexpr std::size_t kLongBytes = 4096;  // those of which not a part is in a queue's cell
  return message_bytes > kLongBytes ? kRecordRoomMax : kArrivalBytes;
}
inline constexpr std::size_t kSequenceOffset = 2;  // within it
inline constexpr std::size_t kCollectiveOffset = 6;
inline constexpr std::size_t kHistoryOffset = 20;
inline constexpr std::uint64_t kCountMax = (std::uint64_t{1} << 48) - 1;  // that a record can tell
inline constexpr std::size_t kReferenceBytes = 12;
inline constexpr std::size_t kDirectArrivalBytes =
    kArrivalBytes + 1 + 3 * kReferenceBytes;  // at most

// Of the record; with one reference it fits a cache line beside a frame's header.
std::size_t encoded_bytes(const Arrival& arrival);

// The part of a direct call's record that is the rank's own; with it, the record has that many
// bytes. Requires  room for kDirectArrivalBytes - kArrivalBytes.
std::size_t encode_memory(const MemoryReferences& memory, CopyWays copies, std::byte* out);

// That part of a record, which has kArrivalBytes before it. Nothing when the bytes are none.
std::optional<MemoryReferences> decode_memory(std::span<const std::byte> record);
// Requires  decode_memory(record).
CopyWays decode_copies(std::span<const std::byte> record);

// That part of a record, in order to know it again: programs use the same few buffers.
class KnownMemory {
 public:
  // Requires  decode_memory(record).
  void remember(std::span<const std::byte> record);
  void forget() { bytes_ = 0; }
  // Whether decode_memory() gives what it gave of the one that is remembered. How it copies may
  // differ.
  bool is_in(std::span<const std::byte> record) const;

 private:
  std::array<std::byte, kDirectArrivalBytes - kArrivalBytes> memory_{};
  std::size_t bytes_ = 0;  // 0: none
};

// The part of the record that all ranks of a call share, bit for bit.
void encode_signature(const Signature& signature, std::span<std::byte, kArrivalBytes> out);

// The same of a signature of which only the number and the history differ from what `record` holds.
inline void renumber(const Signature& signature, std::span<std::byte, kArrivalBytes> record) {
  std::memcpy(record.data() + kSequenceOffset, &signature.sequence, sizeof signature.sequence);
  std::memcpy(record.data() + kHistoryOffset, &signature.history, sizeof signature.history);
}

// Puts it there, into so much room. Gives where that ends.
inline std::byte* put_record(std::span<const std::byte, kArrivalBytes> record, std::size_t room,
                             std::byte* to) {
  std::memcpy(to, record.data(), kArrivalBytes);
  std::memset(to + kArrivalBytes, 0, room - kArrivalBytes);
  return to + room;
}

// Requires  out.size() >= encoded_bytes(arrival).
void encode(const Arrival& arrival, std::span<std::byte> out);

// The part that all ranks share, also of a record without the memory references that belong to it.
// Nothing when the bytes are none.
std::optional<Signature> decode_signature(std::span<const std::byte> bytes);

// Nothing when the bytes are no arrival record.
std::optional<Arrival> decode_arrival(std::span<const std::byte> bytes);

}  // namespace tutti::runtime
