// fingerprint.hpp: 64 bits that stand for many bytes, for ranks to compare what they hold:
// replicas' parameters, or those before and after a checkpoint. Not against malice.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti::training {

// Equal for equal bytes; for others the same with a probability of about 2^-64. `before` chains:
// the fingerprint of what came first.
//
// Cost    about 3 nanoseconds for eight bytes.
// Source  the round of XXH64 for each eight bytes, and Murmur3's finaliser. A mere multiply and
// shift
//         for each would let three changed signs of neighbouring floats cancel each other.
inline std::uint64_t fingerprint(std::span<const std::byte> bytes, std::uint64_t before = 0) {
  constexpr std::uint64_t kFirst = 0x9e3779b185ebca87ULL;
  constexpr std::uint64_t kSecond = 0xc2b2ae3d27d4eb4fULL;
  constexpr std::uint64_t kThird = 0x85ebca77c2b2ae63ULL;
  const auto mix = [](std::uint64_t hash, std::uint64_t word) {
    return std::rotl(hash ^ (std::rotl(word * kSecond, 31) * kFirst), 27) * kFirst + kThird;
  };
  std::uint64_t hash = mix(before, bytes.size());
  for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    hash = mix(hash, word);
  }
  std::uint64_t rest = 0;
  if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
  hash = mix(hash, rest);
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return hash ^ (hash >> 33);
}

}  // namespace tutti::training
