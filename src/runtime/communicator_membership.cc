// What still works when a communicator has failed: telling everybody, and agreeing.
#include <thread>

#include <fmt/format.h>

#include "base/try.hpp"
#include "runtime/communicator_state.hpp"

namespace tutti::runtime {
namespace {

// For what was said to leave this process; whoever does not take it by then is not there.
constexpr std::chrono::milliseconds kFlushTime{50};

constexpr std::chrono::milliseconds kAbortPatience{1};  // with whoever holds the lock

std::string list(const std::vector<Rank>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

Status CommunicatorState::abort_status() const {
  return Status(StatusCode::aborted, fmt::format("rank {} was told to abort", rank()), rank());
}

// Whoever drives sees the flag, and completes what is current. Who holds the lock may be past
// looking, though, and neither drive nor call again.
void CommunicatorState::abort() {
  if (!check_process().ok()) return;
  aborted_.store(true);
  std::unique_lock lock(mutex_, std::try_to_lock);
  const auto end = Waiter::Clock::now() + kAbortPatience;
  while (!lock.owns_lock() && abort_is_news() && Waiter::Clock::now() < end) {
    std::this_thread::yield();
    static_cast<void>(lock.try_lock());
  }
  if (lock.owns_lock())
    take_abort();
  else if (abort_is_news() && has_progress())
    expect_work();
}

// Requires  the lock. True when there was one that nobody knew of.
bool CommunicatorState::take_abort() {
  if (!abort_is_news()) [[likely]]
    return false;
  executor_->fail(abort_status());
  tell_all();
  note_failure();
  return true;
}

// Requires  the lock.
void CommunicatorState::tell_all() {
  told_.store(true, std::memory_order_relaxed);
  membership_->spread(executor_->status());
  expect_questions();
}

// From now on others need what this rank knows, whatever its program does.
void CommunicatorState::expect_questions() {
  if (size() == 1 || listens_.exchange(true, std::memory_order_relaxed)) return;
  if (has_progress()) expect_work();
}

// Others may still agree, and need what this rank knows.
bool CommunicatorState::drive_membership() {
  if (!membership_->in_use()) return false;
  static_cast<void>(transport_->poll());
  return membership_->advance();
}

Status CommunicatorState::revoke(const Status& why) {
  TUTTI_TRY(check_process());
  std::lock_guard lock(mutex_);
  executor_->fail(why);
  tell_all();
  conclude(true);
  const auto deadline = Waiter::Clock::now() + kFlushTime;
  do {
    static_cast<void>(transport_->poll());
    membership_->advance();
  } while (!transport_->flushed() && Waiter::Clock::now() < deadline);
  return Status();
}

Status CommunicatorState::begin_agreement(std::uint64_t flags, std::string blob) {
  TUTTI_TRY(check_process());
  std::lock_guard lock(mutex_);
  if (current_ != nullptr || !waiting_.empty())
    return Status(
        StatusCode::invalid_argument,
        fmt::format("rank {}: agree: wait for the collectives that were started first", rank()));
  if (membership_->under_way())
    return Status(StatusCode::invalid_argument,
                  fmt::format("rank {}: agree: an earlier one did not come to its end", rank()));
  membership_->begin(flags, std::move(blob));
  expect_questions();
  return Status();
}

std::optional<Result<Decision>> CommunicatorState::move_agreement(bool& moved) {
  std::lock_guard lock(mutex_);
  static_cast<void>(transport_->poll());
  look_at_board();
  moved = membership_->advance();
  if (auto decision = membership_->take_decision()) {
    membership_->advance();  // what the others are still to be told
    if (!decision->lost[static_cast<std::size_t>(rank())]) return *std::move(decision);
    return Result<Decision>(
        Status(StatusCode::peer_lost,
               fmt::format("rank {}: agree: the others hold this rank for lost", rank()), rank()));
  }
  take_abort();
  if (aborted_.load(std::memory_order_relaxed)) return Result<Decision>(abort_status());
  return std::nullopt;
}

Status CommunicatorState::give_up_agreement(std::chrono::milliseconds after) {
  std::lock_guard lock(mutex_);
  const std::vector<Rank> awaited = membership_->awaited();
  return Status(StatusCode::timeout,
                fmt::format("rank {}: agree: not complete after {} ms; waits for {}", rank(),
                            after.count(), list(awaited)),
                awaited.empty() ? Status::kUnknownRank : awaited.front());
}

Result<Decision> CommunicatorState::agree(std::uint64_t flags, std::string blob,
                                          std::chrono::milliseconds timeout) {
  TUTTI_TRY(begin_agreement(flags, std::move(blob)));
  Waiter waiter(parts_.config.wait, parts_.ranks_share_cores, timeout);
  const Attendance here(attended_);
  while (true) {
    bool moved = false;
    if (auto end = move_agreement(moved)) return *std::move(end);
    if (waiter.expired()) return give_up_agreement(timeout);
    if (!moved && waiter.has_time()) moved = drive_others(*this);
    if (moved)
      waiter.progressed();
    else if (waiter.idle())
      sleep();
  }
}

// What the launcher saw is told to the membership as well.
void CommunicatorState::look_at_board() {
  const Members& members = parts_.members;
  if (!members.board) return;
  for (Rank r = 0; r < size(); ++r)
    if (const auto ending = members.board->ending(members.job_rank(r));
        ending && ending->failed() && r != rank())
      membership_->lost(r);
}

void CommunicatorState::hold_for_lost(const std::vector<Rank>& ranks) {
  std::lock_guard lock(mutex_);
  for (const Rank rank : ranks) membership_->lost(rank);
}

Status CommunicatorState::look_for_deaths(const std::vector<bool>& known) {
  std::lock_guard lock(mutex_);
  if (take_abort() || aborted_.load(std::memory_order_relaxed)) return abort_status();
  const Status polled = transport_->poll().status();
  membership_->advance();
  look_at_board();
  if (const int whom = polled.culprit();
      polled.code() == StatusCode::peer_lost && whom >= 0 && !known[static_cast<std::size_t>(whom)])
    return polled;
  const std::vector<bool>& lost = membership_->lost_ranks();
  for (std::size_t r = 0; r < lost.size(); ++r)
    if (lost[r] && !known[r])
      return Status(StatusCode::peer_lost, fmt::format("rank {} was lost", r), static_cast<int>(r));
  return Status();
}

}  // namespace tutti::runtime
