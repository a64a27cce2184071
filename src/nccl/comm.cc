// comm.cc: see comm.hpp.
#include "nccl/comm.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/device_meeting.hpp"

namespace tutti::nccl {

Comm::~Comm() {
  // Its calls are made on this communicator. Whoever closes or aborts it has ended it before.
  device_side_.abandon();
  if (!maker_.joinable()) return;
  // The last share may be the maker's own.
  if (maker_.get_id() == std::this_thread::get_id())
    maker_.detach();
  else
    maker_.join();
}

Status Comm::make(const Maker& maker) {
  TUTTI_TRY(connect(maker));
  auto devices = meet_on_devices(communicator_, identity_.device,
                                 {identity_.copy_engines, identity_.blocking});
  if (!devices.ok()) return fail(devices.status());
  device_side_.join(*std::move(devices));
  become_ready();
  return Status();
}

Status Comm::make(const Maker& maker, std::shared_ptr<DeviceGroup> devices) {
  TUTTI_TRY(connect(maker));
  device_side_.join(std::move(devices));
  become_ready();
  return Status();
}

Status Comm::connect(const Maker& maker) {
  Result<Communicator> made = maker();
  if (!made.ok()) return fail(made.status());
  const std::lock_guard lock(mutex_);
  communicator_ = *std::move(made);
  connected_ = true;
  rank_.store(communicator_.rank(), std::memory_order_relaxed);
  size_.store(communicator_.size(), std::memory_order_relaxed);
  // Who aborted meanwhile did not have it yet.
  if (aborted_.load()) communicator_.abort();
  return Status();
}

Status Comm::fail(const Status& why) {
  const Status noted = note(why);
  phase_.store(Phase::failed, std::memory_order_release);
  return noted;
}

void Comm::become_ready() {
  const std::lock_guard lock(mutex_);
  phase_.store(Phase::ready, std::memory_order_release);
  if (aborted_.load()) device_side_.abort_kernels(rank());
}

Status Comm::bad_news() const {
  if (!aborted_.load(std::memory_order_relaxed)) return Status();
  return Status(StatusCode::aborted,
                fmt::format("rank {} was told to abort while it joined", rank()), rank());
}

Status Comm::usable() const {
  switch (phase()) {
    case Phase::ready:
      return Status();
    case Phase::making:
      return Status(StatusCode::unsupported,
                    fmt::format("rank {}: the communicator is still being made; ask "
                                "ncclCommGetAsyncError until it is not ncclInProgress",
                                rank()));
    case Phase::closed:
      return Status(StatusCode::unsupported,
                    fmt::format("rank {}: the communicator was finalized; make a new one", rank()));
    case Phase::failed:
      break;
  }
  return failure();
}

Status Comm::failure() const {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
  }
  return device_side_.kernel_failure(rank());
}

// A refused argument leaves the communicator as it was; everything else is final there, too.
Status Comm::note(const Status& status) {
  const bool refused =
      status.code() == StatusCode::invalid_argument || status.code() == StatusCode::unsupported;
  if (status.ok()) return status;
  const std::string& name = identity_.name;
  const Status named =
      name.empty() ? status : status.with_context(fmt::format("communicator '{}'", name));
  if (refused && phase() != Phase::making) return named;
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = named;
  return named;
}

// An all-to-all in place is asked for by people who know that NCCL happens to do it: its input is
// copied first.
std::span<const Call> Comm::out_of_place(std::span<const Call> calls) {
  const auto in_place = [](const Call& call) {
    return call.kind == CallKind::all_to_all && call.input == call.output && call.count > 0;
  };
  copies_.clear();
  if (std::none_of(calls.begin(), calls.end(), in_place)) [[likely]]
    return calls;
  replaced_.assign(calls.begin(), calls.end());
  for (Call& call : replaced_) {
    if (!in_place(call)) continue;
    const auto* bytes = static_cast<const std::byte*>(call.input);
    const std::size_t count = footprint_of(call, rank(), size()).input_bytes;
    copies_.emplace_back(bytes, bytes + count);
    call.input = copies_.back().data();
  }
  return replaced_;
}

Result<std::vector<Work>> Comm::start(std::span<const Call> calls) {
  TUTTI_TRY(usable());
  auto works = nccl::start(communicator_, out_of_place(calls));
  if (!works.ok()) return note(works.status());
  return works;
}

Status Comm::run(std::span<const Call> calls) {
  TUTTI_TRY(usable());
  return note(nccl::run(communicator_, out_of_place(calls)));
}

void Comm::abort() {
  aborted_.store(true);
  const std::lock_guard lock(mutex_);
  if (connected_) communicator_.abort();
  if (phase() == Phase::ready) device_side_.abort_kernels(rank());
}

Status Comm::revoke() {
  const std::lock_guard lock(mutex_);
  // Its state only leaves `ready` under this lock.
  if (phase() != Phase::ready) return Status(StatusCode::unsupported, "there is nothing to revoke");
  device_side_.abort_kernels(rank());
  return communicator_.revoke();
}

Status Comm::close() {
  device_side_.finish(rank());
  const std::lock_guard in_use(in_use_);
  Communicator closing;
  {
    const std::lock_guard lock(mutex_);
    if (phase() != Phase::ready) return Status();
    closing = std::move(communicator_);
    connected_ = false;
    phase_.store(Phase::closed, std::memory_order_release);
  }
  return closing.close();
}

int Comm::add_premul_sum(PremulSum made, int first) {
  const std::lock_guard lock(mutex_);
  int number = first;
  for (const auto& [taken, unused] : premul_sums_)
    if (taken == number) ++number;
  premul_sums_[number] = std::move(made);
  return number;
}

Status Comm::remove_premul_sum(int number) {
  const std::lock_guard lock(mutex_);
  if (premul_sums_.erase(number) == 1) return Status();
  return Status(StatusCode::invalid_argument,
                fmt::format("{} is no operation that this communicator made", number));
}

Result<Comm::PremulSum> Comm::premul_sum(int number) const {
  const std::lock_guard lock(mutex_);
  const auto found = premul_sums_.find(number);
  if (found == premul_sums_.end())
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} is no ncclRedOp_t of this communicator", number));
  return found->second;
}

}  // namespace tutti::nccl
