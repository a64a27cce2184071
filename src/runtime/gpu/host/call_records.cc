// call_records.cc: see call_records.hpp.
#include "runtime/gpu/host/call_records.hpp"

#include <cstddef>

#include "base/try.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kAlignment = 64;
// A mark in the stream costs about as much as a launch, so only a few launches get one.
constexpr std::uint64_t kLaunchesPerMark = 32;

}  // namespace

std::size_t HashCall::operator()(const GpuCall& call) const {
  std::uint64_t hash = 0;
  const auto add = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  };
  add(static_cast<std::uint64_t>(call.collective) << 16 |
      static_cast<std::uint64_t>(call.type) << 8 | static_cast<std::uint64_t>(call.op));
  add(static_cast<std::uint64_t>(call.root));
  add(reinterpret_cast<std::uintptr_t>(call.input));
  add(reinterpret_cast<std::uintptr_t>(call.output));
  add(call.count);
  if (call.has_factor)
    add(call.factor_at == nullptr ? call.factor : reinterpret_cast<std::uintptr_t>(call.factor_at));
  for (const GpuTransfer& transfer : call.transfers) {
    add(static_cast<std::uint64_t>(transfer.peer) << 1 | (transfer.sends ? 1U : 0U));
    add(reinterpret_cast<std::uintptr_t>(transfer.memory));
    add(transfer.bytes);
  }
  return static_cast<std::size_t>(hash);
}

CallRecords::CallRecords(Device& device, std::size_t slab, std::size_t record_bytes)
    : device_(device),
      slab_(slab),
      record_bytes_((record_bytes + kAlignment - 1) / kAlignment * kAlignment) {}

CallRecords::~CallRecords() {
  for (const Mark& mark : marks_) device_.destroy_event(mark.event);
  for (const EventHandle event : spare_events_) device_.destroy_event(event);
  for (std::byte* const slab : slabs_) device_.deallocate(slab);
}

PreparedCall* CallRecords::find(const GpuCall& call) {
  const auto found = by_call_.find(call);
  if (found == by_call_.end()) return nullptr;
  if (!found->second->captured) order_.splice(order_.begin(), order_, found->second);
  return &*found->second;
}

Result<PreparedCall*> CallRecords::add(const GpuCall& call, std::span<const std::byte> content,
                                       Launch launch, const CopyBefore& copy) {
  const auto record = take_record();
  TUTTI_TRY(record);
  TUTTI_TRY(device_.copy_in(*record, content.data(), content.size()));
  if (call.transfers.empty())
    launch.call = reinterpret_cast<const DeviceCall*>(*record);
  else
    launch.exchange = reinterpret_cast<const DeviceExchange*>(*record);
  CopyBefore factor;
  if (call.factor_at != nullptr)
    factor = {*record + offsetof(DeviceCall, factor), static_cast<const std::byte*>(call.factor_at),
              size_of(call.type)};
  order_.push_front({launch, *record, copy, factor, 0, false, call, {}, 0, false});
  by_call_[call] = order_.begin();
  return &order_.front();
}

void CallRecords::forget(PreparedCall& call) {
  by_call_.erase(call.key);
  call.forgotten = true;
}

Result<std::byte*> CallRecords::take_record() {
  if (unused_ == 0) {
    const auto old = take_old();
    TUTTI_TRY(old);
    if (*old != nullptr) return *old;
    const auto slab = device_.allocate(slab_ * record_bytes_);
    TUTTI_TRY(slab);
    slabs_.push_back(*slab);
    unused_ = slab_;
  }
  return slabs_.back() + --unused_ * record_bytes_;
}

// The record of a call whose launches are over; null: there is none.
Result<std::byte*> CallRecords::take_old() {
  TUTTI_TRY(look_at_marks());
  if (order_.empty() || order_.back().last_use > finished_) return nullptr;
  std::byte* const record = order_.back().record;
  if (!order_.back().forgotten) by_call_.erase(order_.back().key);
  order_.pop_back();
  return record;
}

Status CallRecords::look_at_marks() {
  while (!marks_.empty()) {
    const auto reached = device_.reached_event(marks_.front().event);
    TUTTI_TRY(reached);
    if (!*reached) break;
    finished_ = marks_.front().launch;
    spare_events_.push_back(marks_.front().event);
    marks_.pop_front();
  }
  return Status();
}

Status CallRecords::used(PreparedCall& call, StreamHandle stream, bool captured) {
  call.last_use = ++launches_;
  if (captured && !call.captured) {
    call.captured = true;
    kept_.splice(kept_.begin(), order_, by_call_.at(call.key));
  }
  if (captured || launches_ % kLaunchesPerMark != 0) return Status();
  if (spare_events_.empty()) {
    const auto event = device_.make_event();
    TUTTI_TRY(event);
    spare_events_.push_back(*event);
  }
  const EventHandle event = spare_events_.back();
  TUTTI_TRY(device_.record(event, stream));
  spare_events_.pop_back();
  marks_.push_back({launches_, event});
  return Status();
}

}  // namespace tutti::runtime::gpu
