// topology_file.hpp: the machine as NCCL_TOPO_FILE describes it, and how the ranks of a
// communicator come to one such description, from which all of them plan: on each host, that of its
// first rank.
//
// Where there is no file, or none that can be used, nothing is described and all goes on as
// without; whoever had one that was not used hears why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "runtime/gpu/host/device_topology.hpp"
#include "tutti/communicator.hpp"

namespace tutti::nccl {

// A description, in the form in which ranks tell it each other. Empty: there is none.
struct Description {
  std::string text;
  std::uint64_t hash() const;  // 0: there is none
};

// What the file says that `path` names; none, with a warning, where it cannot be read or makes no
// sense, and none without where `path` is empty.
Description read_description(const std::string& path, const base::Log& log);

// That of NCCL_TOPO_FILE. Read once in a process. Threading: any thread.
const Description& own_description();

// Where a rank is, and what it said of its description.
struct DescribedRank {
  int host = 0;  // equal for those of one host
  std::string bus_id;
  std::uint64_t hash = 0;
};

using AgreedTopology = std::shared_ptr<const runtime::gpu::DeviceTopology>;

// The ranks tell each other what was described. All ranks call it with equal `ranks`. Blocking.
// Null: nothing that can be used, and all ranks get the same answer; who had a description is told
// why. Errors  those of the communicator.
Result<AgreedTopology> agree_on_topology(Communicator& communicator, const Description& own,
                                         std::span<const DescribedRank> ranks,
                                         const base::Log& log);

// The same where one process speaks for all ranks, which are on its host.
AgreedTopology topology_of_process(const Description& own, std::span<const std::string> bus_ids,
                                   const base::Log& log);

// Writes what is used, in Tutti's own form, where NCCL_TOPO_DUMP_FILE asks this rank for it.
void dump_topology(const AgreedTopology& topology, Rank rank);

}  // namespace tutti::nccl
