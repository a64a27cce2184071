// numbers.hpp: what the ranks put in and what must come out. All are whole numbers that a float
// holds exactly, so there is one right answer, whatever the order of the sum; they change from call
// to call, so that a result of the call before is a wrong one.
//
// Writing the input and checking the output are the owner's use of its buffers between calls: they
// draw the data into the owner's cache, as a program that works on them would.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::comparison {

class Numbers {
 public:
  Numbers(int rank, int size) : mine_(multiples(rank + 1)), ranks_(static_cast<float>(size)) {
    sums_ = multiples(size * (size + 1) / 2);
  }

  void write(float* input, std::size_t count, std::uint64_t call) const {
    const float shift = shift_of(call);
    for (std::size_t at = 0; at < count; at += kPeriod)
      for (std::size_t i = 0; i < length(at, count); ++i) input[at + i] = mine_[i] + shift;
  }

  // How many elements are not what they must be.
  std::size_t check(const float* output, std::size_t count, std::uint64_t call) const {
    const float shift = ranks_ * shift_of(call);
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < count; at += kPeriod) {
      std::uint32_t differ = 0;
      for (std::size_t i = 0; i < length(at, count); ++i)
        differ += output[at + i] != sums_[i] + shift ? 1U : 0U;
      wrong += differ;
    }
    return wrong;
  }

 private:
  static constexpr std::size_t kPeriod = 256;
  using Period = std::array<float, kPeriod>;

  static Period multiples(int factor) {
    Period result{};
    for (std::size_t i = 0; i < kPeriod; ++i)
      result[i] = static_cast<float>(static_cast<int>(i) * factor);
    return result;
  }
  static float shift_of(std::uint64_t call) { return static_cast<float>(call % 61); }
  static std::size_t length(std::size_t at, std::size_t count) {
    return count - at < kPeriod ? count - at : kPeriod;
  }

  Period mine_{};
  Period sums_{};
  float ranks_;
};

}  // namespace tutti::comparison
