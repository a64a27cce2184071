// device_exchange.hpp: what one launch of transfers is told: sends and receives of one rank, each
// of which one other rank knows of. One piece of memory without pointers into itself, which the
// host writes before the launch and nobody changes; a captured graph replays with what stands
// there.
//
// A transfer is cut into parts, one for each lane; how many, both ends find from its size. The
// transfers of one lane, direction and peer are a row, in the order in which they were asked for. A
// row is a block's alone, so that which one it is, and how many there are, is its rank's affair.
//
// Knows nothing of CUDA, or of what the blocks do with it (exchange.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/gpu/device_cut.hpp"
#include "runtime/gpu/device_world.hpp"

namespace tutti::runtime::gpu {

// Lanes cut transfers at multiples of it, so that parts lie as the whole does.
inline constexpr std::uint64_t kPartUnitBytes = 128;

struct DeviceTransfer {
  std::byte* memory = nullptr;
  MemoryRef shared;  // of what is sent: the same as the receiver finds it
  std::uint64_t bytes = 0;
  std::uint32_t parts = 1;  // the same at both ends
  std::uint32_t place = 0;  // among those of the launch, for people

  // Of one of its parts.
  TUTTI_HOST_DEVICE Range part(std::uint32_t lane) const {
    if (parts == 1) return {0, bytes};
    const std::uint64_t units = ceil_div(bytes, kPartUnitBytes);
    const std::uint64_t size = Cut::divide(units + parts - 1, parts) * kPartUnitBytes;
    const std::uint64_t begin = lane * size < bytes ? lane * size : bytes;
    return {begin, size < bytes - begin ? size : bytes - begin};
  }
};

struct ExchangeRow {
  std::uint32_t peer = 0;
  std::uint32_t lane = 0;
  std::uint32_t begin = 0;  // of the transfers from here up to `end`, those that have this part
  std::uint32_t end = 0;
  std::uint32_t sends = 0;  // 0: it receives
  std::uint32_t unused = 0;
};

// Rows follow it, then transfers.
struct DeviceExchange {
  std::uint64_t timeout_ns = 0;  // 0: wait for ever
  std::uint32_t blocks = 1;
  std::uint32_t row_count = 0;

  static std::size_t bytes(std::size_t rows, std::size_t transfers) {
    return sizeof(DeviceExchange) + rows * sizeof(ExchangeRow) + transfers * sizeof(DeviceTransfer);
  }
  TUTTI_HOST_DEVICE const ExchangeRow* rows() const {
    return reinterpret_cast<const ExchangeRow*>(this + 1);
  }
  TUTTI_HOST_DEVICE const DeviceTransfer* transfers() const {
    return reinterpret_cast<const DeviceTransfer*>(rows() + row_count);
  }
};

}  // namespace tutti::runtime::gpu
