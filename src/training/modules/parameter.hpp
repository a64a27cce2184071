// parameter.hpp: one weight of the model as this rank holds it: which part of the whole it is, how
// it begins, and who else has the same.
//
// Knows nothing of how values and gradients are kept apart among data-parallel ranks: parallel/
// fills in `value` before a module runs and takes `gradient` away after it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "training/tensor/shape.hpp"
#include "training/tensor/tensor.hpp"

namespace tutti::training {

// Which part of the whole weight a rank of the tensor- or expert-parallel axis holds:
// [begin, begin + length) of extent `dimension`.
struct Part {
  std::size_t dimension = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

// How the ranks of the tensor-parallel axis hold a parameter.
enum class Sharing : unsigned char {
  split,    // each has a part of its own
  same,     // all have the same, and compute the same gradient of it
  partial,  // all have the same, and each computes a part of its gradient: sum over the axis
};

struct Initial {
  enum class Kind : unsigned char { normal, ones, zeros } kind = Kind::normal;
  double deviation = 0.02;  // of normal
};

struct Parameter {
  std::string
      name;  // as Hugging Face's Llama and Mixtral name it: "model.layers.0.mlp.up_proj.weight"
  Shape whole_shape;  // of the whole weight; linear ones are [out, in]
  Part part;          // what of it is here
  Sharing sharing = Sharing::split;
  Initial initial;
  bool decays = true;   // whether weight decay applies: matrices, not norms and biases
  bool expert = false;  // held by one expert-parallel rank of several
  int copies = 1;  // consecutive tensor-parallel ranks that hold this very part, each with a part
                   // of its gradient: sum over them
  bool on_two_stages = false;    // the first and the last pipeline stage have it, each its gradient
  bool duplicate = false;        // the last stage's of those: the first one answers for it
  Parameter* tied_to = nullptr;  // computes with that one's value; has a gradient of its own

  // The extents of the part.
  Shape shape() const {
    Shape shape = whole_shape;
    if (shape.rank() > 0) shape[part.dimension] = part.length;
    return shape;
  }
  std::int64_t count() const { return shape().count(); }

  Tensor value;     // of the compute type; empty while it is not here
  Tensor gradient;  // of wide_type(); modules add to it; empty while nobody may
};

// Makes a parameter that is whole on this rank.
inline Parameter whole_parameter(std::string name, const Shape& shape) {
  Parameter made;
  made.name = std::move(name);
  made.whole_shape = shape;
  made.part = {0, 0, shape.rank() > 0 ? shape[0] : 1};
  made.sharing = Sharing::same;
  return made;
}

using ParameterVisitor = std::function<void(Parameter&)>;

}  // namespace tutti::training
