// A stranger's program: a world of one rank, which needs no launcher.
#include <cstdio>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

int main() {
  tutti::Result<tutti::Communicator> joined = tutti::Communicator::from_environment();
  if (!joined.ok()) {
    std::fprintf(stderr, "%s\n", joined.status().to_string().c_str());
    return 1;
  }
  std::vector<float> data(1000, 42.0F);
  const tutti::Status status = joined->all_reduce(std::span<float>(data), tutti::ReduceOp::sum);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return 1;
  }
  std::printf("sum over %d rank: %g\n", joined->size(), static_cast<double>(data.back()));
}
