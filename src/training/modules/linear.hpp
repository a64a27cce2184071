// linear.hpp: y = x W^T (+ b), the weight [out, in], whole or this rank's share of it.
//
// A split linear layer does not communicate: the composite that has two of them does, once for
// both (tensor_parallel.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "training/modules/module.hpp"

namespace tutti::training {

// How the ranks of the tensor-parallel axis share a linear layer.
enum class Split : unsigned char {
  none,     // each has all of it, and computes the same
  columns,  // each has out/tp outputs, of all inputs: its dx is a part of a sum
  rows,     // each has in/tp inputs: its y is a part of a sum; no bias, see Bias
};

struct LinearOptions {
  std::string name;              // parameters are name + ".weight" and name + ".bias"
  std::int64_t in = 0, out = 0;  // of the whole
  Split split = Split::none;
  bool bias = false;
  double deviation = 0.02;          // of the weight's initial values
  bool expert = false;              // see Parameter
  Sharing sharing = Sharing::same;  // of a layer that is not split: `partial` where each rank
                                    // sees other rows
  // Of a layer split by columns whose ranks do not divide the outputs evenly: which are here.
  std::optional<Part> rows = std::nullopt;
  int copies = 1;  // of them among the ranks, see Parameter
};

// x: [rows, in (/tp)]; y: [rows, out (/tp)].
class Linear final : public Module {
 public:
  // Requires  tp divides the extent that is split.
  Linear(const LinearOptions& options, Context& context);

  Tensor forward(const Tensor& x, Kept& kept) override;
  Tensor backward_input(const Tensor& dy, Kept& kept) override;
  void backward_weight(Kept& kept) override;
  void visit(const ParameterVisitor& visitor) override;

  Parameter& weight() { return weight_; }

  // For a composite that computes x again in backward: forward's x is let go of, and given back
  // before backward_weight.
  static void drop_input(Kept& kept) { kept.get<Saved>().x = Tensor(); }
  static void give_input(Kept& kept, const Tensor& x) { kept.get<Saved>().x = x; }

 private:
  struct Saved {
    Tensor x, dy;
  };

  Context& context_;
  Parameter weight_;
  Parameter bias_;
  bool has_bias_;
};

// y = x + b: what a linear layer split by rows adds once, after the sum over its ranks. Under
// sequence parallelism each rank has other rows, so the gradient is partial.
class Bias final : public Module {
 public:
  // The parameter is name + ".bias", as that of a linear layer of this name.
  Bias(const std::string& name, std::int64_t size, const Context& context);

  Tensor forward(const Tensor& x, Kept& kept) override;  // in place: returns x itself
  Tensor backward_input(const Tensor& dy, Kept& kept) override;
  void backward_weight(Kept& kept) override;
  void visit(const ParameterVisitor& visitor) override;

 private:
  struct Saved {
    Tensor dy;
  };

  Parameter bias_;
};

}  // namespace tutti::training
