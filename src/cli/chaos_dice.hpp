// chaos_dice.hpp: reproducible choices for a simulated world, made from its seed.
#pragma once

#include <cstdint>
#include <iterator>

namespace tutti::cli {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 0x1234567) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15ULL;  // splitmix64
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) % bound;
  }
  int between(int low, int high) {
    return low + static_cast<int>(below(static_cast<std::uint64_t>(high - low + 1)));
  }
  bool one_in(std::uint64_t many) { return below(many) == 0; }
  template <typename Array>
  auto one_of(const Array& array) {
    return array[below(std::size(array))];
  }

 private:
  std::uint64_t state_;
};

}  // namespace tutti::cli
