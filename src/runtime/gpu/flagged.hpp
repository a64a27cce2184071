// flagged.hpp: one pass of a block over messages of low latency: words that carry four bytes and a
// flag which says of which message they are. Who reads a word has waited for it, and for nothing
// else; nobody tells that a message is complete.
//
// A flag is the number of the message (plus one), which comes back after 2^32 messages. A word that
// a long message left behind could then be taken for new, so the first messages after every 2^31
// fill their slots to the end.
//
// A message is a unit of two words that says what it is, then units of eight bytes, chunk by chunk;
// a chunk begins with a unit of its own.
//
// Knows nothing of ranks; what a thread does while a word has not come is the policy's business and
// that of `Leave`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/gpu/device_cut.hpp"
#include "runtime/gpu/passes.hpp"

namespace tutti::runtime::gpu {

TUTTI_HOST_DEVICE std::uint32_t flag_of(std::uint64_t number) {
  return static_cast<std::uint32_t>(number + 1);
}

TUTTI_HOST_DEVICE bool fills_slot(std::uint64_t number, std::uint32_t slots) {
  return number % (std::uint64_t{1} << 31) < slots;
}

template <class Policy>
TUTTI_HOST_DEVICE void store_unit(Policy& policy, std::byte* slot, std::uint64_t unit,
                                  std::uint64_t bits, std::uint32_t flag) {
  auto* words = reinterpret_cast<FlaggedWord*>(slot) + 2 * unit;
  policy.store_word(words, static_cast<std::uint32_t>(bits), flag);
  policy.store_word(words + 1, static_cast<std::uint32_t>(bits >> 32), flag);
}

// False when it has not come and `leave(polls)` says that the block leaves.
template <class Policy, class Leave>
TUTTI_HOST_DEVICE bool load_unit(Policy& policy, const std::byte* slot, std::uint64_t unit,
                                 std::uint32_t flag, std::uint64_t& bits, const Leave& leave) {
  const auto* words = reinterpret_cast<const FlaggedWord*>(slot) + 2 * unit;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  for (std::uint32_t polls = 0;; ++polls) {
    if (policy.load_word(words, flag, low) && policy.load_word(words + 1, flag, high)) break;
    if (leave(polls)) return false;
    policy.pause();
  }
  bits = std::uint64_t{high} << 32 | low;
  return true;
}

// Up to eight bytes of memory that may lie anywhere.
TUTTI_HOST_DEVICE std::uint64_t load_some(const std::byte* from, std::uint64_t bytes) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % kUnitBytes == 0;
  if (aligned && bytes >= kUnitBytes) return load_bits<std::uint64_t>(from);
  std::uint64_t bits = 0;
  for (std::uint32_t i = 0; i < kUnitBytes && i < bytes; ++i)
    bits |= std::uint64_t{load_bits<std::uint8_t>(from + i)} << (8 * i);
  return bits;
}

TUTTI_HOST_DEVICE void store_some(std::byte* to, std::uint64_t bits, std::uint64_t bytes) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(to) % kUnitBytes == 0;
  if (aligned && bytes >= kUnitBytes) return store_bits<std::uint64_t>(to, bits);
  for (std::uint32_t i = 0; i < kUnitBytes && i < bytes; ++i)
    store_bits<std::uint8_t>(to + i, static_cast<std::uint8_t>(bits >> (8 * i)));
}

template <class Wide>
TUTTI_HOST_DEVICE Wide apply(ReduceOp op, Wide a, Wide b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      break;
    case ReduceOp::prod:
      return ProdOp::apply(a, b);
    case ReduceOp::min:
      return MinOp::apply(a, b);
    case ReduceOp::max:
      return MaxOp::apply(a, b);
  }
  return SumOp::apply(a, b);
}

// A fold of units. The operation is looked up for each element: what is small waits for words, not
// for arithmetic.
template <class Format>
struct UnitFold {
  using Bits = typename Format::Bits;
  using Wide = typename Format::Wide;
  static constexpr std::uint32_t kCount = kUnitBytes / sizeof(Bits);
  Wide values[kCount] = {};

  static TUTTI_HOST_DEVICE Wide lane(std::uint64_t unit, std::uint32_t i) {
    return Format::widen(static_cast<Bits>(unit >> (8 * sizeof(Bits) * i)));
  }
  TUTTI_HOST_DEVICE void begin(std::uint64_t unit) {
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) values[i] = lane(unit, i);
  }
  TUTTI_HOST_DEVICE void add(ReduceOp op, std::uint64_t unit) {
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) values[i] = apply(op, values[i], lane(unit, i));
  }
  TUTTI_HOST_DEVICE std::uint64_t end(std::uint32_t divisor) {
    std::uint64_t unit = 0;
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (divisor > 1) values[i] = Format::divide(values[i], divisor);
      unit |= std::uint64_t{Format::narrow(values[i])} << (8 * sizeof(Bits) * i);
    }
    return unit;
  }
};

// As Pass; an operand with a flag is a slot of words.
struct FlaggedPass {
  Pass pass;
  const std::uint32_t* flags = nullptr;  // by operand; meaningless for memory
  const bool* is_slot = nullptr;         // by operand
  std::uint64_t first_unit = 1;          // of the chunk, in messages
  ReduceOp op = ReduceOp::sum;
};

// One unit of one source.
template <class Policy, class Leave>
TUTTI_HOST_DEVICE bool read_unit(Policy& policy, const FlaggedPass& flagged, std::uint32_t source,
                                 std::uint64_t unit, std::uint64_t& bits, const Leave& leave) {
  const Pass& pass = flagged.pass;
  const std::byte* const from = pass.pointers[source];
  if (flagged.is_slot[source])
    return load_unit(policy, from, flagged.first_unit + unit, flagged.flags[source], bits,
                     [&](std::uint32_t polls) { return leave(source, polls); });
  const std::uint64_t at = unit * kUnitBytes;
  bits = load_some(from + at, pass.bytes - at);
  return true;
}

template <class Policy>
TUTTI_HOST_DEVICE void write_unit(Policy& policy, const FlaggedPass& flagged, std::uint64_t unit,
                                  std::uint64_t bits) {
  const Pass& pass = flagged.pass;
  const std::uint64_t at = unit * kUnitBytes;
  TUTTI_KEEP_LOOP
  for (std::uint32_t d = pass.sources; d < pass.end; ++d) {
    std::byte* const to = pass.pointers[d];
    if (to == nullptr) continue;
    if (flagged.is_slot[d])
      store_unit(policy, to, flagged.first_unit + unit, bits, flagged.flags[d]);
    else
      store_some(to + at, bits, pass.bytes - at);
  }
}

// A copy where there is one source: its bits are moved as they are.
// False when a word has not come; `leave(source, polls)` says when to stop waiting.
template <class Format, class Policy, class Leave>
TUTTI_HOST_DEVICE bool flagged_pass(Policy& policy, const Team& team, const FlaggedPass& flagged,
                                    const Leave& leave) {
  const Pass& pass = flagged.pass;
  const std::uint64_t units = ceil_div(pass.bytes, kUnitBytes);
  for (std::uint64_t unit = team.thread; unit < units; unit += team.size) {
    std::uint64_t bits = 0;
    if constexpr (kReduces<Format>) {
      UnitFold<Format> fold;
      TUTTI_KEEP_LOOP
      for (std::uint32_t s = 0; s < pass.sources; ++s) {
        if (!read_unit(policy, flagged, s, unit, bits, leave)) return false;
        if (s == 0)
          fold.begin(bits);
        else
          fold.add(flagged.op, bits);
      }
      if (pass.sources > 1 || pass.divisor > 1) bits = fold.end(pass.divisor);
    } else {
      if (!read_unit(policy, flagged, 0, unit, bits, leave)) return false;
    }
    write_unit(policy, flagged, unit, bits);
  }
  return true;
}

}  // namespace tutti::runtime::gpu
