// softmax_loss.hpp: the arithmetic of the cross entropy of logits, of which a rank may have some
// columns only: what it needs of the other ranks is three numbers of each row. Knows nothing of
// ranks.
#pragma once

#include <cstdint>
#include <span>

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// maxima[r] = the largest of row r, -infinity of an empty row or one of such logits; sums[r] = the
// sum of e^(logit - maximum), whose terms are `exponentials` (0 for a logit of -infinity).
// Shapes  logits and exponentials [rows, columns]; maxima and sums [rows].
// Requires  logits, maxima and sums of wide_type() of the type of `exponentials`.
void exponentials_of_rows(const Tensor& logits, const Tensor& exponentials, const Tensor& maxima,
                          const Tensor& sums);

// In place: exponentials become d loss / d logit * scale, where factors[r] makes probabilities of
// row r's exponentials, and column 0 is number `first` of the vocabulary that targets are of. A row
// whose target is negative does not count: it becomes zeros.
// Requires  factors of wide_type() of the type of `exponentials`.
void cross_entropy_backward(const Tensor& exponentials, const Tensor& factors,
                            std::span<const std::int32_t> targets, std::int64_t first,
                            double scale);

}  // namespace tutti::training
