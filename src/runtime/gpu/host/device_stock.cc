// device_stock.cc: see device_stock.hpp.
#include "runtime/gpu/host/device_stock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/try.hpp"
#include "runtime/gpu/host/cuda_device.hpp"

namespace tutti::runtime::gpu {
namespace {

Status too_few(const Device& device, int ranks, int left, const char* of_what, const char* help) {
  return Status(StatusCode::unsupported,
                fmt::format("{}: the kernels of {} ranks must run beside each other, and other "
                            "worlds have left {} {}; {}",
                            device.name(), ranks, left, of_what, help));
}

bool is_over(const GpuWorld& world) { return world.is_idle() && world.have_others_left(); }

}  // namespace

DeviceStock& DeviceStock::of_process() {
  static auto* const stock =
      new DeviceStock([](int ordinal) { return make_cuda_device(ordinal, kernel_image()); });
  return *stock;
}

DeviceStock::Tenancy::~Tenancy() {
  world_.reset();
  stock_.give_back(*this);
}

Result<DeviceStock::Entry*> DeviceStock::entry(int ordinal) {
  if (const auto found = entries_.find(ordinal); found != entries_.end()) return &found->second;
  Entry made;
  auto device = make_(ordinal);
  TUTTI_TRY(device);
  made.device = *std::move(device);
  const auto blocks = made.device->blocks_at_once(kKernelThreadsMax);
  TUTTI_TRY(blocks);
  made.blocks = *blocks;
  made.streams = made.device->streams_at_once();
  return &entries_.emplace(ordinal, std::move(made)).first->second;
}

// Channels for each of so many ranks: those that are wanted, or with 0 what one may take.
Result<int> DeviceStock::room_for(const Entry& here, int ranks, int channels) const {
  const int blocks = here.blocks - here.blocks_taken;
  const int streams = here.streams - here.streams_taken;
  if (blocks < ranks * std::max(1, channels))
    return too_few(*here.device, ranks, blocks, "blocks", "use fewer ranks or worlds on it");
  if (streams < ranks)
    return too_few(*here.device, ranks, streams, "streams",
                   "set CUDA_DEVICE_MAX_CONNECTIONS (at most 32) before the program starts");
  return channels > 0 ? channels : std::clamp(blocks / 2 / ranks, 1, kChannelsMax);
}

Result<std::unique_ptr<DeviceStock::Tenancy>> DeviceStock::take_seat(int ordinal, int ranks) {
  take_what_is_over().clear();
  const std::lock_guard lock(mutex_);
  const auto here = entry(ordinal);
  TUTTI_TRY(here);
  const auto room = room_for(**here, ranks, 0);
  TUTTI_TRY(room);
  std::unique_ptr<Tenancy> made(new Tenancy(*this));
  made->ranks_[ordinal] = 1;
  made->channels_ = *room;
  (*here)->blocks_taken += *room;
  ++(*here)->streams_taken;
  return made;
}

Status DeviceStock::Tenancy::join(GpuSeat seat, const GpuOptions& options) {
  const int ordinal = ranks_.begin()->first;
  {
    const std::lock_guard lock(stock_.mutex_);
    Entry& here = stock_.entries_.at(ordinal);
    seat.device = here.device.get();
    here.blocks_taken -= channels_ - options.channels;
    channels_ = options.channels;
  }
  auto world = GpuWorld::join(seat, options);
  TUTTI_TRY(world);
  world_ = *std::move(world);
  return Status();
}

Result<std::unique_ptr<DeviceStock::Tenancy>> DeviceStock::make_world(std::span<const int> ordinals,
                                                                      GpuOptions options) {
  take_what_is_over().clear();
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Tenancy> made(new Tenancy(*this));
  for (const int ordinal : ordinals) ++made->ranks_[ordinal];
  int channels = options.channels > 0 ? options.channels : kChannelsMax;
  for (const auto& [ordinal, ranks] : made->ranks_) {
    const auto here = entry(ordinal);
    TUTTI_TRY(here);
    const auto room = room_for(**here, ranks, options.channels);
    TUTTI_TRY(room);
    channels = std::min(channels, *room);
  }
  options.channels = channels;
  std::vector<Device*> devices;
  for (const int ordinal : ordinals) devices.push_back(entries_.at(ordinal).device.get());
  auto world = GpuWorld::make(devices, options);
  TUTTI_TRY(world);
  made->world_ = *std::move(world);
  made->channels_ = channels;
  for (const auto& [ordinal, ranks] : made->ranks_) {
    entries_.at(ordinal).blocks_taken += ranks * channels;
    entries_.at(ordinal).streams_taken += ranks;
  }
  return made;
}

void DeviceStock::retire(std::unique_ptr<Tenancy> tenancy) {
  give_back(*tenancy);
  const std::lock_guard lock(mutex_);
  retired_.push_back(std::move(tenancy));
}

// To be destroyed without the lock.
std::vector<std::unique_ptr<DeviceStock::Tenancy>> DeviceStock::take_what_is_over() {
  const std::lock_guard lock(mutex_);
  const auto over = std::partition(retired_.begin(), retired_.end(),
                                   [](const auto& each) { return !is_over(each->world()); });
  std::vector<std::unique_ptr<Tenancy>> taken(std::make_move_iterator(over),
                                              std::make_move_iterator(retired_.end()));
  retired_.erase(over, retired_.end());
  return taken;
}

void DeviceStock::give_back(Tenancy& tenancy) {
  if (tenancy.channels_ == 0) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [ordinal, ranks] : tenancy.ranks_) {
    entries_.at(ordinal).blocks_taken -= ranks * tenancy.channels_;
    entries_.at(ordinal).streams_taken -= ranks;
  }
  tenancy.channels_ = 0;
}

}  // namespace tutti::runtime::gpu
