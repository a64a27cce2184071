// whole_weights.hpp: the weights of all ranks put together, as doubles: what layouts are compared
// by.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "training/engine/engine.hpp"

namespace tutti::training {

using WholeWeights = std::map<std::string, std::vector<double>>;

// Puts in what this rank answers for; all ranks' together are the model. Ranks that share `weights`
// take turns. Requires  that no values are on their way, see DataParallel::settle_values().
void add_weights(Engine& engine, WholeWeights& weights);

// The largest |a - b| / |b| of any weight, by Euclid's norm; infinite where not both have it.
//
// Biases of keys do not count: attention does not depend on them, so that their gradients are
// rounding alone, which an optimizer that divides by a gradient's size makes as large as any other.
double weight_difference(const WholeWeights& a, const WholeWeights& b);

}  // namespace tutti::training
