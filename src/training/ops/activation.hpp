// activation.hpp: the functions between the linear layers of an mlp: SwiGLU (Llama) and GELU by its
// tanh formula (GPT-2). Knows nothing of modules.
//
// Source  Shazeer: GLU variants improve transformer (2020); Hendrycks, Gimpel: Gaussian error
//         linear units (2016).
#pragma once

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// Of all: tensors of one type and of as many elements. A result may be the memory of an input.

// product = silu(gate) * up, silu(x) = x / (1 + e^-x).
void swiglu(const Tensor& gate, const Tensor& up, const Tensor& product);

// Given the gradient of the product, those of gate and up.
void swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dproduct,
                     const Tensor& dgate, const Tensor& dup);

// y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
void gelu(const Tensor& x, const Tensor& y);
void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx);

}  // namespace tutti::training
