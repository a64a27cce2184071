// bfloat16.hpp: sums of bfloat16 for libraries that have no such type but take an operation from
// their user. Compiled per instruction set where the compiler can choose one when the program runs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TUTTI_COMPARISON_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TUTTI_COMPARISON_CLONES
#endif

namespace tutti::comparison::bfloat16 {

inline float widen(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// To the nearest, ties to even. NaNs are nobody's business here.
inline std::uint16_t narrow(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

TUTTI_COMPARISON_CLONES static void add(std::uint16_t* sum, const std::uint16_t* a,
                                        const std::uint16_t* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = narrow(widen(a[i]) + widen(b[i]));
}

}  // namespace tutti::comparison::bfloat16
