// recompute.hpp: what a block computes again in backward instead of keeping it.
#pragma once

namespace tutti::training {

// What of a block's activations is not kept but computed again in backward.
enum class Recompute : unsigned char {
  none,
  selective,  // what is cheap to compute again: norms' outputs, activations of the mlp
  full,       // all but the block's input
};

}  // namespace tutti::training
