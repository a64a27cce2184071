// attention.hpp: causal softmax attention, whose matrix of scores is never in memory as a whole:
// forward keeps one number for each row of it, and backward computes tile after tile again.
//
// Knows nothing of projections, positions or ranks. Each head of each sequence is computed as if it
// were alone, so that giving heads or sequences to different ranks changes no bit, and each row
// depends only on the rows up to it.
//
// Source  Dao, Fu, Ermon, Rudra, Ré: FlashAttention (2022); Dao: FlashAttention-2 (2023); grouped
//         queries: Ainslie et al.: GQA (2023).
#pragma once

#include <cstdint>

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// Query head h attends to key-value head h / (heads / kv_heads).
struct AttentionShape {
  std::int64_t batch = 1, sequence = 1;
  std::int64_t heads = 1, kv_heads = 1;  // kv_heads divides heads
  std::int64_t head_size = 1;
};

// q: [batch * sequence, heads * head_size]; k and v: [batch * sequence, kv_heads * head_size].
struct AttentionInput {
  Tensor q, k, v;
};

// out is like q; logarithms: [batch * heads, sequence] of wide_type(), the logarithm of the sum of
// the exponentials of each row of scores.
struct AttentionOutput {
  Tensor out, logarithms;
};

// out = softmax(q k^T / sqrt(head_size), rows up to this one) v. Sums are of wide_type().
// Cost  batch heads sequence^2 head_size multiplications: half of a matrix of scores, twice.
AttentionOutput attention_forward(const AttentionShape& shape, const AttentionInput& input,
                                  Arena& arena);

// The gradients of q, k and v, given that of out.
// Cost  2.5 times that of forward.
AttentionInput attention_backward(const AttentionShape& shape, const AttentionInput& input,
                                  const AttentionOutput& output, const Tensor& dout, Arena& arena);

}  // namespace tutti::training
