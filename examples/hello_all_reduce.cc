// hello_all_reduce: the smallest program that does something together. Every rank brings a vector,
// and every rank gets the sum of all of them.
//
//   tutti run -n 4 -- hello_all_reduce      (torchrun, mpirun and srun start it as well)
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include "tutti/tutti.hpp"

int main() {
  auto joined = tutti::Communicator::from_environment();
  if (!joined.ok()) {
    std::fprintf(stderr, "cannot join: %s\n", joined.status().to_string().c_str());
    return 1;
  }
  tutti::Communicator world = std::move(joined).value();

  // Rank r brings r + 1 in every element.
  std::vector<float> values(1000, static_cast<float>(world.rank() + 1));
  const tutti::Status status = world.all_reduce(std::span(values), tutti::ReduceOp::sum);
  if (!status.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", world.rank(), status.to_string().c_str());
    return 1;
  }

  const auto expected = static_cast<float>(world.size() * (world.size() + 1) / 2);
  for (const float value : values) {
    if (value == expected) continue;
    std::fprintf(stderr, "rank %d: got %g, not %g\n", world.rank(), value, expected);
    return 1;
  }
  std::printf("rank %d of %d, over %s: every element is %g\n", world.rank(), world.size(),
              world.transport_name().c_str(), expected);
  return 0;
}
