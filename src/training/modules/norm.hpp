// norm.hpp: RMSNorm (Llama) and LayerNorm (GPT-2) over the last extent.
//
// Source  Zhang, Sennrich: Root mean square layer normalization (2019); Ba, Kiros, Hinton: Layer
//         normalization (2016).
#pragma once

#include <string>

#include "training/architecture/config.hpp"
#include "training/modules/module.hpp"

namespace tutti::training {

// x and y: [rows, size]. Statistics are of wide_type(). Under sequence parallelism each rank has
// other rows, so the weights' gradients are partial.
class Norm final : public Module {
 public:
  // LayerNorm with weight and bias for gpt2, else RMSNorm with weight.
  Norm(const std::string& name, const ModelConfig& config, Context& context);

  Tensor forward(const Tensor& x, Kept& kept) override;
  Tensor backward_input(const Tensor& dy, Kept& kept) override;
  void backward_weight(Kept& kept) override;
  void visit(const ParameterVisitor& visitor) override;

 private:
  struct Saved {
    Tensor x, statistics, dy;
  };

  Context& context_;
  double epsilon_;
  bool centred_;  // LayerNorm
  Parameter weight_;
  Parameter bias_;  // of LayerNorm
};

}  // namespace tutti::training
