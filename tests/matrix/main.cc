// test_matrix: every collective × element type × operation × size × place of buffers, between 1 to
// 9 ranks, over every transport; and in the order of ranks the same bits over all of them.
//
// Every world is a process of its own, which starts the ranks as threads or as processes; the first
// of all processes only counts.
//
//   test_matrix              everything
//   test_matrix --every K    each K-th case
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "cases.hpp"
#include "unit/runtime/processes.hpp"

namespace tutti::matrix {
namespace {

using runtime::testing::on_processes;
using runtime::testing::SharedMemory;

constexpr int kRanksMax = 9;
constexpr const char* kTransports[] = {"memory", "shm", "tcp"};

// What the processes of a world count together.
struct Tally {
  std::atomic<std::int64_t> cases{0};  // each counted once, not for each rank
  std::atomic<std::int64_t> wrong{0};
  std::atomic<std::int64_t> unequal{0};  // ranks that did not get the digest of rank 0
  std::atomic<std::uint64_t> digest{0};
};

bool complain(const Communicator& comm, const char* transport, const Case& what,
              const std::string& text) {
  fmt::print(stderr, "{} ranks over {}, rank {}: {}: {}\n", comm.size(), transport, comm.rank(),
             what.text(), text);
  return false;
}

// All cases on one rank. A failed call ends them: the communicator is of no use after it.
bool run_rank(Communicator& comm, const char* transport, int every, bool rough, Tally& tally) {
  Buffers buffers(comm.size());
  std::uint64_t digest = 0xcbf29ce484222325ULL;
  const auto cases = all_cases();
  for (std::size_t i = 0; i < cases.size(); i += static_cast<std::size_t>(every)) {
    const std::string wrong =
        rough ? run_rough(comm, cases[i], buffers, digest) : run_case(comm, cases[i], buffers);
    if (!rough && comm.rank() == 0) ++tally.cases;
    if (wrong.empty()) continue;
    ++tally.wrong;
    return complain(comm, transport, cases[i], wrong);
  }
  if (!rough) return true;
  if (comm.rank() == 0) tally.digest = digest;
  if (!comm.barrier().ok()) return false;
  if (tally.digest != digest) ++tally.unequal;
  return true;
}

bool run_threads(int ranks, const CommunicatorOptions& options,
                 const std::function<bool(Communicator&)>& body) {
  auto communicators = Communicator::for_threads(ranks, options);
  if (!communicators.ok()) return false;
  std::atomic<bool> well{true};
  std::vector<std::thread> threads;
  for (Communicator& communicator : *communicators)
    threads.emplace_back([&] {
      if (!body(communicator)) well = false;
    });
  for (std::thread& thread : threads) thread.join();
  return well;
}

// A world in a process of its own, so that none inherits threads.
bool run_world(int ranks, const char* transport, int every, bool rough, Tally& tally) {
  const pid_t child = fork();
  if (child == 0) {
    CommunicatorOptions options;
    options.transport = transport;
    if (rough) options.reduce_order = "rank_tree";
    const auto body = [&](Communicator& comm) {
      return run_rank(comm, transport, every, rough, tally);
    };
    const bool threads = std::strcmp(transport, "memory") == 0;
    _exit((threads ? run_threads(ranks, options, body) : on_processes(ranks, options, body)) ? 0
                                                                                             : 1);
  }
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

int run(int every) {
  SharedMemory memory(sizeof(Tally));
  Tally& tally = *new (memory.as<std::byte>().data()) Tally;
  int worlds = 0, failed = 0, unequal = 0;
  for (int ranks = 1; ranks <= kRanksMax; ++ranks) {
    std::vector<std::uint64_t> digests;
    for (const char* transport : kTransports)
      for (const bool rough : {false, true}) {
        ++worlds;
        if (!run_world(ranks, transport, every, rough, tally)) {
          ++failed;
          fmt::print(stderr, "{} ranks over {}: failed\n", ranks, transport);
        }
        if (rough) digests.push_back(tally.digest);
      }
    for (const std::uint64_t digest : digests) unequal += digest == digests[0] ? 0 : 1;
  }
  fmt::print(
      "{} cases in {} worlds: {} wrong, {} worlds failed; bits in the order of ranks: {} "
      "ranks and {} transports differ\n",
      tally.cases.load(), worlds, tally.wrong.load(), failed, tally.unequal.load(), unequal);
  const bool well = tally.wrong == 0 && failed == 0 && tally.unequal == 0 && unequal == 0;
  return well && tally.cases > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::matrix

int main(int argc, char** argv) {
  const bool selects = argc == 3 && std::strcmp(argv[1], "--every") == 0;
  const int every = selects ? std::atoi(argv[2]) : 1;
  if ((argc != 1 && !selects) || every < 1) {
    fmt::print(stderr, "usage: test_matrix [--every K]\n");
    return 2;
  }
  return tutti::matrix::run(every);
}
