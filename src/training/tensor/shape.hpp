// shape.hpp: the extents of a tensor, outermost first. A value of up to four dimensions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "training/tensor/check.hpp"

namespace tutti::training {

class Shape {
 public:
  static constexpr std::size_t kMaxRank = 4;

  Shape() = default;  // a scalar: one element
  Shape(std::initializer_list<std::int64_t> extents) {
    for (const std::int64_t extent : extents) append(extent);
  }

  void append(std::int64_t extent) {
    TRAINING_CHECK(rank_ < kMaxRank && extent >= 0, "a shape has at most four extents, none < 0");
    extents_[rank_++] = extent;
  }

  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t i) const { return extents_[i]; }
  std::int64_t& operator[](std::size_t i) { return extents_[i]; }

  // The number of elements.
  std::int64_t count() const {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < rank_; ++i) product *= extents_[i];
    return product;
  }

  // "[2, 3]"
  std::string to_string() const {
    std::string text = "[";
    for (std::size_t i = 0; i < rank_; ++i)
      text += (i > 0 ? ", " : "") + std::to_string(extents_[i]);
    return text + "]";
  }

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};  // 0 past rank_
  std::size_t rank_ = 0;
};

}  // namespace tutti::training
