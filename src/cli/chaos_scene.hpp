// chaos_scene.hpp: a simulated world while it runs: its ranks, its calls, and what befalls them.
// The inside of chaos_world.hpp: chaos_world.cc makes it and its calls, chaos_messages.cc messages
// between a few and what ranks do that have failed, chaos_moves.cc lets ranks and network move,
// chaos_news.cc judges who has heard what, chaos_recovery.cc lets the survivors of a failure go on.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/chaos_call.hpp"
#include "cli/chaos_faults.hpp"
#include "cli/chaos_habits.hpp"
#include "cli/chaos_turns.hpp"
#include "cli/chaos_world.hpp"
#include "transport/sim/world.hpp"

namespace tutti::cli {

// A rank of the world, and the communicator that it is in at present.
struct Participant {
  Rank rank = 0;  // in the world
  std::shared_ptr<runtime::CommunicatorState> comm;
  Transport* transport = nullptr;                                   // of `comm`
  std::vector<std::shared_ptr<runtime::CommunicatorState>> former;  // kept, as a program may
  std::shared_ptr<const collectives::Plan> plan;                    // of the call at hand
  std::shared_ptr<runtime::WorkState> work;
  const PlannedCall* planned = nullptr;   // the call at hand
  std::deque<const PlannedCall*> script;  // messages to make then
  bool told = false;                      // of a failure, by a peer of the call, before it began
  bool varied_call = false;               // others make another one
  std::unique_ptr<RankBuffers> buffers;
  bool gone = false;  // dead, or aborted and left
  Habit habit = Habit::wait;
  std::uint64_t paused_until = 0;
  std::uint64_t slowness = 1;  // looks so much less often than others
  unsigned moves = 0;

  // Of the communicator at present.
  int group = 0;
  Status error;                // the first
  std::vector<bool> partners;  // with whom it ever began a call, or tried to; empty: nobody

  bool speaks_to(Rank r) const {
    return !partners.empty() && partners[static_cast<std::size_t>(r)];
  }

  enum class Task { none, enter, call, leave, revoke, begin_agreement, agree } task = Task::none;
  std::optional<runtime::Decision> decision;
};

class ChaosWorld {
 public:
  ChaosWorld(std::uint64_t seed, const ChaosLimits& limits, const ChaosListener& listener);
  ChaosVerdict run();

 private:
  int size() const { return static_cast<int>(members_.size()); }
  bool fine() const { return verdict_.outcome == ChaosVerdict::Outcome::right; }
  Participant& member(Rank r) {
    return participants_[static_cast<std::size_t>(members_[static_cast<std::size_t>(r)])];
  }

  void say(const std::string& line) const {
    if (listener_.line) listener_.line(line);
  }

  void trouble(ChaosVerdict::Outcome outcome, std::string text);

  // ---- Communicators ----

  void join(Participant& p, int group, Rank rank);

  // ---- Faults ----

  void draw_faults();
  void draw_slowness();
  void draw_fault_of_agreement();
  int living() const;
  void strike_due();
  void strike(const Fault& fault, Participant& p);
  bool any_silent() const { return verdict_.silent_kills > 0; }

  void judge_failure(const Participant& p, const Status& status);

  // ---- Calls ----

  void run_call(PlannedCall drawn, const PlannedCall* variant = nullptr, Rank odd = -1);
  bool knows_of_failure(const Participant& p) const;
  void enter(Participant& p);
  void use_check_plan(Participant& p);
  void leave_if_done(Participant& p);
  void leave(Participant& p);
  void prepare(Participant& p, const PlannedCall& planned, const PlannedCall* variant = nullptr,
               Rank odd = -1);

  // ---- Messages ----

  std::vector<Rank> draw_few();
  std::vector<std::pair<Rank, Rank>> draw_pattern(const std::vector<Rank>& few);
  void run_messages();
  void next_message(Participant& p);

  // ---- Habits ----

  bool calls(const Participant& p) const;
  void go_astray();
  void follow_habit(Participant& p);
  void leave_or_revoke(Participant& p);

  // ---- News ----

  std::vector<Rank> peers_of(const Participant& p) const;
  void note_peers(Participant& p);
  void judge_end(Participant& p, const Status& status);
  bool news_are_missing();
  void judge_memory(const Participant& p);

  // ---- Mismatches ----

  void run_mismatch(int calls);
  bool all_failed();

  // ---- Going on ----

  void recover();
  bool agree();
  static std::string blob_of(Rank rank) { return fmt::format("rank {}", rank); }

  bool begin_agreement(Participant& p);
  void judge_contributions(const runtime::Decision& decision);
  void go_on(const runtime::Decision& decision);

  // ---- Moving ----

  bool move(Participant& p);
  void act(Participant& p, bool& moved);
  void end_task() {
    task_ended_ = true;
    ++ends_;
  }
  bool all_done();
  bool all_waiting() const;
  void move_until_done();
  void wake_reached();
  void take_turn();
  bool anything_moves();
  void stand_still();
  void give_up_agreement(Participant& p);
  std::string describe_hang();
  void finish();

  Dice dice_;
  ChaosLimits limits_;
  ChaosListener listener_;
  ChaosVerdict verdict_;
  CallRoom room_;
  std::uint64_t network_share_ = 1;  // of moves, where every rank has one
  bool checked_ = false;
  std::unique_ptr<transport::SimWorld> world_;
  std::vector<Participant> participants_;
  std::vector<Rank> members_;  // of the communicator at present, by rank there
  Plans check_plans_;
  std::deque<PlannedCall> calls_;
  std::deque<PlannedCall> messages_;
  std::optional<ChaosOracle> oracle_;  // of the latest
  bool failed_ = false;
  bool recovering_ = false;
  bool stuck_ = false;
  std::uint64_t ends_ = 0;      // of tasks
  std::uint64_t asked_at_ = 0;  // how many there were when those that wait last asked
  bool stuck_in_call_ = false;
  ChaosTurns waking_{0};
  std::vector<Rank> woken_;
  bool task_ended_ = true;  // somebody's, since all_done() looked
  ChaosFaults faults_;
  bool astray_ = false;  // ranks have habits
  bool direct_messages_ = false;
  bool all_shareable_ = false;
  std::vector<Rank> aborted_;
  std::uint64_t turns_ = 0;
};

}  // namespace tutti::cli
