// plans.hpp: what a call of a device world will do: the planner's choice, and the programs of all
// ranks as devices read them. Kept by shape; the same for all ranks of the world, which ask from
// their own threads.
//
// Knows nothing of devices.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/planner.hpp"
#include "runtime/gpu/encode.hpp"
#include "runtime/gpu/host/device_topology.hpp"

namespace tutti::runtime::gpu {

// The programs of one algorithm for one shape of call, by rank.
struct WorldPrograms {
  std::string algorithm;
  std::shared_ptr<const collectives::LoweredProgram> origin;  // of rank 0: what they are known by
  std::vector<EncodedProgram> programs;
};

struct WorldPlan {
  std::shared_ptr<const WorldPrograms> programs;
  std::uint64_t hash = 0;
  bool direct = false;
};

struct PlansOptions {
  int ranks = 1;
  int ranks_per_device = 1;
  std::vector<int> hosts;  // by rank: equal for those of one host; empty: all are on one
  int channels = 1;
  std::size_t slot_bytes = 0;
  bool direct = true;
  std::string algorithm;                           // empty: choose
  std::shared_ptr<const DeviceTopology> topology;  // of these ranks; null: it is assumed
};

// Threading  any thread.
class Plans {
 public:
  static Result<std::unique_ptr<Plans>> make(const PlansOptions& options);

  // Errors  those of the planner; unsupported: a device does not do this algorithm.
  Result<WorldPlan> find(const collectives::PlanQuery& query);

 private:
  Plans(const PlansOptions& options, collectives::Planner planner)
      : ranks_(options.ranks), planner_(std::move(planner)) {}

  Result<std::shared_ptr<const WorldPrograms>> encode_all(const collectives::PlanQuery& query,
                                                          const collectives::Plan& first);

  const int ranks_;
  std::mutex mutex_;
  collectives::Planner planner_;
  std::map<const collectives::LoweredProgram*, std::shared_ptr<const WorldPrograms>> programs_;
};

}  // namespace tutti::runtime::gpu
