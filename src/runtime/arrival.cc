// Writes and reads arrival records, so that the bytes do not depend on padding.
#include "runtime/arrival.hpp"

#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "base/assert.hpp"

namespace tutti::runtime {
namespace {

constexpr std::uint64_t kMagic = 0x5441;  // "TA"
constexpr std::size_t kRegionBytes = sizeof(MemoryReference::region);
constexpr std::size_t kOffsetBytes = sizeof(MemoryReference::offset);
static_assert(kReferenceBytes == kRegionBytes + kOffsetBytes);

// Kinds of calls. Blocks that differ in size never travel direct.
enum Kind : std::uint8_t { kPlain, kDirect, kVaried };

// The shared part is four words. From the lowest bits up: the first holds the magic number (16),
// the sequence (32), collective and type (8 each); the second operation and kind (8 each), the root
// (32) and the count's lowest 16 bits; the third the count's other 32 and the history (32); the
// fourth the plan. Put together in registers, because every call does it.
using Words = std::array<std::uint64_t, kArrivalBytes / sizeof(std::uint64_t)>;

constexpr int kCountBitsBelow = 16;
static_assert(kSequenceOffset * 8 == 16 && kCollectiveOffset * 8 == 48 &&
              kHistoryOffset * 8 == 2 * 64 + 32);
static_assert(std::endian::native == std::endian::little);

// Behind it, in a direct call: a byte with a bit for each buffer that can be addressed and two for
// each of CopyWays, and the buffers' references in the order of the bits.
constexpr unsigned kBuffers = 7;
constexpr int kCopiesNowBit = 3;
constexpr int kCopiesNextBit = 5;

unsigned copy_way(unsigned said, int bit) { return said >> bit & 3; }
bool are_copy_ways(unsigned said) {
  constexpr auto kLast = static_cast<unsigned>(CopyWay::attached);
  return said >> (kCopiesNextBit + 2) == 0 && copy_way(said, kCopiesNowBit) <= kLast &&
         copy_way(said, kCopiesNextBit) <= kLast;
}

unsigned buffers_told(const MemoryReferences& memory) {
  unsigned told = 0;
  for (std::size_t b = 0; b < memory.size(); ++b)
    if (memory[b].addressable()) told |= 1U << b;
  return told;
}

std::size_t direct_bytes(unsigned told) {
  const unsigned buffers = (told & 1) + (told >> 1 & 1) + (told >> 2 & 1);
  return kArrivalBytes + 1 + buffers * kReferenceBytes;
}

std::uint64_t bits(std::uint64_t word, int from, int count) {
  return word >> from & ((std::uint64_t{1} << count) - 1);
}

template <typename Enum>
std::uint64_t number(Enum value) {
  return static_cast<std::uint64_t>(value);
}

// Operations on the wire: every ReduceOp, then the special kinds.
constexpr std::uint64_t kPlainOps = std::size(kAllReduceOps);

std::string_view operation_name(const Signature& s) {
  if (s.special == SpecialKind::premul_sum) return "premul_sum";
  return s.special == SpecialKind::custom ? "custom operation" : tutti::to_string(s.op);
}

}  // namespace

std::string to_string(const Signature& s) {
  if (s.varied && s.collective == Collective::send_recv)
    return fmt::format("group of sends and receives, plan {:016x}", s.plan_hash);
  std::string text =
      fmt::format("{}{} #{}: {} x {}", tutti::to_string(s.collective), s.varied ? "_v" : "",
                  s.sequence, s.count, tutti::to_string(s.type));
  if (is_reduction(s.collective)) text += fmt::format(", {}", operation_name(s));
  if (has_root(s.collective)) text += fmt::format(", root {}", s.root);
  return text + fmt::format(", plan {:016x}", s.plan_hash);
}

std::string disagreement(Rank rank, const Signature& signature, Rank other,
                         const Signature& theirs) {
  Signature same = theirs;
  same.history = signature.history;
  if (same == signature && theirs.history != signature.history)
    return fmt::format(
        "ranks made different calls before {}: up to it, rank {} made others than {}",
        to_string(signature), rank, other);
  return fmt::format("ranks made different calls: rank {} called {}, rank {} called {}", rank,
                     to_string(signature), other, to_string(theirs));
}

void encode_signature(const Signature& s, std::span<std::byte, kArrivalBytes> out) {
  TUTTI_ASSERT(s.count <= kCountMax, "a count that memory can hold");
  const std::uint64_t op =
      s.special == SpecialKind::none ? number(s.op) : kPlainOps + number(s.special) - 1;
  const Kind kind = s.direct ? kDirect : s.varied ? kVaried : kPlain;
  const std::uint64_t root = static_cast<std::uint32_t>(s.root);
  const Words words = {
      kMagic | number(s.sequence) << 16 | number(s.collective) << 48 | number(s.type) << 56,
      op | number(kind) << 8 | root << 16 | s.count << 48,
      s.count >> kCountBitsBelow | number(s.history) << 32, s.plan_hash};
  std::memcpy(out.data(), words.data(), kArrivalBytes);
}

std::size_t encoded_bytes(const Arrival& arrival) {
  return arrival.signature.direct ? direct_bytes(buffers_told(arrival.memory)) : kArrivalBytes;
}

std::size_t encode_memory(const MemoryReferences& memory, CopyWays copies, std::byte* out) {
  const unsigned told = buffers_told(memory);
  *out++ = static_cast<std::byte>(told | static_cast<unsigned>(copies.now) << kCopiesNowBit |
                                  static_cast<unsigned>(copies.next) << kCopiesNextBit);
  for (const MemoryReference& reference : memory) {
    if (!reference.addressable()) continue;
    std::memcpy(out, &reference.region, kRegionBytes);
    std::memcpy(out + kRegionBytes, &reference.offset, kOffsetBytes);
    out += kReferenceBytes;
  }
  return direct_bytes(told);
}

void encode(const Arrival& arrival, std::span<std::byte> out) {
  TUTTI_ASSERT(out.size() >= encoded_bytes(arrival), "the arrival record fits");
  encode_signature(arrival.signature, out.first<kArrivalBytes>());
  if (arrival.signature.direct)
    encode_memory(arrival.memory, arrival.copies, out.data() + kArrivalBytes);
}

std::optional<Signature> decode_signature(std::span<const std::byte> bytes) {
  if (bytes.size() < kArrivalBytes) return std::nullopt;
  Words words;
  std::memcpy(words.data(), bytes.data(), kArrivalBytes);
  const std::uint64_t collective = bits(words[0], 48, 8);
  const std::uint64_t type = bits(words[0], 56, 8);
  const std::uint64_t op = bits(words[1], 0, 8);
  const std::uint64_t kind = bits(words[1], 8, 8);
  if (bits(words[0], 0, 16) != kMagic || collective >= std::size(kAllCollectives) ||
      type >= std::size(kAllDataTypes) || op >= kPlainOps + number(SpecialKind::custom) ||
      kind > kVaried)
    return std::nullopt;
  Signature s;
  s.sequence = static_cast<std::uint32_t>(bits(words[0], 16, 32));
  s.collective = static_cast<Collective>(collective);
  s.type = static_cast<DataType>(type);
  if (op < kPlainOps)
    s.op = static_cast<ReduceOp>(op);
  else
    s.special = static_cast<SpecialKind>(op - kPlainOps + 1);
  s.direct = kind == kDirect;
  s.varied = kind == kVaried;
  s.root = static_cast<std::int32_t>(bits(words[1], 16, 32));
  s.count = words[1] >> 48 | bits(words[2], 0, 32) << kCountBitsBelow;
  s.history = static_cast<std::uint32_t>(words[2] >> 32);
  s.plan_hash = words[3];
  return s;
}

std::optional<MemoryReferences> decode_memory(std::span<const std::byte> record) {
  MemoryReferences memory{};
  if (record.size() <= kArrivalBytes) return std::nullopt;
  const auto said = std::to_integer<unsigned>(record[kArrivalBytes]);
  const unsigned told = said & kBuffers;
  if (!are_copy_ways(said) || record.size() < direct_bytes(told)) return std::nullopt;
  const std::byte* at = record.data() + kArrivalBytes + 1;
  for (std::size_t b = 0; b < memory.size(); ++b) {
    if ((told >> b & 1) == 0) continue;
    std::memcpy(&memory[b].region, at, kRegionBytes);
    std::memcpy(&memory[b].offset, at + kRegionBytes, kOffsetBytes);
    if (!memory[b].addressable()) return std::nullopt;
    at += kReferenceBytes;
  }
  return memory;
}

void KnownMemory::remember(std::span<const std::byte> record) {
  bytes_ = direct_bytes(std::to_integer<unsigned>(record[kArrivalBytes]) & kBuffers);
  std::memcpy(memory_.data(), record.data() + kArrivalBytes, bytes_ - kArrivalBytes);
}

bool KnownMemory::is_in(std::span<const std::byte> record) const {
  if (bytes_ == 0 || record.size() < bytes_) return false;
  const auto said = std::to_integer<unsigned>(record[kArrivalBytes]);
  const bool same_buffers = ((said ^ std::to_integer<unsigned>(memory_[0])) & kBuffers) == 0;
  return same_buffers && are_copy_ways(said) &&
         std::memcmp(record.data() + kArrivalBytes + 1, memory_.data() + 1,
                     bytes_ - kArrivalBytes - 1) == 0;
}

CopyWays decode_copies(std::span<const std::byte> record) {
  const auto said = std::to_integer<unsigned>(record[kArrivalBytes]);
  return {static_cast<CopyWay>(copy_way(said, kCopiesNowBit)),
          static_cast<CopyWay>(copy_way(said, kCopiesNextBit))};
}

std::optional<Arrival> decode_arrival(std::span<const std::byte> bytes) {
  const auto signature = decode_signature(bytes);
  if (!signature) return std::nullopt;
  if (!signature->direct) return Arrival{*signature, {}, {}};
  const auto memory = decode_memory(bytes);
  if (!memory) return std::nullopt;
  return Arrival{*signature, *memory, decode_copies(bytes)};
}

}  // namespace tutti::runtime
