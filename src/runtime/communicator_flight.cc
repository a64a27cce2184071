// What a communicator tells its flight recorder, and people, when it does not move or has failed.
// All of this is off the hot path: some of it reads the recorders of the other ranks.
#include <fmt/format.h>

#include "collectives/footprint.hpp"
#include "runtime/communicator_state.hpp"
#include "runtime/flight/text.hpp"

namespace tutti::runtime {
namespace {

constexpr std::size_t kCallsTold = 3;
constexpr std::size_t kCallsToldVerbosely = 8;

double seconds(flight::Watch::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void CommunicatorState::look_after_wait(Waiter::Clock::time_point now) {
  using News = flight::Watch::News;
  const News news = watch_.look(now, calls_.load(std::memory_order_relaxed),
                                moves_.load(std::memory_order_relaxed));
  if (news == News::none) return;
  if (news == News::waits || news == News::slow) note_wait();
  if (news == News::moves || news == News::back) {
    std::lock_guard lock(mutex_);
    flight_.clear_wait();
  }
  if (news == News::back)
    log_.warn(fmt::format("rank {} came back after {:.1f} s", slow_rank_, seconds(watch_.stood())));
  if (news != News::slow || !log_.says(base::LogLevel::warn)) return;
  const std::optional<flight::Culprit> culprit = find_culprit();
  std::unique_lock lock(mutex_);
  if (current_ == nullptr) return;
  const Executor::Awaited awaited = executor_->awaited();
  const std::string call = to_string(current_->call_.signature);
  lock.unlock();
  slow_rank_ = culprit ? culprit->rank : awaited.rank;
  const std::string chain = culprit ? fmt::format(": {}", to_string(*culprit)) : "";
  log_.warn(fmt::format("{}: slow, has not moved for {:.1f} s; waits for {}{}", call,
                        seconds(watch_.stood()), awaited.what, chain));
}

void CommunicatorState::note_wait() {
  {
    std::lock_guard lock(mutex_);
    if (current_ == nullptr) return;
    const Executor::Awaited awaited = executor_->awaited();
    flight_.wait(awaited.all, awaited.what, watch_.since_ticks());
  }
  note_memory();
}

// Only from the thread that makes calls: the planner is its.
MemoryUse CommunicatorState::memory_use_locked() {
  MemoryUse use;
  use.plan_bytes = executor_->program_bytes();
  if (parts_.planner) use.plan_bytes += parts_.planner->memory_bytes();
  if (parts_.tuner) use.plan_bytes += parts_.tuner->memory_bytes();
  // Plans that are no planner's: those of point-to-point calls, and of groups.
  const Memo& pair = memos_[static_cast<std::size_t>(Collective::send_recv)];
  for (const auto& plan : {pair.plan, exchange_plan_})
    if (plan) use.plan_bytes += sizeof(*plan) + collectives::bytes_of(*plan->program);
  use.transport_bytes = transport_->memory_bytes();
  use.scratch_bytes = executor_->scratch_bytes() + (scaled_ ? scaled_->bytes() : 0);
  use.recorder_bytes = flight_.memory_bytes();
  return use;
}

MemoryUse CommunicatorState::memory_use() {
  if (!check_process().ok()) return {};
  note_memory();
  std::lock_guard lock(mutex_);
  return memory_use_locked();
}

void CommunicatorState::note_memory() {
  if (!flight_.on()) return;  // nobody reads it
  std::lock_guard lock(mutex_);
  const MemoryUse use = memory_use_locked();
  flight_.memory(use.transport_bytes, use.scratch_bytes, use.plan_bytes, waiting_.size());
}

// Whom the call in progress really waits for, from what the job's ranks on this host have noted.
std::optional<flight::Culprit> CommunicatorState::find_culprit() {
  if (!flight_.on()) return std::nullopt;
  Executor::Awaited awaited;
  Signature call;
  {
    std::lock_guard lock(mutex_);
    if (current_ == nullptr) return std::nullopt;
    awaited = executor_->awaited();
    call = current_->call_.signature;
  }
  if (awaited.all.empty()) return std::nullopt;
  const flight::Where here{parts_.members.job, parts_.members.context, rank()};
  return flight::find_culprit(flight::find_processes(), here, awaited.all, call);
}

// Requires  the lock. Once for each communicator, whatever ends it.
void CommunicatorState::note_failure() {
  const Status& status = executor_->status();
  if (status.ok() || failure_noted_) return;
  failure_noted_ = true;
  flight_.fail(status);
  const bool verbose = parts_.config.flight == base::FlightChoice::verbose;
  const bool wanted = verbose || status.code() != StatusCode::aborted;
  if (!flight_.on() || !wanted || !log_.says(base::LogLevel::warn)) return;
  const auto view = flight::view_of(flight_);
  if (!view) return;
  std::string text = flight::describe_failure(*view, verbose ? kCallsToldVerbosely : kCallsTold);
  if (verbose)
    text += "\n  its ranks on this host:\n" +
            flight::describe_ranks(flight::find_processes(), *view, "    ");
  log_.warn(text);
}

}  // namespace tutti::runtime
