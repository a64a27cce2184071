// host_kernels.hpp: the kernels on threads of a processor: what one thread of a block does.
//
// Knows nothing of worlds; who starts the threads does.
#pragma once

#include <cstdint>
#include <optional>

#include "host_policy.hpp"
#include "runtime/gpu/device_world.hpp"
#include "runtime/gpu/exchange.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

struct Block {
  explicit Block(std::uint32_t size) : barrier(size) {}
  Barrier barrier;
  BlockShared shared;
  ExchangeShared exchange;
};

// The kernel that reduces this type; none: the one that only moves bytes. False: the call failed.
bool run_kernel(std::optional<DataType> reduces, Block& block, Team team, const DeviceWorld& world,
                const ProgramHeader& program, const DeviceCall& call, std::uint32_t channel);

// The kernel of transfers; the same.
bool run_exchange(Block& block, Team team, const DeviceWorld& world, const DeviceExchange& exchange,
                  std::uint32_t number);

}  // namespace tutti::runtime::gpu
