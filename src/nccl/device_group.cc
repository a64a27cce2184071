// device_group.cc: see device_group.hpp.
#include "nccl/device_group.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/memory_kind.hpp"
#include "nccl/process.hpp"
#include "runtime/special_reduction.hpp"

namespace tutti::nccl {

namespace gpu = runtime::gpu;

namespace {

constexpr std::chrono::microseconds kLook{50};  // between looks at a device that works

// Memory that this rank does not touch is left out: it may be anything.
gpu::GpuCall for_kernels(const Call& call, Collective collective, Rank rank, int size) {
  const Footprint bytes = footprint_of(call, rank, size);
  gpu::GpuCall made;
  made.collective = collective;
  made.type = call.type;
  made.op = call.op.op();
  made.root = call.peer;
  made.input = bytes.input_bytes > 0 ? call.input : nullptr;
  made.output = bytes.output_bytes > 0 ? call.output : nullptr;
  made.count = call.count;
  if (const auto& special = call.op.special(); special != nullptr) {
    made.has_factor = true;
    std::memcpy(&made.factor, special->scalar.data(), sizeof made.factor);
    made.factor_at = call.factor_at;
  }
  return made;
}

gpu::GpuTransfer for_kernels(const Call& call) {
  const bool sends = call.kind == CallKind::send;
  const std::size_t bytes = call.count * size_of(call.type);
  void* const memory = sends ? const_cast<void*>(call.input) : call.output;
  return {sends, call.peer, bytes > 0 ? static_cast<std::byte*>(memory) : nullptr, bytes};
}

// Both names of the stream that waits for all others of its context (cudaStreamLegacy is 1).
bool is_default_stream(const void* stream) { return reinterpret_cast<std::uintptr_t>(stream) <= 1; }

}  // namespace

Result<std::shared_ptr<DeviceGroup>> DeviceGroup::make(std::vector<int> ordinals,
                                                       const gpu::GpuOptions& options,
                                                       Stock& stock) {
  auto tenancy = stock.make_world(ordinals, options);
  TUTTI_TRY(tenancy);
  return std::shared_ptr<DeviceGroup>(
      new DeviceGroup(std::move(ordinals), stock, *std::move(tenancy)));
}

std::shared_ptr<DeviceGroup> DeviceGroup::make_joined(Rank rank, int size, int ordinal,
                                                      std::unique_ptr<Stock::Tenancy> tenancy,
                                                      Stock& stock) {
  std::vector<int> ordinals(static_cast<std::size_t>(size), kElsewhere);
  ordinals[static_cast<std::size_t>(rank)] = ordinal;
  return std::shared_ptr<DeviceGroup>(
      new DeviceGroup(std::move(ordinals), stock, std::move(tenancy)));
}

Status DeviceGroup::watch(std::span<const PeerProcess> peers) {
  gpu::GpuWorld& world = tenancy_->world();
  auto made =
      PeerWatch::make(peers, [&world](Rank peer) { static_cast<void>(world.tell_ended(peer)); });
  TUTTI_TRY(made);
  watch_ = *std::move(made);
  return Status();
}

DeviceGroup::~DeviceGroup() {
  watch_.reset();
  copies_.reset();
  const bool has_joined = ranks_here() < ordinals_.size();
  if (has_joined) tenancy_->world().say_goodbye();
  if (aborted_ || has_joined) stock_.retire(std::move(tenancy_));
}

// Kernels of two ranks on one stream would be one after the other, each waiting for the other.
Status DeviceGroup::check_stream(Rank rank, const Call& call, void* stream) {
  if (!is_default_stream(stream)) return Status();
  const std::lock_guard lock(mutex_);
  const int ordinal = ordinals_[static_cast<std::size_t>(rank)];
  const auto [found, is_new] = on_default_stream_.emplace(ordinal, rank);
  if (is_new || found->second == rank) return Status();
  return Status(
      StatusCode::invalid_argument,
      fmt::format("rank {}: {}: rank {} is on device {}, too, and calls on its default "
                  "stream as well, where one would wait for the other for ever; give each "
                  "rank a stream of its own that does not wait for the default one",
                  rank, to_string(call.kind), found->second, ordinal),
      rank);
}

Status DeviceGroup::use_copy_engines() {
  auto made = gpu::CopyMeeting::make(tenancy_->world());
  TUTTI_TRY(made);
  copies_ = *std::move(made);
  return Status();
}

bool DeviceGroup::meets(const Call& call) const {
  const auto collective = collective_of(call.kind);
  return copies_ != nullptr && collective && !gpu::copies_of(*collective, 0, 1).empty();
}

Status DeviceGroup::come(Rank rank, const Call& call, void* stream) {
  const int size = static_cast<int>(ordinals_.size());
  return copies_->come(rank, for_kernels(call, *collective_of(call.kind), rank, size), stream);
}

std::optional<Result<bool>> DeviceGroup::met(Rank rank, bool may_wait) {
  std::optional<gpu::Met> met = copies_->look(rank);
  if (!met && may_wait) met = copies_->wait(rank);
  if (!met) return std::nullopt;
  if (!met->status.ok()) {
    aborted_ = true;
    static_cast<void>(tenancy_->world().abort(met->status.culprit()));
    return Result<bool>(met->status);
  }
  if (met->copied) return Result<bool>(true);
  tell_once(fmt::format("{} ranks: kernels make what copy engines were asked for: {}",
                        ordinals_.size(), met->why_kernels));
  return Result<bool>(false);
}

void DeviceGroup::withdraw(Rank rank) { copies_->withdraw(rank); }

void DeviceGroup::tell_once(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (told_.insert(text).second) log().info(text);
}

bool DeviceGroup::takes(const Call& call) {
  if (collective_of(call.kind) || tenancy_->world().shape().lanes > 0) return true;
  tell_once(
      fmt::format("{} ranks: ncclSend and ncclRecv in device memory are staged in the host's: "
                  "ranks are on several hosts",
                  ordinals_.size()));
  return false;
}

Result<bool> DeviceGroup::launch(Rank rank, const Call& call, void* stream) {
  const auto collective = collective_of(call.kind);
  TUTTI_TRY(check_stream(rank, call, stream));
  const int size = static_cast<int>(ordinals_.size());
  const Status status = this->rank(rank).call(for_kernels(call, *collective, rank, size), stream);
  // Of what no rank can do: it was found out before anything else.
  if (status.code() == StatusCode::unsupported) return false;
  TUTTI_TRY(status);
  return true;
}

Status DeviceGroup::launch_transfers(Rank rank, std::span<const Call> calls, void* stream) {
  TUTTI_TRY(check_stream(rank, calls.front(), stream));
  gpu::GpuCall made;
  for (const Call& call : calls) made.transfers.push_back(for_kernels(call));
  return this->rank(rank).call(made, stream);
}

std::uint64_t DeviceGroup::register_memory(Rank rank, const void* memory, std::size_t bytes) {
  const auto made = this->rank(rank).register_memory(memory, bytes);
  if (made.ok()) return *made;
  tell_once(fmt::format("rank {}: registered memory goes through slots: {}", rank,
                        made.status().message()));
  return 0;
}

Status DeviceGroup::deregister_memory(Rank rank, std::uint64_t registration) {
  return this->rank(rank).deregister_memory(registration);
}

Status DeviceGroup::failure(Rank rank) const { return this->rank(rank).failure(); }

Status DeviceGroup::wait(Rank rank) const {
  for (;;) {
    TUTTI_TRY(failure(rank));
    const auto idle = this->rank(rank).is_idle();
    TUTTI_TRY(idle);
    if (*idle) return failure(rank);
    std::this_thread::sleep_for(kLook);
  }
}

void DeviceGroup::abort(Rank rank) {
  aborted_ = true;
  if (copies_)
    copies_->abort(
        Status(StatusCode::aborted, fmt::format("rank {} aborted the communicator", rank), rank));
  static_cast<void>(tenancy_->world().abort(rank));
}

std::size_t DeviceGroup::ranks_here() const {
  const auto elsewhere = std::count(ordinals_.begin(), ordinals_.end(), kElsewhere);
  return ordinals_.size() - static_cast<std::size_t>(elsewhere);
}

std::size_t DeviceGroup::memory_bytes() const {
  return tenancy_->world().memory_bytes() / ranks_here();
}

Result<bool> is_in_device_memory(const transport::cuda::Driver& driver, const Call& call, Rank rank,
                                 int size, int ordinal) {
  const Footprint bytes = footprint_of(call, rank, size);
  const auto look = [&](const void* memory, std::size_t touched) -> Result<bool> {
    if (touched == 0) return true;
    const auto kind = memory_kind_of(&driver, memory);
    TUTTI_TRY(kind);
    // What the driver moves to and fro belongs to no single context.
    if (!kind->device || kind->context == nullptr || kind->ordinal == ordinal) return kind->device;
    return Status(StatusCode::invalid_argument,
                  fmt::format("rank {}: {}: the memory at {} is device {}'s, and the rank is on "
                              "device {}",
                              rank, to_string(call.kind), memory, kind->ordinal, ordinal),
                  rank);
  };
  const auto input = look(call.input, bytes.input_bytes);
  TUTTI_TRY(input);
  const auto output = look(call.output, bytes.output_bytes);
  TUTTI_TRY(output);
  return *input && *output;
}

}  // namespace tutti::nccl
