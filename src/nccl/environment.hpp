// environment.hpp: the NCCL_* variables that people set, and what they mean here.
//
// Those that say something of Tutti's business become its settings; TUTTI_* variables win over
// them. All others are listed once as ignored, so that nobody waits for an effect in vain.
//
// Reading is a pure function of the environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "tutti/communicator.hpp"

namespace tutti::nccl {

struct Settings {
  bool version = false;  // NCCL_DEBUG=VERSION and above: say it when the first id is made
  std::optional<base::LogLevel> log;  // NCCL_DEBUG=WARN, INFO, TRACE, as Tutti says it
  std::string interfaces;             // NCCL_SOCKET_IFNAME
  std::string algorithm;              // NCCL_ALGO, where it leaves one; empty: the planner chooses
  std::string transport;              // NCCL_SHM_DISABLE=1: tcp; empty: what fits
  std::string lowering;               // NCCL_P2P_DISABLE=1: staged; empty: what fits
  // NCCL_NET_GDR_LEVEL, NCCL_NET_GDR_READ: what they forbid.
  base::GpuDirectChoice gpu_direct = base::GpuDirectChoice::automatic;
  std::optional<bool> blocking;      // NCCL_COMM_BLOCKING: whatever a caller's ncclConfig_t says
  std::string topology_file;         // NCCL_TOPO_FILE
  std::string topology_dump_file;    // NCCL_TOPO_DUMP_FILE
  int topology_dump_rank = 0;        // NCCL_TOPO_DUMP_FILE_RANK: who writes it
  std::vector<std::string> ignored;  // NCCL_* names without a meaning here
  std::vector<std::string> remarks;  // what a value could not be taken for

  // Into options that the caller has not set.
  void apply(CommunicatorOptions& options) const;
};

Settings read_settings(const base::Environment& environment);

}  // namespace tutti::nccl
