// The list of works that move, one per process.
#include "runtime/progress.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/fork.hpp"

namespace tutti::runtime {
namespace {

struct List {
  std::shared_mutex mutex;  // shared while driving, so that removal waits for drivers to leave
  std::vector<Driven*> members;
};

// The one list of the process; see the header. A forked child begins with an empty one: what its
// parent drives is not its own, and a thread that is not there may hold the lock.
List& list() {
  struct Kept {
    std::uint32_t generation;
    List list;
  };
  static std::atomic<Kept*> current{new Kept{base::fork_generation(), {}}};
  Kept* kept = current.load(std::memory_order_acquire);
  if (kept->generation != base::fork_generation()) {
    kept = new Kept{base::fork_generation(), {}};
    current.store(kept, std::memory_order_release);
  }
  return kept->list;
}

}  // namespace

void begin_driving(Driven& driven) {
  std::unique_lock lock(list().mutex);
  list().members.push_back(&driven);
}

void end_driving(Driven& driven) {
  std::unique_lock lock(list().mutex);
  auto& members = list().members;
  members.erase(std::remove(members.begin(), members.end(), &driven), members.end());
}

bool drive_others(const Driven& self) {
  std::shared_lock lock(list().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool moved = false;
  for (Driven* driven : list().members)
    if (driven != &self) moved |= driven->drive();
  return moved;
}

}  // namespace tutti::runtime
