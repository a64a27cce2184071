// processes.hpp: whether device calls are right where ranks are processes of one host, which share
// their control memory by the driver; and as if these were on two hosts, which carry over sockets
// what goes from one to the other, or have UCX move it from device to device.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "gpu_check/checks.hpp"
#include "gpu_check/report.hpp"

namespace tutti::gpu_check {

// Where ranks take each other to be: every other one on another host, if not all on one.
enum class Hosts { one, by_sockets, by_cards };

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
  // So many of them make calls as ranks of one world. How many cases there were.
  // Errors  the first thing that was wrong, of any rank; unsupported: this cannot be done here.
  // Blocking.
  Result<int> run(int ranks, const Extent& extent, Hosts hosts);

 private:
  struct Member {
    pid_t process = 0;
    base::Descriptor line;
  };
  Crew() = default;
  std::vector<Member> members_;
};

// Two ranks and more, together and apart; by cards where UCX and the devices can.
void check_processes(Crew& crew, const Extent& extent, Report& report);

}  // namespace tutti::gpu_check
