// exact_sum.hpp: the sum of squares of any number of elements, without rounding: so the norm of a
// gradient has the same bits however ranks share it and in whatever order they add.
//
// Knows nothing of ranks: an all_reduce that adds the limbs as integers makes a sum over ranks.
//
// Source  Kulisch: Computer arithmetic and validity (de Gruyter, 2008): a fixed-point accumulator
//         as wide as the whole range of the format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// A fixed-point number in 68 limbs of 32 bits, the lowest bit worth 2^-1074, and two limbs that say
// whether there was an infinity or a NaN. A limb has 64 bits, so that carries can wait.
//
// The square of a float32 is added exactly. That of a float64 is rounded once, to float64; beyond
// its range it is an infinity.
class ExactSum {
 public:
  static constexpr std::size_t kLimbs = 70;

  void add_square(float value);
  void add_square(double value);

  // Cost  about a nanosecond for each float32, three for each float64.
  void add_squares(std::span<const float> values);
  void add_squares(std::span<const double> values);
  void add_squares(const Tensor& values);  // Requires  float32 or float64

  void merge(const ExactSum& other);

  // Carries what limbs have above 32 bits: sums of the same elements then have the same limbs.
  void normalise();

  // Normalised, to be read and written. The limbs of up to 2^20 sums may be added one by one as
  // integers; the result, written here, is the sum of all.
  std::span<std::int64_t> limbs();

  // The nearest double (ties to even); infinite above the range, or when an infinity was added;
  // NaN when a NaN was.
  double value() const;

  // Whether no infinity and no NaN was added.
  bool finite() const { return limbs_[kInfinite] == 0 && limbs_[kNan] == 0; }

 private:
  static constexpr std::size_t kDigits = 68;
  static constexpr std::size_t kInfinite = 68;
  static constexpr std::size_t kNan = 69;

  void add_at(std::uint64_t magnitude, unsigned bit);
  void add_block(std::span<const float> values);
  void flag(bool nan) { limbs_[nan ? kNan : kInfinite] = 1; }

  std::array<std::int64_t, kLimbs> limbs_{};  // none is ever negative
  std::uint32_t pending_ = 0;                 // additions since carries were last made
};

}  // namespace tutti::training
