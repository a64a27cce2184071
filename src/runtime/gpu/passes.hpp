// passes.hpp: one pass of a block over memory: a fold of several sources into one value that is
// stored to several destinations, a copy, or a product with one number. Vectors of 16 bytes where
// all pointers allow it, and element by element before and behind.
//
// Nothing that is indexed lies in a thread's own memory: pointers stand in memory that the block
// shares, and vectors are unrolled into registers. So there is no stack, whatever the number of
// sources.
//
// Knows nothing of ranks, messages and waiting.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/gpu/device_world.hpp"
#include "runtime/gpu/values.hpp"

namespace tutti::runtime::gpu {

struct alignas(kVectorBytes) Vector {
  std::uint32_t words[4];
};

// So that memory of any type can be read and written as bits.
template <class T>
struct __attribute__((may_alias)) Cell {
  T value;
};

template <class T>
TUTTI_HOST_DEVICE T load_bits(const std::byte* from) {
  return reinterpret_cast<const Cell<T>*>(from)->value;
}
template <class T>
TUTTI_HOST_DEVICE void store_bits(std::byte* to, T value) {
  reinterpret_cast<Cell<T>*>(to)->value = value;
}

// The threads of a block, each with its number.
struct Team {
  std::uint32_t thread = 0;
  std::uint32_t size = 1;
};

// What a pass works on: sources, then destinations; null: not to be stored.
struct Pass {
  std::byte* const* pointers = nullptr;
  std::uint32_t sources = 0;
  std::uint32_t end = 0;  // of the destinations
  std::uint32_t divisor = 1;
  std::uint64_t bytes = 0;
};

// Where pieces of `width` bytes begin and end, if the pointers can be brought to a multiple of it.
struct Body {
  std::uint64_t head = 0;
  std::uint64_t end = 0;
};

// Bits that differ between any two pointers, at most of a vector's.
TUTTI_HOST_DEVICE std::uint64_t phase_differences(const Pass& pass) {
  const auto first = reinterpret_cast<std::uintptr_t>(pass.pointers[0]);
  std::uint64_t differences = 0;
  for (std::uint32_t i = 1; i < pass.end; ++i) {
    const auto other = reinterpret_cast<std::uintptr_t>(pass.pointers[i]);
    if (other != 0) differences |= first ^ other;
  }
  return differences & (kVectorBytes - 1);
}

TUTTI_HOST_DEVICE Body find_body(const Pass& pass, std::uint64_t width) {
  const auto first = reinterpret_cast<std::uintptr_t>(pass.pointers[0]);
  const std::uint64_t to_boundary = (width - first % width) % width;
  const std::uint64_t head = to_boundary < pass.bytes ? to_boundary : pass.bytes;
  return {head, head + (pass.bytes - head) / width * width};
}

// Not onto itself: in place, or pushed where it belongs.
TUTTI_HOST_DEVICE bool is_copied_to(const Pass& pass, std::uint32_t destination) {
  std::byte* const to = pass.pointers[destination];
  return to != nullptr && to != pass.pointers[0];
}

template <class T>
TUTTI_HOST_DEVICE void copy_cells(const Team& team, const Pass& pass, std::uint64_t from,
                                  std::uint64_t to) {
  for (std::uint64_t at = from + team.thread * sizeof(T); at < to; at += team.size * sizeof(T)) {
    const T value = load_bits<T>(pass.pointers[0] + at);
    for (std::uint32_t d = 1; d < pass.end; ++d)
      if (is_copied_to(pass, d)) store_bits<T>(pass.pointers[d] + at, value);
  }
}

// How a body is gone through: so many vectors of a thread at a time, each a stride behind the one
// before. They are loaded before any is stored, so that they are on their way together; the last
// ones, too, of which not all threads have as many.
template <std::uint32_t kTogether>
struct Sweep {
  TUTTI_HOST_DEVICE Sweep(const Team& team, Body body)
      : stride(std::uint64_t{team.size} * kVectorBytes),
        mine(body.head + team.thread * kVectorBytes),
        end(body.end) {}

  TUTTI_HOST_DEVICE bool goes_on() const { return mine < end; }
  TUTTI_HOST_DEVICE void advance() { mine += kTogether * stride; }
  // Whether this thread has the vector that is so many strides on.
  TUTTI_HOST_DEVICE bool has(std::uint32_t k) const { return mine + k * stride < end; }
  TUTTI_HOST_DEVICE std::uint64_t at(std::uint32_t k) const { return mine + k * stride; }

  std::uint64_t stride;
  std::uint64_t mine;
  std::uint64_t end;
};

TUTTI_HOST_DEVICE void copy_vectors(const Team& team, const Pass& pass, Body body) {
  constexpr std::uint32_t kTogether = 8;
  for (Sweep<kTogether> sweep(team, body); sweep.goes_on(); sweep.advance()) {
    Vector values[kTogether] = {};
    TUTTI_UNROLL
    for (std::uint32_t k = 0; k < kTogether; ++k)
      if (sweep.has(k)) values[k] = load_bits<Vector>(pass.pointers[0] + sweep.at(k));
    TUTTI_KEEP_LOOP
    for (std::uint32_t d = 1; d < pass.end; ++d) {
      if (!is_copied_to(pass, d)) continue;
      std::byte* const to = pass.pointers[d];
      TUTTI_UNROLL
      for (std::uint32_t k = 0; k < kTogether; ++k)
        if (sweep.has(k)) store_bits<Vector>(to + sweep.at(k), values[k]);
    }
  }
}

// Any bytes: in the widest pieces that the pointers' distances allow.
TUTTI_HOST_DEVICE void copy(const Team& team, const Pass& pass) {
  bool any = false;
  for (std::uint32_t d = 1; d < pass.end; ++d) any |= is_copied_to(pass, d);
  if (!any) return;  // what is only offered is a peer's to read, who may be storing there by now
  const std::uint64_t differences = phase_differences(pass);
  const std::uint64_t width = differences == 0 ? kVectorBytes : (differences & 3) == 0 ? 4 : 1;
  const Body body = find_body(pass, width);
  copy_cells<std::uint8_t>(team, pass, 0, body.head);
  if (width == kVectorBytes)
    copy_vectors(team, pass, body);
  else if (width == 4)
    copy_cells<std::uint32_t>(team, pass, body.head, body.end);
  else
    copy_cells<std::uint8_t>(team, pass, body.head, body.end);
  copy_cells<std::uint8_t>(team, pass, body.end, pass.bytes);
}

// The elements of a vector, as numbers to compute with.
template <class Format>
struct Lanes {
  using Bits = typename Format::Bits;
  using Wide = typename Format::Wide;
  static constexpr std::uint32_t kPerWord = sizeof(Bits) < 4 ? 4 / sizeof(Bits) : 1;
  static constexpr std::uint32_t kCount = kVectorBytes / sizeof(Bits);
  Wide values[kCount];

  static TUTTI_HOST_DEVICE Bits bits_of(const Vector& vector, std::uint32_t lane) {
    if constexpr (sizeof(Bits) == 8) {
      return std::uint64_t{vector.words[2 * lane + 1]} << 32 | vector.words[2 * lane];
    } else {
      const std::uint32_t word = vector.words[lane / kPerWord];
      return static_cast<Bits>(word >> (8 * sizeof(Bits) * (lane % kPerWord)));
    }
  }

  static TUTTI_HOST_DEVICE Lanes widen(const Vector& vector) {
    Lanes lanes;
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) lanes.values[i] = Format::widen(bits_of(vector, i));
    return lanes;
  }

  TUTTI_HOST_DEVICE Lanes times(Wide factor) const {
    Lanes products;
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i)
      products.values[i] = ProdOp::apply(values[i], factor);
    return products;
  }

  template <class Op>
  TUTTI_HOST_DEVICE void add(const Lanes& other) {
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) values[i] = Op::apply(values[i], other.values[i]);
  }

  TUTTI_HOST_DEVICE void divide(std::uint32_t divisor) {
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) values[i] = Format::divide(values[i], divisor);
  }

  TUTTI_HOST_DEVICE Vector narrow() const {
    Vector vector = {};
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const Bits bits = Format::narrow(values[i]);
      if constexpr (sizeof(Bits) == 8) {
        vector.words[2 * i] = static_cast<std::uint32_t>(bits);
        vector.words[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
      } else {
        vector.words[i / kPerWord] |= static_cast<std::uint32_t>(bits)
                                      << (8 * sizeof(Bits) * (i % kPerWord));
      }
    }
    return vector;
  }
};

// Element by element: what lies before the body and behind it.
template <class Format, class Op>
TUTTI_HOST_DEVICE void reduce_ends(const Team& team, const Pass& pass, Body body) {
  using Bits = typename Format::Bits;
  const std::uint64_t bytes = pass.bytes - (body.end - body.head);
  for (std::uint64_t i = team.thread * sizeof(Bits); i < bytes; i += team.size * sizeof(Bits)) {
    const std::uint64_t at = i < body.head ? i : i + (body.end - body.head);
    auto sum = Format::widen(load_bits<Bits>(pass.pointers[0] + at));
    TUTTI_KEEP_LOOP
    for (std::uint32_t s = 1; s < pass.sources; ++s)
      sum = Op::apply(sum, Format::widen(load_bits<Bits>(pass.pointers[s] + at)));
    if constexpr (Op::kDivides) sum = Format::divide(sum, pass.divisor);
    const Bits bits = Format::narrow(sum);
    TUTTI_KEEP_LOOP
    for (std::uint32_t d = pass.sources; d < pass.end; ++d)
      if (pass.pointers[d] != nullptr) store_bits<Bits>(pass.pointers[d] + at, bits);
  }
}

template <class Format, class Op, std::uint32_t kTogether>
TUTTI_HOST_DEVICE void reduce_vectors(const Team& team, const Pass& pass, Body body) {
  for (Sweep<kTogether> sweep(team, body); sweep.goes_on(); sweep.advance()) {
    Vector next[kTogether] = {};
    const auto load = [&](const std::byte* from) {
      TUTTI_UNROLL
      for (std::uint32_t k = 0; k < kTogether; ++k)
        if (sweep.has(k)) next[k] = load_bits<Vector>(from + sweep.at(k));
    };
    load(pass.pointers[0]);
    Lanes<Format> sums[kTogether];
    TUTTI_UNROLL
    for (std::uint32_t k = 0; k < kTogether; ++k) sums[k] = Lanes<Format>::widen(next[k]);
    TUTTI_KEEP_LOOP
    for (std::uint32_t s = 1; s < pass.sources; ++s) {
      load(pass.pointers[s]);
      TUTTI_UNROLL
      for (std::uint32_t k = 0; k < kTogether; ++k)
        sums[k].template add<Op>(Lanes<Format>::widen(next[k]));
    }
    TUTTI_UNROLL
    for (std::uint32_t k = 0; k < kTogether; ++k) {
      if constexpr (Op::kDivides) sums[k].divide(pass.divisor);
      next[k] = sums[k].narrow();
    }
    TUTTI_KEEP_LOOP
    for (std::uint32_t d = pass.sources; d < pass.end; ++d) {
      std::byte* const to = pass.pointers[d];
      if (to == nullptr) continue;
      TUTTI_UNROLL
      for (std::uint32_t k = 0; k < kTogether; ++k)
        if (sweep.has(k)) store_bits<Vector>(to + sweep.at(k), next[k]);
    }
  }
}

template <class Format, class Op>
TUTTI_HOST_DEVICE void reduce(const Team& team, const Pass& pass) {
  // As many as fill some sixteen registers; a division takes many more, and comes once.
  constexpr std::uint32_t kFit = 16 * 4 / (sizeof(typename Format::Wide) * Lanes<Format>::kCount);
  constexpr std::uint32_t kTogether = Op::kDivides || kFit == 0 ? 1 : kFit;
  Body body = find_body(pass, kVectorBytes);
  if (phase_differences(pass) != 0) body = {pass.bytes, pass.bytes};  // no vectors
  reduce_ends<Format, Op>(team, pass, body);
  reduce_vectors<Format, Op, kTogether>(team, pass, body);
}

template <class Format>
TUTTI_HOST_DEVICE void scale_vectors(const Team& team, const Pass& pass, Body body,
                                     typename Format::Wide factor) {
  constexpr std::uint32_t kTogether = 4;
  for (Sweep<kTogether> sweep(team, body); sweep.goes_on(); sweep.advance()) {
    Vector vectors[kTogether] = {};
    TUTTI_UNROLL
    for (std::uint32_t k = 0; k < kTogether; ++k)
      if (sweep.has(k)) vectors[k] = load_bits<Vector>(pass.pointers[0] + sweep.at(k));
    TUTTI_UNROLL
    for (std::uint32_t k = 0; k < kTogether; ++k)
      if (sweep.has(k))
        store_bits<Vector>(pass.pointers[1] + sweep.at(k),
                           Lanes<Format>::widen(vectors[k]).times(factor).narrow());
  }
}

// Every element of the first pointer's memory times a number, rounded as a product is, to the
// second pointer's, which may be the same.
template <class Format>
TUTTI_HOST_DEVICE void scale(const Team& team, const Pass& pass, typename Format::Bits bits) {
  using Bits = typename Format::Bits;
  const auto factor = Format::widen(bits);
  Body body = find_body(pass, kVectorBytes);
  if (phase_differences(pass) != 0) body = {pass.bytes, pass.bytes};  // no vectors
  const std::uint64_t ends = pass.bytes - (body.end - body.head);
  for (std::uint64_t i = team.thread * sizeof(Bits); i < ends; i += team.size * sizeof(Bits)) {
    const std::uint64_t at = i < body.head ? i : i + (body.end - body.head);
    const auto number = Format::widen(load_bits<Bits>(pass.pointers[0] + at));
    store_bits<Bits>(pass.pointers[1] + at, Format::narrow(ProdOp::apply(number, factor)));
  }
  scale_vectors<Format>(team, pass, body, factor);
}

}  // namespace tutti::runtime::gpu
