// experts.hpp: the experts of this expert-parallel rank: SwiGLU mlps, each with rows of its own.
// Under tensor parallelism the ranks share each expert as they do an mlp.
//
// Knows nothing of how rows get here, only how many of each expert come from which rank: the
// gradient of a weight is computed for each source by itself, and these are added as a balanced
// tree over the sources (the left part the largest power of two below their number). It thereby is
// what one rank that runs all sources' micro-batches gets by adding their gradients as that tree.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/modules/dispatch.hpp"
#include "training/modules/module.hpp"

namespace tutti::training {

class Experts final {
 public:
  // Expert e's parameters are name + ".e.w1.weight" (gate), ".w3" (up) and ".w2" (down).
  // Requires  ep divides the experts, tp the size between up and down.
  Experts(const std::string& name, const ModelConfig& config, Context& context);

  // x: [rows.total(), hidden]; the result: like it, a part of a sum over the tensor-parallel axis.
  Tensor forward(const Tensor& x, const ExpertRows& rows, Kept& kept);
  // The result is a part of a sum over the tensor-parallel axis.
  Tensor backward_input(const Tensor& dy, Kept& kept);
  void backward_weight(Kept& kept);

  // Whether backward computes silu(gate) * up again, instead of keeping it.
  void set_recompute(bool recompute) { recompute_ = recompute; }

  void visit(const ParameterVisitor& visitor);

 private:
  struct Expert {
    Parameter gate, down, up;
  };
  struct Saved {
    ExpertRows rows;
    Tensor x, gate, up, product;  // of all experts' rows
    Tensor dgate, dup, dy;
  };

  void add_gradient(Parameter& parameter, const Tensor& dy, const Tensor& x, const ExpertRows& rows,
                    std::int64_t expert);

  Context& context_;
  std::int64_t intermediate_;  // here
  bool recompute_ = false;
  std::vector<Expert> experts_;
};

}  // namespace tutti::training
