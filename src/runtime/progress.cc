// The list of works that move, one per process.
#include "runtime/progress.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace tutti::runtime {
namespace {

struct List {
  std::shared_mutex mutex;  // shared while driving, so that removal waits for drivers to leave
  std::vector<Driven*> members;
};

List& list() {
  static List instance;  // the one list of the process; see the header
  return instance;
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
