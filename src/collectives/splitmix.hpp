// splitmix.hpp: numbers that look random and are the same on every machine, from a seed. For
// choosing test cases; planning itself is never random.
// Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators (2014).
#pragma once

#include <cstdint>

namespace tutti::collectives {

class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

  // 0 .. bound-1. Requires  bound >= 1.
  int below(int bound) { return static_cast<int>(next() % static_cast<std::uint64_t>(bound)); }

 private:
  std::uint64_t state_;
};

}  // namespace tutti::collectives
