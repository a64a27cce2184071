// job.cc: the launcher's decisions; see job.hpp.
#include "cli/launcher/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace tutti::cli::launcher {
namespace {

constexpr int kTimeoutExitCode = 124;

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t longest = 16;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  if (ranks.size() > 2 && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size()))
    return fmt::format("ranks {} .. {}", ranks.front(), ranks.back());
  std::string text = "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < longest; ++i) {
    const bool last = i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", ranks[i]);
  }
  if (ranks.size() > longest) text += fmt::format(" and {} more", ranks.size() - longest);
  return text;
}

Job::Job(int ranks, std::string command, JobLimits limits, Clock::time_point now)
    : command_(std::move(command)),
      limits_(limits),
      started_(now),
      running_(static_cast<std::size_t>(ranks), true),
      running_count_(ranks) {}

void Job::rank_ended(int rank, Ending ending, Clock::time_point now) {
  running_[static_cast<std::size_t>(rank)] = false;
  --running_count_;
  any_ended_well_ |= !ending.failed();
  if (ending.failed()) {
    any_failed_ = true;
    if (phase_ == Phase::running) {
      report(fmt::format("rank {} {}: {}", rank, ending.describe(), command_));
      if (!decided_code_) decided_code_ = ending.exit_code();
      if (limits_.on_failure == OnFailure::stop) enter(Phase::lingering, now);
    } else if (phase_ == Phase::lingering) {
      failed_later_.insert(std::upper_bound(failed_later_.begin(), failed_later_.end(), rank),
                           rank);
    }
  }
  if (all_ended() && !failed_later_.empty())
    report(fmt::format("after that, {} failed too", list_ranks(failed_later_)));
}

void Job::user_signal(int signal, Clock::time_point now) {
  if (user_signal_) {
    send(SIGKILL);
    enter(Phase::killed, now);
    return;
  }
  user_signal_ = signal;
  if (phase_ == Phase::killed) return;
  send(signal);
  enter(Phase::ending, now);
}

void Job::output_lost(Clock::time_point now) {
  if (user_signal_ || phase_ != Phase::running) return;
  user_signal_ = SIGPIPE;
  send(SIGTERM);
  enter(Phase::ending, now);
}

void Job::time_passed(Clock::time_point now) {
  if (all_ended()) return;
  if (phase_ == Phase::running && limits_.timeout.count() > 0 &&
      now >= started_ + limits_.timeout) {
    decided_code_ = kTimeoutExitCode;
    report(fmt::format("not finished after {:g} s, ending it; still running: {}",
                       seconds(limits_.timeout), running_ranks()));
    send(SIGTERM);
    enter(Phase::ending, now);
  } else if (phase_ == Phase::lingering && now >= phase_ends_) {
    report(fmt::format("ending what still runs: {}", running_ranks()));
    send(SIGTERM);
    enter(Phase::ending, now);
  } else if (phase_ == Phase::ending && now >= phase_ends_) {
    report(fmt::format("killing what did not end within {:g} s: {}", seconds(limits_.grace),
                       running_ranks()));
    send(SIGKILL);
    enter(Phase::killed, now);
  }
}

void Job::enter(Phase phase, Clock::time_point now) {
  phase_ = phase;
  phase_ends_ = now + limits_.grace;
}

std::string Job::running_ranks() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < running_.size(); ++rank)
    if (running_[rank]) ranks.push_back(static_cast<int>(rank));
  return list_ranks(ranks);
}

std::vector<int> Job::take_signals() { return std::exchange(signals_, {}); }
std::vector<std::string> Job::take_reports() { return std::exchange(reports_, {}); }

std::optional<Clock::time_point> Job::wake_at() const {
  if (all_ended() || phase_ == Phase::killed) return std::nullopt;
  if (phase_ != Phase::running) return phase_ends_;
  if (limits_.timeout.count() > 0) return started_ + limits_.timeout;
  return std::nullopt;
}

int Job::exit_code() const {
  const bool went_on = limits_.on_failure == OnFailure::go_on && phase_ == Phase::running;
  if (went_on && any_ended_well_) return 0;
  if (decided_code_) return *decided_code_;
  if (user_signal_ && any_failed_) return 128 + *user_signal_;
  return 0;
}

}  // namespace tutti::cli::launcher
