// write_exchange.cc: see write_exchange.hpp.
#include "runtime/gpu/write_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace tutti::runtime::gpu {
namespace {

std::uint32_t parts_of(std::size_t bytes, const ExchangeLimits& limits) {
  const std::size_t wanted = (bytes + limits.lane_bytes - 1) / limits.lane_bytes;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(wanted, 1, limits.lanes));
}

// Those that receive come first: they move what is offered, and are dealt out to the blocks one by
// one.
using Direction = std::pair<bool, Rank>;  // whether it is sent, and the peer

struct Rows {
  std::vector<ExchangeRow> rows;
  std::vector<DeviceTransfer> transfers;
};

void add_rows(Rows& all, const Direction& direction, std::span<const DeviceTransfer> transfers) {
  const auto begin = static_cast<std::uint32_t>(all.transfers.size());
  all.transfers.insert(all.transfers.end(), transfers.begin(), transfers.end());
  std::uint32_t lanes = 0;
  for (const DeviceTransfer& transfer : transfers) lanes = std::max(lanes, transfer.parts);
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    all.rows.push_back({static_cast<std::uint32_t>(direction.second), lane, begin,
                        static_cast<std::uint32_t>(all.transfers.size()), direction.first ? 1U : 0U,
                        0});
}

}  // namespace

std::vector<std::byte> write_exchange(std::span<const GpuTransfer> transfers,
                                      std::span<const MemoryRef> shared,
                                      const ExchangeLimits& limits) {
  std::map<Direction, std::vector<DeviceTransfer>> by_direction;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const GpuTransfer& transfer = transfers[i];
    by_direction[{transfer.sends, transfer.peer}].push_back(
        {transfer.memory, shared[i], transfer.bytes, parts_of(transfer.bytes, limits),
         static_cast<std::uint32_t>(i)});
  }
  Rows all;
  for (const auto& [direction, here] : by_direction) add_rows(all, direction, here);
  DeviceExchange head;
  head.timeout_ns = limits.timeout_ns;
  head.row_count = static_cast<std::uint32_t>(all.rows.size());
  head.blocks = std::min(limits.blocks, head.row_count);
  std::vector<std::byte> written(DeviceExchange::bytes(all.rows.size(), all.transfers.size()));
  std::byte* at = written.data();
  const auto write = [&](const void* from, std::size_t bytes) {
    std::memcpy(at, from, bytes);
    at += bytes;
  };
  write(&head, sizeof head);
  write(all.rows.data(), all.rows.size() * sizeof(ExchangeRow));
  write(all.transfers.data(), all.transfers.size() * sizeof(DeviceTransfer));
  return written;
}

std::size_t exchange_bytes_max(std::size_t transfers, std::uint32_t lanes) {
  return DeviceExchange::bytes(transfers * lanes, transfers);
}

}  // namespace tutti::runtime::gpu
