// processes.hpp: whether device calls are right where ranks are processes of one host, which share
// their control memory by the driver; and as if these were on two hosts, which carry over sockets
// what goes from one to the other.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "gpu_check/checks.hpp"
#include "gpu_check/report.hpp"

namespace tutti::gpu_check {

// Processes that wait for orders. A process that has used a driver cannot be forked, so that they
// are there before.
class Crew {
 public:
  // Requires  no threads, and nothing of CUDA yet. Errors  system_error.
  static Result<std::unique_ptr<Crew>> start(int members);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();  // they go, too

  int members() const { return static_cast<int>(members_.size()); }
  // So many of them make calls as ranks of one world; apart: every other one as on another host.
  // How many cases there were.
  // Errors  the first thing that was wrong, of any rank. Blocking.
  Result<int> run(int ranks, const Extent& extent, bool apart);

 private:
  struct Member {
    pid_t process = 0;
    base::Descriptor line;
  };
  Crew() = default;
  std::vector<Member> members_;
};

// Two ranks and more, together and apart.
void check_processes(Crew& crew, const Extent& extent, Report& report);

}  // namespace tutti::gpu_check
