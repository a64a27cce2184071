// data_parallel_sgd: data-parallel training in a page. Every rank draws its own examples of the
// same unknown linear function and computes a gradient on them; the gradients are averaged, so that
// all ranks take the same step. At the end all have found the function, and all hold the same
// weights.
//
//   tutti run -n 4 -- data_parallel_sgd
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <utility>

#include "tutti/tutti.hpp"

namespace {

constexpr std::size_t kWeights = 4;
using Weights = std::array<float, kWeights>;
constexpr Weights kTruth = {2.0f, -1.0f, 0.5f, 3.0f};  // the last one is the bias

// The gradient of half the mean squared error over a batch that this rank draws.
Weights gradient(const Weights& weights, std::mt19937& random) {
  constexpr int kBatch = 32;
  std::normal_distribution<float> normal;
  Weights sum{};
  for (int i = 0; i < kBatch; ++i) {
    const Weights features = {normal(random), normal(random), normal(random), 1.0f};
    float error = 0.01f * normal(random);  // the data are noisy
    for (std::size_t j = 0; j < kWeights; ++j) error += (weights[j] - kTruth[j]) * features[j];
    for (std::size_t j = 0; j < kWeights; ++j) sum[j] += error * features[j] / kBatch;
  }
  return sum;
}

tutti::Status train(tutti::Communicator& world, Weights& weights) {
  std::mt19937 random(static_cast<unsigned>(1000 + world.rank()));
  for (int step = 0; step < 200; ++step) {
    Weights step_gradient = gradient(weights, random);
    const tutti::Status status =
        world.all_reduce(std::span<float>(step_gradient), tutti::ReduceOp::avg);
    if (!status.ok()) return status;
    for (std::size_t j = 0; j < kWeights; ++j) weights[j] -= 0.1f * step_gradient[j];
  }
  return {};
}

// Whether the weights are the same, bit by bit, on all ranks: then the least and the greatest
// agree.
tutti::Status compare(tutti::Communicator& world, const Weights& weights, bool& same) {
  Weights least = weights, greatest = weights;
  tutti::Status status = world.all_reduce(std::span<float>(least), tutti::ReduceOp::min);
  if (status.ok()) status = world.all_reduce(std::span<float>(greatest), tutti::ReduceOp::max);
  same = least == greatest;
  return status;
}

}  // namespace

int main() {
  auto joined = tutti::Communicator::from_environment();
  if (!joined.ok()) {
    std::fprintf(stderr, "cannot join: %s\n", joined.status().to_string().c_str());
    return 1;
  }
  tutti::Communicator world = std::move(joined).value();

  Weights weights{};
  bool same = false;
  tutti::Status status = train(world, weights);
  if (status.ok()) status = compare(world, weights, same);
  if (!status.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", world.rank(), status.to_string().c_str());
    return 1;
  }
  float distance = 0;
  for (std::size_t j = 0; j < kWeights; ++j)
    distance = std::max(distance, std::fabs(weights[j] - kTruth[j]));
  if (world.rank() == 0)
    std::printf("%d ranks: weights %.3f %.3f %.3f %.3f, at most %.4f off, %s on all ranks\n",
                world.size(), weights[0], weights[1], weights[2], weights[3], distance,
                same ? "the same" : "NOT the same");
  return same && distance < 0.02f ? 0 : 1;
}
