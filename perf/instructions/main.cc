// count_calls: makes so many all_reduces between two ranks on one thread, and nothing else, for
// perf/count_instructions to count what a call takes. One thread drives both ranks: the one that is
// second finds the data of the first, so that nobody waits and no spinning is counted.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

int fail(const tutti::Status& status) {
  std::fprintf(stderr, "count_calls: %s\n", status.to_string().c_str());
  return 1;
}

// One call of both ranks: the first one starts it, and the second one makes it whole, as programs
// do in their loops.
tutti::Status call(tutti::Communicator& first, tutti::Communicator& second,
                   std::vector<float> (&data)[2]) {
  const std::size_t count = data[0].size();
  auto begun = first.all_reduce_async(data[0].data(), data[0].data(), count,
                                      tutti::DataType::float32, tutti::ReduceOp::max);
  if (!begun.ok()) return begun.status();
  const tutti::Status done = second.all_reduce(data[1].data(), data[1].data(), count,
                                               tutti::DataType::float32, tutti::ReduceOp::max);
  return done.ok() ? begun->wait() : done;
}

int run(int calls, std::size_t bytes) {
  auto ranks = tutti::Communicator::for_threads(2);
  if (!ranks.ok()) return fail(ranks.status());
  std::vector<float> data[2];
  for (int r = 0; r < 2; ++r) data[r].assign(bytes / sizeof(float), static_cast<float>(r + 1));
  for (int i = 0; i < calls; ++i) {
    const tutti::Status status = call((*ranks)[0], (*ranks)[1], data);
    if (!status.ok()) return fail(status);
  }
  for (const auto& side : data)
    for (const float value : side)
      if (calls > 0 && value != 2) return fail({tutti::StatusCode::internal, "a wrong result"});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return run(std::atoi(argv[1]), std::stoul(argv[2]));
  std::fprintf(stderr, "usage: count_calls CALLS BYTES (see perf/count_instructions)\n");
  return 2;
}
