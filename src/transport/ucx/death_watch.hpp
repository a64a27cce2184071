// death_watch.hpp: sleeping until UCX has something or a process of this host dies, and which did.
//
// UCX notices the death of a peer where its network does, and there only: through shared memory it
// never does, and gives that up where it is asked to. So ranks of one host watch each other's
// processes, which the kernel tells at once.
//
// Knows descriptors and process numbers; does not know UCX.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport::ucx {

// Names where process numbers mean the same as here: the running system, and the namespace.
std::string process_world();

class DeathWatch {
 public:
  // `events`: what ends a sleep, besides deaths.
  Status start(int events);

  // Watches the process of that rank, unless it is this one. False: there is none any more.
  bool add(Rank rank, std::uint32_t process);

  // Waits for anything, at most so long, and reports who has died, each once.
  void wait(std::int64_t timeout_us, const std::function<void(Rank)>& died);
  bool any() const { return !watched_.empty(); }

 private:
  struct Watched {
    Rank rank = 0;
    base::Descriptor process;
  };
  void report(const std::function<void(Rank)>& died);

  base::Descriptor set_;
  std::vector<Watched> watched_;
};

}  // namespace tutti::transport::ucx
