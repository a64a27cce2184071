// world.cc: see world.hpp: how a world comes to be and how it ends. What a rank does: rank.cc.
#include "runtime/gpu/host/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/try.hpp"
#include "runtime/gpu/device_cut.hpp"
#include "runtime/gpu/host/world_options.hpp"

namespace tutti::runtime::gpu {
namespace {

// Of a slot, whose size devices read as 32 bits.
constexpr std::size_t kMessageBytesMax = std::size_t{1} << 30;

// The ranks of one device.
struct Tenants {
  Device* device = nullptr;
  int ranks = 0;
};
using AllTenants = std::map<int, Tenants>;

Result<AllTenants> count_tenants(std::span<Device* const> devices) {
  if (devices.empty()) return Status(StatusCode::invalid_argument, "a world without ranks");
  AllTenants all;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (devices[rank] == nullptr)
      return Status(
          StatusCode::unsupported,
          fmt::format("rank {} has no device in this process; ranks of several processes join a "
                      "world one by one",
                      rank),
          static_cast<int>(rank));
    Tenants& tenants = all[devices[rank]->id()];
    tenants.device = devices[rank];
    ++tenants.ranks;
  }
  return all;
}

}  // namespace

Status check_options(const GpuOptions& options) {
  const auto refuse = [](const std::string& text) {
    return Status(StatusCode::invalid_argument, text);
  };
  if (options.threads < 1 || options.threads > kKernelThreadsMax)
    return refuse(
        fmt::format("{} threads: a block has 1 to {}", options.threads, kKernelThreadsMax));
  if (options.channels < 0 || options.channels > kChannelsMax)
    return refuse(fmt::format("{} channels: there may be 1 to {}, or 0 to choose", options.channels,
                              kChannelsMax));
  if (options.lanes < 0 || options.lanes > kLanesMax)
    return refuse(fmt::format("{} lanes: there may be 0 to {}", options.lanes, kLanesMax));
  if (options.slots < 2) return refuse("a queue needs at least 2 slots");
  if (options.slot_bytes % kVectorBytes != 0 || options.slot_bytes == 0)
    return refuse(fmt::format("slots of {} bytes: it must be a multiple of {}", options.slot_bytes,
                              kVectorBytes));
  if (std::max(options.slot_bytes, options.flagged_bytes) > kMessageBytesMax)
    return refuse(fmt::format("messages of {} bytes: there may be at most {}",
                              std::max(options.slot_bytes, options.flagged_bytes),
                              kMessageBytesMax));
  if (options.flagged_bytes % kUnitBytes != 0)
    return refuse(fmt::format("messages of low latency of {} bytes: it must be a multiple of {}",
                              options.flagged_bytes, kUnitBytes));
  if (options.channel_bytes == 0 || options.records == 0)
    return refuse("channel_bytes and records must be positive");
  if (options.timeout.count() < 0) return refuse("a timeout must not be negative; 0 is none");
  return Status();
}

namespace {

// Channels that all ranks of this device can have at once.
Result<int> channels_that_fit(const Tenants& tenants, const GpuOptions& options) {
  Device& device = *tenants.device;
  const auto blocks = device.blocks_at_once(options.threads);
  TUTTI_TRY(blocks);
  const int fit = *blocks / tenants.ranks;
  const int wanted = std::max(1, options.channels);
  if (fit < wanted)
    return Status(
        StatusCode::unsupported,
        fmt::format("{} has {} ranks of {} channels, which are {} blocks of {} threads that must "
                    "be on it at once, but only {} fit; use at most {}",
                    device.name(), tenants.ranks, wanted, tenants.ranks * wanted, options.threads,
                    *blocks,
                    fit > 0 ? fmt::format("{} channels", fit) : fmt::format("{} ranks", *blocks)));
  if (tenants.ranks > device.streams_at_once())
    return Status(
        StatusCode::unsupported,
        fmt::format("{} has {} ranks, whose kernels must run beside each other, but it is sure to "
                    "run those of {} streams; set CUDA_DEVICE_MAX_CONNECTIONS (at most 32) before "
                    "the program starts, or use fewer ranks",
                    device.name(), tenants.ranks, device.streams_at_once()));
  return fit;
}

Result<int> choose_channels(const AllTenants& all, const GpuOptions& options) {
  int least = options.channels > 0 ? options.channels : kChannelsMax;
  for (const auto& [id, tenants] : all) {
    const auto fit = channels_that_fit(tenants, options);
    TUTTI_TRY(fit);
    least = std::min(least, *fit);
  }
  return least;
}

Status join_devices(const AllTenants& all) {
  for (const auto& [id, tenants] : all)
    for (const auto& [other, peers] : all)
      if (id != other) TUTTI_TRY(tenants.device->reach(*peers.device));
  return Status();
}

}  // namespace

ControlShape shape_of(const GpuOptions& options, std::size_t ranks, int channels) {
  ControlShape shape;
  shape.ranks = static_cast<std::uint32_t>(ranks);
  shape.channels = static_cast<std::uint32_t>(channels);
  shape.slots = options.slots;
  shape.slot_bytes = static_cast<std::uint32_t>(options.slot_bytes);
  shape.flagged_bytes = static_cast<std::uint32_t>(options.flagged_bytes);
  shape.lanes = static_cast<std::uint32_t>(std::min(options.lanes, channels));
  return shape;
}

Result<std::unique_ptr<GpuWorld>> GpuWorld::make(std::span<Device* const> devices,
                                                 const GpuOptions& options) {
  TUTTI_TRY(check_options(options));
  const auto tenants = count_tenants(devices);
  TUTTI_TRY(tenants);
  const auto channels = choose_channels(*tenants, options);
  TUTTI_TRY(channels);
  TUTTI_TRY(join_devices(*tenants));
  PlansOptions planning;
  planning.ranks = static_cast<int>(devices.size());
  for (const auto& [id, here] : *tenants)
    planning.ranks_per_device = std::max(planning.ranks_per_device, here.ranks);
  planning.channels = *channels;
  planning.slot_bytes = options.slot_bytes;
  planning.direct = options.direct;
  planning.algorithm = options.algorithm;
  planning.topology = options.topology;
  auto plans = Plans::make(planning);
  TUTTI_TRY(plans);
  std::unique_ptr<GpuWorld> world(new GpuWorld(
      options, shape_of(options, devices.size(), *channels), tenants->size(), *std::move(plans)));
  std::vector<std::byte*> controls;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto number = static_cast<Rank>(rank);
    auto memory = RankMemory::make(*devices[rank], world->shape_, number);
    if (!memory.ok()) return memory.status().with_context(fmt::format("rank {}", rank));
    controls.push_back(memory->control());
    world->ranks_.emplace_back(new GpuRank(*world, number, *std::move(memory), options.records));
  }
  for (const auto& rank : world->ranks_)
    TUTTI_TRY(rank->memory_.connect(direct_links(world->shape_, rank->rank(), controls)));
  return world;
}

// Kernels leave by themselves, but a rank's still tells all others why: no memory goes before. That
// of other processes may be gone, and is left alone.
GpuWorld::~GpuWorld() {
  for (const auto& rank : ranks_)
    if (rank) static_cast<void>(rank->memory_.give_notice(Why::aborted, 0));
  for (const auto& rank : ranks_)
    if (rank) rank->wait();
  carrier_.reset();
  regions_.reset();
  for (const Peer& peer : peers_)
    if (peer.imported) rank(own_).device().forget_memory(peer.control);
}

std::size_t GpuWorld::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& rank : ranks_)
    if (rank) bytes += rank->memory_.bytes();
  return bytes + (carrier_ ? carrier_->device_bytes() : 0);
}

bool GpuWorld::is_idle() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    if (!rank) return true;
    const auto idle = rank->is_idle();
    return idle.ok() && *idle;
  });
}

Status GpuWorld::abort(Rank culprit) {
  aborted_.store(true, std::memory_order_relaxed);
  Status first;
  const auto who = static_cast<std::uint32_t>(culprit == Status::kUnknownRank ? 0 : culprit + 1);
  for (const auto& rank : ranks_) {
    if (!rank) continue;
    if (const Status told = rank->memory_.give_notice(Why::aborted, who); first.ok()) first = told;
  }
  // They may be gone, and hear of it from their kernels, too.
  for (const Peer& peer : peers_)
    static_cast<void>(rank(own_).memory_.give_notice_to(peer.control, Why::aborted, who));
  if (carrier_) carrier_->give_notice(make_notice(Why::aborted, who));
  return first;
}

// As many channels as the data is worth; low latency where every message fits its slot.
Result<GpuWorld::Cutting> GpuWorld::cut(const ProgramHeader& program, const GpuCall& call) const {
  const auto element = static_cast<std::uint32_t>(size_of(call.type));
  ScheduleShape plain;
  plain.collective = call.collective;
  plain.ranks = ranks();
  const int blocks =
      std::max(block_count(plain, Buffer::input), block_count(plain, Buffer::output));
  const std::size_t bytes = call.count * element * static_cast<std::size_t>(std::max(1, blocks));
  Cutting cutting;
  cutting.channels = static_cast<std::uint32_t>(std::clamp<std::size_t>(
      (bytes + options_.channel_bytes - 1) / options_.channel_bytes, 1, shape_.channels));
  cutting.protocol = protocol_for(program, shape_, call.count, element, cutting.channels);
  if (slices_needed(program, shape_, call.count, element, cutting.channels, cutting.protocol) > 0)
    return cutting;
  return Status(
      StatusCode::unsupported,
      fmt::format("{} of {} x {}: messages of {} chunks do not fit slots of {} bytes; use "
                  "larger ones or another algorithm",
                  to_string(call.collective), call.count, to_string(call.type),
                  program.message_chunks_max, shape_.slot_bytes));
}

}  // namespace tutti::runtime::gpu
