// verify.hpp: a layout against the program that has no ranks: both train the same from the same
// weights, and what differs is said, step by step.
#pragma once

#include <cstdio>

#include "training/trainer/run_config.hpp"

namespace tutti::training {

struct Verdict {
  double loss_difference = 0;    // the largest of any step, relative
  double weight_difference = 0;  // the largest of any weight: |a - b| / |b| by Euclid's norm
  double tolerance = 0;          // of losses
  bool equal = false;            // within it
  bool same_bits = false;        // of all losses and weights
};

// Trains run.train.steps steps twice, with `ranks` threads as the layout asks and with one, and
// prints a line for each step to `out`. Nothing is saved.
// Errors  those of a run.
Result<Verdict> verify(const RunConfig& run, int ranks, std::FILE* out);

}  // namespace tutti::training
