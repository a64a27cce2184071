// rope.hpp: rotary positions: each pair of elements of a head is turned by an angle that grows with
// the row's position, so that a product of two rows depends on the distance of their positions.
//
// Pairs are (i, i + head_size / 2), as Hugging Face's weights expect; the paper's are neighbours.
// Knows nothing of projections or ranks.
//
// Source  Su et al.: RoFormer (2021).
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// Pair i of the row at position p is turned by p * theta^(-2 i / head_size).
// Threading  one thread.
class RotaryPositions {
 public:
  // Requires  an even head_size.
  RotaryPositions(std::int64_t head_size, double theta, DataType type);

  // x: [rows, heads * head_size] of the type, in place; a row's position is row % sequence.
  void rotate(const Tensor& x, std::int64_t sequence) { turn(x, sequence, 1); }
  // The gradient of x given that of what rotate() made of it, in place: turns back.
  void rotate_backward(const Tensor& dx, std::int64_t sequence) { turn(dx, sequence, -1); }

 private:
  // [positions, head_size / 2], as many as the longest sequence so far needed. Angles are computed
  // in double, for those of late positions lose digits that a float does not have.
  template <typename W>
  struct Table {
    std::vector<W> cosines, sines;
    void grow(std::int64_t positions, std::int64_t head_size, double theta);
  };

  void turn(const Tensor& x, std::int64_t sequence, int direction);

  std::int64_t head_size_;
  double theta_;
  std::variant<Table<float>, Table<double>> table_;
};

}  // namespace tutti::training
