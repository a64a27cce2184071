// processes.hpp: whether device calls are right where ranks are processes of one host, which share
// their control memory by the driver; the same in memory that they register, which the driver maps
// for their peers; and as if these were on two hosts, which carry over sockets what goes from one
// to the other, or have UCX move it from device to device.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "gpu_check/checks.hpp"
#include "gpu_check/report.hpp"

namespace tutti::gpu_check {

// How ranks reach each other.
enum class Manner : std::int32_t {
  slots,       // all data goes through control memory
  registered,  // buffers are mapped by peers
  mapped,      // the same with memory of cuMemCreate, part by part
  by_sockets,  // every other one as on another host
  by_cards,    // the same, and UCX moves data from device to device
};

struct CrewResult {
  int cases = 0;
  // A large all_reduce, on rank 0's device; 0: not measured. Units: us.
  double slots_us = 0;
  double registered_us = 0;
};

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
  // So many of them make calls as ranks of one world.
  // Errors  the first thing that was wrong, of any rank; unsupported: this cannot be done here.
  // Blocking.
  Result<CrewResult> run(int ranks, const Extent& extent, Manner manner);

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
