// survive_failure: training that goes on when a rank dies. The last rank kills itself half-way;
// the others get an error that names it, make a communicator of those that live, agree on whose
// step is the latest, and go on from there. Nothing but the dead rank's own examples is lost.
//
//   tutti run -n 4 --on-failure continue -- survive_failure
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <utility>

#include "tutti/tutti.hpp"

namespace {

using tutti::Communicator;
using tutti::ReduceOp;
using tutti::Status;

constexpr std::int64_t kSteps = 200;
constexpr float kSlope = 2.0f, kOffset = -1.0f;  // what is to be found

// All that a rank must have to go on; small enough to hold twice.
struct Model {
  std::int64_t step = 0;
  std::array<float, 2> weights{};
};

std::array<float, 2> gradient(const Model& model, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::array<float, 2> sum{};
  for (int i = 0; i < 16; ++i) {
    const float x = normal(random);
    const float error = (model.weights[0] - kSlope) * x + (model.weights[1] - kOffset);
    sum[0] += error * x / 16;
    sum[1] += error / 16;
  }
  return sum;
}

// The first error that comes, or none when all steps are made. A call that failed has left the
// model as it was.
Status train(Communicator& world, Model& model, std::mt19937& random, int victim) {
  while (model.step < kSteps) {
    if (world.rank() == victim && model.step == kSteps / 2) std::raise(SIGKILL);
    auto mine = gradient(model, random);
    const Status status = world.all_reduce(std::span<float>(mine), ReduceOp::avg);
    if (!status.ok()) return status;
    for (std::size_t i = 0; i < mine.size(); ++i) model.weights[i] -= 0.1f * mine[i];
    ++model.step;
  }
  return {};
}

// Some ranks may have completed the call in which others failed, and be one step ahead: all take
// the model of the first of those that are furthest.
Status catch_up(Communicator& world, Model& model) {
  const std::int64_t size = world.size();
  std::array<std::int64_t, 1> furthest = {model.step * size + (size - 1 - world.rank())};
  Status status = world.all_reduce(std::span<std::int64_t>(furthest), ReduceOp::max);
  if (!status.ok()) return status;
  const auto root = static_cast<tutti::Rank>(size - 1 - furthest[0] % size);
  model.step = furthest[0] / size;
  return world.broadcast(std::span<float>(model.weights), root);
}

}  // namespace

int main() {
  auto joined = Communicator::from_environment();
  if (!joined.ok()) {
    std::fprintf(stderr, "cannot join: %s\n", joined.status().to_string().c_str());
    return 1;
  }
  Communicator world = std::move(joined).value();
  const int started = world.size();
  std::mt19937 random(static_cast<unsigned>(world.rank()));

  Model model;
  Status status = train(world, model, random, started - 1);
  while (!status.ok()) {
    if (world.rank() == 0)
      std::printf("step %d: %s\n", static_cast<int>(model.step), status.to_string().c_str());
    auto survivors = world.shrink();
    if (!survivors.ok()) {
      std::fprintf(stderr, "cannot go on: %s\n", survivors.status().to_string().c_str());
      return 1;
    }
    world = std::move(survivors).value();
    status = catch_up(world, model);
    if (status.ok()) status = train(world, model, random, -1);
  }

  const float off = std::fabs(model.weights[0] - kSlope) + std::fabs(model.weights[1] - kOffset);
  if (world.rank() == 0)
    std::printf("%d of %d ranks made all %d steps: y = %.3f x %+.3f\n", world.size(), started,
                static_cast<int>(model.step), model.weights[0], model.weights[1]);
  return model.step == kSteps && off < 0.01f && world.size() == started - 1 ? 0 : 1;
}
