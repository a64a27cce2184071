// write_exchange.hpp: writes down what a launch of transfers is for its kernel
// (device_exchange.hpp): which lanes each transfer is cut into, and which rows the blocks take.
//
// Knows nothing of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/gpu/device_exchange.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

// What a rank does with one other, or with itself. Those of one direction between the same two
// match in their order.
struct GpuTransfer {
  bool sends = false;  // or receives
  Rank peer = 0;
  std::byte* memory = nullptr;  // of what is sent, only read
  std::size_t bytes = 0;

  friend bool operator==(const GpuTransfer&, const GpuTransfer&) = default;
};

// The same on all ranks, but for the blocks.
struct ExchangeLimits {
  std::uint32_t lanes = 1;
  std::size_t lane_bytes = 1;  // of a transfer that are worth another lane
  std::uint32_t blocks = 1;    // at most
  std::uint64_t timeout_ns = 0;
};

// `shared`: by transfer, where peers find what is sent; none: it goes through slots.
// Requires  there are transfers.
std::vector<std::byte> write_exchange(std::span<const GpuTransfer> transfers,
                                      std::span<const MemoryRef> shared,
                                      const ExchangeLimits& limits);

// What that takes at most, of so many transfers. Units: bytes.
std::size_t exchange_bytes_max(std::size_t transfers, std::uint32_t lanes);

}  // namespace tutti::runtime::gpu
