// exchange_trial.hpp: one group of transfers of all ranks as a HostWorld makes it: each rank's
// sends and receives are one launch, with data that tells whose they are, and bytes around them
// that nobody may touch.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "host_world.hpp"
#include "runtime/gpu/write_exchange.hpp"

namespace tutti::runtime::gpu {

struct Passing {
  Rank from = 0;
  Rank to = 0;
  std::size_t bytes = 0;
  bool offered = false;  // peers can address the sender's memory
};

class ExchangeTrial {
 public:
  static constexpr std::size_t kLaneBytes = 700;

  // In this order on every rank. The world's ranks share all memory from now on.
  ExchangeTrial(HostWorld& world, std::vector<Passing> passings);

  // What a rank asks for, to be changed before the first job.
  std::vector<GpuTransfer>& transfers(Rank rank) { return asked_[static_cast<std::size_t>(rank)]; }
  void set_timeout(std::uint64_t ns) { timeout_ns_ = ns; }
  // Of all memory that is shared.
  void set_generation(std::uint32_t generation) { generation_ = generation; }

  // Ranks without transfers take no part. Holds until the next one is asked for.
  Job job();
  void fill(std::size_t rank);  // what it sends, again; what it received is forgotten
  // What is wrong; empty when all is right.
  std::string judge() const;
  // The same of what its receiver has no room for, behind so many bytes of a passing.
  std::string beside(std::size_t passing, std::size_t bytes) const;

 private:
  struct Place {
    std::size_t sent = 0;      // in the arena of `from`
    std::size_t received = 0;  // in that of `to`
  };
  std::byte* arena(Rank rank) { return arenas_[static_cast<std::size_t>(rank)].data(); }
  std::byte value(std::size_t passing, std::size_t at) const;

  const ControlShape shape_;
  const std::vector<Passing> passings_;
  std::vector<Place> places_;
  std::vector<std::vector<std::byte>> arenas_;   // by rank
  std::vector<std::vector<GpuTransfer>> asked_;  // by rank
  std::vector<std::vector<bool>> is_offered_;    // by rank and transfer
  std::vector<std::vector<std::byte>> written_;  // by rank
  std::uint64_t timeout_ns_ = 0;
  std::uint32_t generation_ = 0;
};

}  // namespace tutti::runtime::gpu
