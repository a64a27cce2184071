// job.hpp: what the launcher does when ranks end, signals come and time passes.
//
// A state machine without processes, clocks or descriptors: events and the time go in, and what to
// send and what to say come out as data. So tests run it through every order of events.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/job_board.hpp"

namespace tutti::cli::launcher {

using Clock = std::chrono::steady_clock;

using Ending = base::RankEnding;

// What becomes of the others when a rank fails.
enum class OnFailure { stop, go_on };

struct JobLimits {
  std::chrono::milliseconds grace{3000};  // between asking ranks to end and killing them
  std::chrono::milliseconds timeout{0};   // for the whole job; 0: none
  OnFailure on_failure = OnFailure::stop;
};

// One run of a program on all ranks.
//
// Normal end   every rank exits with 0.
// A rank fails the others have `grace` to say what they saw, then get SIGTERM, then, after another
//              `grace`, SIGKILL. The exit code is that of the first that failed. Or the others go
//              on, if so wanted: then it is 0 when any rank ends with 0.
// A signal     is passed on to the ranks, which have `grace` before SIGKILL; a second signal kills
//              at once. The exit code is 128 + signal unless all ranks exit with 0 all the same.
// Time is up   SIGTERM, `grace`, SIGKILL; the exit code is 124, as timeout(1) has it.
class Job {
 public:
  // `command` is what reports call the program.
  Job(int ranks, std::string command, JobLimits limits, Clock::time_point now);

  void rank_ended(int rank, Ending ending, Clock::time_point now);
  void user_signal(int signal, Clock::time_point now);
  void time_passed(Clock::time_point now);
  // Nobody reads our output any more: as a user's signal, but the ranks get SIGTERM.
  void output_lost(Clock::time_point now);

  // What to do now; each is handed out once, in order.
  std::vector<int> take_signals();          // to send to every rank that still runs
  std::vector<std::string> take_reports();  // lines for the user

  // When time_passed wants to be called next; none: only events matter.
  std::optional<Clock::time_point> wake_at() const;

  bool all_ended() const { return running_count_ == 0; }
  bool is_running(int rank) const { return running_[static_cast<std::size_t>(rank)]; }

  // Requires  all_ended().
  int exit_code() const;

 private:
  enum class Phase {
    running,
    lingering,  // a rank failed; the others may still report why
    ending,     // told to end; killed when the time is up
    killed,
  };

  void enter(Phase phase, Clock::time_point now);
  void send(int signal) { signals_.push_back(signal); }
  void report(std::string text) { reports_.push_back(std::move(text)); }
  std::string running_ranks() const;

  std::string command_;
  JobLimits limits_;
  Clock::time_point started_;
  Phase phase_ = Phase::running;
  Clock::time_point phase_ends_{};
  std::vector<bool> running_;
  int running_count_;
  bool any_failed_ = false;
  bool any_ended_well_ = false;
  std::optional<int> decided_code_;  // by the first failure or the time-out
  std::optional<int> user_signal_;
  std::vector<int> failed_later_;  // ranks that failed on their own after the first
  std::vector<int> signals_;
  std::vector<std::string> reports_;
};

// "rank 0", "ranks 0, 2 and 5", "ranks 0 .. 7"; long lists are cut. Requires  ascending, not empty.
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace tutti::cli::launcher
