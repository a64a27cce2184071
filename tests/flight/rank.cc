// rank.cc: a rank that does what all programs do, again and again: all_reduce, and stop at the
// first error. It is what the tests here stop, watch and look into.
//
//   flight_rank CALLS [ABSENT_RANK]   CALLS < 0: until an error. ABSENT_RANK makes ten calls, then
//                                     sleeps: it is not in the call.
//
// Prints "rank R pid P" when connected; then "done", or "culprit C: the error" and exits with 3.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

int main(int count, char** values) {
  const long calls = count > 1 ? std::atol(values[1]) : 10;
  const int absent = count > 2 ? std::atoi(values[2]) : -1;
  auto communicator = tutti::Communicator::from_environment();
  if (!communicator.ok()) {
    std::fprintf(stderr, "%s\n", communicator.status().message().c_str());
    return 2;
  }
  const int rank = communicator->rank();
  std::vector<float> data(4, 1.0F);
  tutti::Status status = communicator->barrier();
  std::printf("rank %d pid %d\n", rank, static_cast<int>(getpid()));
  std::fflush(stdout);
  for (long i = 0; (calls < 0 || i < calls) && status.ok(); ++i) {
    if (rank == absent && i == 10) std::this_thread::sleep_for(std::chrono::minutes(10));
    for (float& value : data) value = 1.0F;
    status = communicator->all_reduce(std::span<float>(data), tutti::ReduceOp::sum);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (status.ok()) {
    std::printf("done\n");
    return 0;
  }
  std::printf("culprit %d: %s\n", status.culprit(), status.message().c_str());
  std::fflush(stdout);
  // The launcher ends all ranks when the first one fails; the others shall have their say.
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  return 3;
}
