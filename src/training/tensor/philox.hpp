// philox.hpp: random numbers that are a function of (key, counter): no state, no order. A
// parameter's element is drawn by the parameter's name and the element's index in the whole
// tensor, so that initialisation does not depend on how the tensor is split among ranks.
//
// Source  Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011);
//         Philox4x32 with 10 rounds.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tutti::training {

class Philox {
 public:
  using Words = std::array<std::uint32_t, 4>;

  explicit Philox(std::uint64_t key) : key_(key) {}

  // Four independent words.
  Words operator()(std::uint64_t counter, std::uint64_t stream = 0) const {
    Words c = {low(counter), high(counter), low(stream), high(stream)};
    std::uint32_t k0 = low(key_), k1 = high(key_);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
      c = {high(b) ^ c[1] ^ k0, low(b), high(a) ^ c[3] ^ k1, low(a)};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return c;
  }

  // Uniform in (0, 1), never 0 or 1.
  double uniform(std::uint64_t counter, std::uint64_t stream = 0) const {
    const Words w = (*this)(counter, stream);
    const std::uint64_t bits = (std::uint64_t{w[0]} << 32 | w[1]) >> 12;
    return (static_cast<double>(bits) + 0.5) * 0x1p-52;
  }

  // Of mean 0 and deviation 1 (Box and Muller).
  double normal(std::uint64_t counter, std::uint64_t stream = 0) const {
    const Words w = (*this)(counter, stream);
    const std::uint64_t a = (std::uint64_t{w[0]} << 32 | w[1]) >> 12;
    const std::uint64_t b = (std::uint64_t{w[2]} << 32 | w[3]) >> 12;
    const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 0.5) * 0x1p-52));
    return radius * std::cos(6.283185307179586476925 * static_cast<double>(b) * 0x1p-52);
  }

 private:
  static std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

  std::uint64_t key_;
};

// FNV-1a: a key from a seed and a name.
inline std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ (seed * 0x9E3779B97F4A7C15u);
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tutti::training
