// rank_transfers.cc: what a rank of a device world (world.hpp) does with single others: sends and
// receives, any number of them in one launch.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/try.hpp"
#include "runtime/gpu/host/world.hpp"

namespace tutti::runtime::gpu {
namespace {

// Of a slab of records: those of many transfers are long.
constexpr std::size_t kSlabBytes = std::size_t{1} << 18;
constexpr std::size_t kSlabLeast = 4;

}  // namespace

CallRecords& GpuRank::records_of(const GpuCall& call) {
  if (call.transfers.empty()) return records_;
  const std::size_t most = std::bit_ceil(call.transfers.size());
  const std::size_t bytes = exchange_bytes_max(most, world_.shape_.lanes);
  const std::size_t slab =
      std::min(std::max(kSlabBytes / bytes, kSlabLeast), world_.options_.records);
  return transfer_records_.try_emplace(most, device(), slab, bytes).first->second;
}

Status GpuRank::check_transfers(std::span<const GpuTransfer> transfers) const {
  if (world_.shape_.lanes == 0)
    return Status(StatusCode::unsupported, "nobody carries transfers to other hosts");
  for (const GpuTransfer& transfer : transfers) {
    const auto refuse = [&](const std::string& text) {
      return Status(StatusCode::invalid_argument,
                    fmt::format("rank {}: {} rank {}: {}", rank_,
                                transfer.sends ? "send to" : "receive from", transfer.peer, text));
    };
    if (transfer.peer < 0 || transfer.peer >= world_.ranks())
      return refuse(fmt::format("it is not one of {} ranks", world_.ranks()));
    if (transfer.bytes > kCountMax)
      return refuse(fmt::format("{} bytes are too many", transfer.bytes));
    if (transfer.bytes > 0 && transfer.memory == nullptr) return refuse("its buffer is null");
  }
  return Status();
}

Result<PreparedCall*> GpuRank::prepare_transfers(const GpuCall& call) {
  const std::uint64_t as_of = world_.regions_ != nullptr ? world_.regions_->changes() : 0;
  std::vector<SharedBuffer> buffers;
  std::vector<MemoryRef> shared;
  for (const GpuTransfer& transfer : call.transfers) {
    // What is received nobody else touches; what it has itself a rank always reaches.
    const bool is_own = transfer.peer == rank_;
    SharedBuffer buffer;
    if (transfer.sends && !is_own)
      buffer = {transfer.memory, transfer.bytes, share(transfer.memory, transfer.bytes)};
    shared.push_back(transfer.sends && is_own ? as_it_is(transfer.memory) : buffer.at);
    buffers.push_back(buffer);
  }
  ExchangeLimits limits;
  limits.lanes = world_.shape_.lanes;
  limits.lane_bytes = world_.options_.channel_bytes;
  limits.blocks = world_.shape_.channels;
  limits.timeout_ns = static_cast<std::uint64_t>(world_.options_.timeout.count());
  const std::vector<std::byte> content = write_exchange(call.transfers, shared, limits);

  Launch launch;
  launch.blocks = reinterpret_cast<const DeviceExchange*>(content.data())->blocks;
  launch.threads = static_cast<std::uint32_t>(world_.options_.threads);
  launch.world = memory_.world();
  const auto made = records_of(call).add(call, content, launch, {});
  TUTTI_TRY(made);
  (*made)->shared = std::move(buffers);
  (*made)->as_of = as_of;
  return made;
}

}  // namespace tutti::runtime::gpu
