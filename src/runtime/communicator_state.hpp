// communicator_state.hpp: what stands behind a Communicator: its transport, planner and executor,
// the queue of started works, and the loop that waits for them.
//
// Works of a communicator run one after the other in the order of the calls. Whoever waits drives:
// first its own communicator, and while that has nothing to do, every other one of the process
// (progress.hpp). Each communicator has its own lock, so that ranks which are threads of one
// process reduce in parallel.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/fork.hpp"
#include "base/lock.hpp"
#include "base/log.hpp"
#include "collectives/planner.hpp"
#include "runtime/executor.hpp"
#include "runtime/flight/chain.hpp"
#include "runtime/flight/recorder.hpp"
#include "runtime/flight/watch.hpp"
#include "runtime/members.hpp"
#include "runtime/membership/membership.hpp"
#include "runtime/progress.hpp"
#include "runtime/request.hpp"
#include "runtime/special_reduction.hpp"
#include "runtime/strict.hpp"
#include "runtime/tuner_plugin.hpp"
#include "runtime/varied.hpp"
#include "runtime/waiting.hpp"
#include "tutti/communicator.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

// One started collective.
class WorkState {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  const Status& status() const { return status_; }  // once it is done
  CommunicatorState& owner() const { return *owner_; }

 private:
  friend class CommunicatorState;
  // Ready for another call.
  void reset() {
    status_ = Status();
    done_.store(false, std::memory_order_relaxed);
  }

  std::shared_ptr<CommunicatorState> owner_;  // of an asynchronous work: kept alive until done
  Call call_;
  Blocks blocks_;  // of a call whose blocks differ in size
  Reduction::Special special_;
  const collectives::Plan* plan_ = nullptr;
  std::shared_ptr<const collectives::Plan> kept_;  // of an asynchronous work: *plan_
  Status status_;
  std::atomic<bool> done_{false};
};

// What is needed to make one; see world.cc for how it is found.
struct CommunicatorParts {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<collectives::Planner> planner;
  std::unique_ptr<TunedPlanner> tuner;  // with a tuner plugin: what it wants comes first
  // Instead of the planner, for those who choose plans themselves: asked for every call.
  std::function<Result<std::shared_ptr<const collectives::Plan>>(const collectives::PlanQuery&)>
      plan_source;
  collectives::PlannerOptions planner_options;
  base::Config config;
  CommunicatorOptions options;  // as the user gave them, for split()
  std::chrono::milliseconds timeout{600'000};
  bool ranks_share_cores = false;
  bool on_one_host = true;
  std::vector<bool> neighbours;  // by rank: bound to this one's core; empty where nobody is
  // How many looks without news pass before the executor looks all the same, and how many of those
  // before it listens to what neither data nor the end of a connection tells.
  struct Patience {
    int idle_polls = 64;
    int idle_rounds = 8;
  } patience;
  Members members;  // for split(); without the exchange, which is only for making it
};

class CommunicatorState : public Driven, public std::enable_shared_from_this<CommunicatorState> {
 public:
  explicit CommunicatorState(CommunicatorParts parts);
  ~CommunicatorState() override;

  Rank rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  const CommunicatorParts& parts() const { return parts_; }
  const Transport& transport() const { return *transport_; }
  std::string transport_name() const { return std::string(transport_->traits().name); }

  using Request = runtime::Request;

  // Inside a group both only keep the call, or refuse it.
  Status run(const Request& request);
  Result<Work> start(const Request& request);
  Result<std::shared_ptr<WorkState>> start_work(const Request& request);

  // A call of blocks that differ in size; `layout` speaks of those that are sent where the ranks
  // receive one each, and the other way round.
  Status check_blocks(const Request& request) const;

  void group_begin() { ++group_depth_; }
  Result<std::vector<Work>> group_end();
  bool in_group() const { return group_depth_ > 0; }

  Status wait(WorkState& work);
  bool test(WorkState& work);

  Result<PlanReport> explain(Collective collective, std::size_t count, DataType type, Rank root);
  MemoryUse memory_use();
  void abort();
  Status close();

  // Ends every call on all ranks. `why`: as it shall be reported.
  Status revoke(const Status& why);

  // The next agreement of the ranks that live; also after a failure. Blocking, `timeout` at most.
  Result<Decision> agree(std::uint64_t flags, std::string blob, std::chrono::milliseconds timeout);
  // The same without waiting: its beginning, then moves until there is an end. True of `moved`:
  // something did.
  Status begin_agreement(std::uint64_t flags, std::string blob);
  std::optional<Result<Decision>> move_agreement(bool& moved);
  // The end of one that took too long.
  Status give_up_agreement(std::chrono::milliseconds after);
  // From now on agreements are made without these, whether they live or not.
  void hold_for_lost(const std::vector<Rank>& ranks);
  // Looks after the peers; ok, or that a rank was lost that `known` does not have.
  Status look_for_deaths(const std::vector<bool>& known);

  // Numbers the splits of this communicator, equally on all ranks.
  std::uint32_t next_split() { return ++splits_; }

  // What wait() does now and then, for those who drive without waiting: asks whom the current call
  // waits for whether it makes the same, and gives the call up.
  void inquire();
  void give_up(WorkState& work);
  std::string awaited();
  // For those who choose plans themselves.
  void use_check_plan(std::shared_ptr<const collectives::Plan> plan) {
    strict_plan_ = std::move(plan);
  }

  // For streams, of which one at a time may use it: false when another does.
  bool claim() { return !claimed_.exchange(true, std::memory_order_acquire); }
  void release() { claimed_.store(false, std::memory_order_release); }

  // Driven.
  bool drive() override { return drive_until(nullptr, 1); }
  Tending tend(bool driven) override;

 private:
  Status add_to_group(const Request& request);
  Result<Work> start_exchange(std::span<const Transfer> transfers);
  Status prepare(const Request& request, WorkState& work);
  bool repeats(const Request& request) const;
  Status prepare_again(const Request& request);
  void remember(const Request& request, const WorkState& work);
  void number_call(Signature& signature);
  Status check(const Request& request);
  Result<std::shared_ptr<const collectives::Plan>> make_plan(const collectives::PlanQuery& query);
  Status check_special(const Request& request) const;
  static void prepare_special(const Reduction::Special& special, WorkState& work);
  collectives::ReductionForm form_of(Collective collective, DataType type) const;
  Result<const collectives::Plan*> plan_for(const Request& request);
  bool point_to_point_direct(const Request& request) const;
  std::shared_ptr<const collectives::Plan> plan_point_to_point(const Request& request) const;
  void submit(WorkState& work, bool waits);
  void move(WorkState& work, bool waits);
  bool round_again();
  bool needs_neighbour(const WorkState& work);
  bool linger(const WorkState& work);
  bool glance(const WorkState& work);
  std::unique_lock<base::Lock> take();
  bool drive_until(const WorkState* work, int rounds);
  bool drive_locked();
  Status explain(Status seen) const;
  bool drive_membership();
  void tell_all();
  void expect_questions();
  bool take_abort();
  void hear();
  bool conclude(bool moved);
  void begin(WorkState& work);
  Status launch(WorkState& work);
  Status begin_call(WorkState& work);
  Status begin_check(const WorkState& work);
  Status make_check_plan();
  bool checked();
  Status start_special(WorkState& work);
  Status scale_input(WorkState& work);
  void begin_next();
  void complete_current(const Status& status);
  void look_at_board();
  void sleep();
  Status abort_status() const;

  // Nobody has looked at the flag yet, and the communicator has not failed otherwise.
  bool abort_is_news() const { return aborted_.load() && !told_.load(); }
  bool has_progress() const { return parts_.config.progress != base::ProgressChoice::off; }
  bool forked() const { return fork_generation_ != base::fork_generation(); }
  Status check_process() const;

  // What goes into the flight recorder, and into the log, off the hot path
  // (communicator_flight.cc).
  void look_after_wait(Waiter::Clock::time_point now);
  void note_wait();
  void note_memory();
  void note_failure();
  std::optional<flight::Culprit> find_culprit();
  MemoryUse memory_use_locked();

  CommunicatorParts parts_;
  std::uint32_t fork_generation_ = base::fork_generation();
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<StrictCheck> strict_;  // where calls are checked before they are made
  std::shared_ptr<const collectives::Plan> strict_plan_;
  bool checking_ = false;                 // the current work waits for it
  std::unique_ptr<ScaledMemory> scaled_;  // once a call has needed it
  std::atomic<bool> aborted_{false};
  std::atomic<bool> told_{false};  // the others, that this communicator has failed
  std::uint32_t sequence_ = 0;
  std::uint32_t history_ = 0;  // of the next call
  std::uint32_t splits_ = 0;

  // The plan of the latest call of each collective: a loop calls the same shape again and again.
  struct Memo {
    std::size_t count = 0;
    DataType type = DataType::float32;
    Rank root = 0;
    Rank to = -1;  // of send_recv
    Rank from = -1;
    std::shared_ptr<const collectives::Plan> plan;
    bool varied = false;
    std::size_t width = 0;  // of a custom operation's values
  };
  Memo memos_[std::size(kAllCollectives)];
  RequestShape shapes_[std::size(kAllCollectives)];  // those that were checked last

  // The latest call, if it was a blocking one. Loops make the same again: then nothing is looked up
  // or checked anew but the buffers.
  WorkState latest_;
  bool repeatable_ = false;  // there is one, and no more to it than its shape

  // What was called since the outermost group_begin().
  struct KeptCall {
    Request request;
    std::unique_ptr<Blocks> blocks;
    Reduction::Special special;
  };
  int group_depth_ = 0;
  std::vector<Transfer> kept_transfers_;
  std::vector<KeptCall> kept_calls_;
  // The plan of the latest group of transfers: a function of who the peers are, in order.
  std::vector<std::pair<Rank, bool>> exchange_pattern_;
  std::shared_ptr<const collectives::Plan> exchange_plan_;

  // Every so many times that what a call waits for is looked at alone, all else has its turn.
  static constexpr int kLingersPerPoll = 64;
  const bool immediate_;  // the transport shows without poll() what peers did
  const int looks_;       // at what a small call waits for, before anything else is done
  const int turns_;       // that it gives the core away between them
  int lingers_since_poll_ = 0;
  bool looked_ = false;  // since a neighbour has had the core last

  flight::Watch watch_;  // of the thread that waits
  Rank slow_rank_ = 0;   // the one that was reported
  unsigned test_looks_ = 0;
  base::Log log_;

  // For the progress thread; nothing that a blocking call adds to.
  std::atomic<int> started_{0};        // asynchronous works that are not complete
  std::atomic<bool> listens_{false};   // others may ask, after a failure or an agreement
  std::atomic<bool> attended_{false};  // a thread waits, or is about to start something

  // While one exists, somebody drives, or is about to.
  class Attendance {
   public:
    explicit Attendance(std::atomic<bool>& attended) : attended_(attended) {
      attended_.store(true, std::memory_order_relaxed);
    }
    ~Attendance() { attended_.store(false, std::memory_order_relaxed); }
    Attendance(const Attendance&) = delete;
    Attendance& operator=(const Attendance&) = delete;

   private:
    std::atomic<bool>& attended_;
  };

  std::atomic<bool> claimed_{false};  // by a stream

  base::Lock mutex_;  // guards what follows, and the executor and transport while they are driven
  std::deque<WorkState*> waiting_;
  WorkState* current_ = nullptr;
  int idle_polls_ = 0;
  int idle_rounds_ = 0;
  flight::Log flight_;
  bool failure_noted_ = false;
  // Written under the lock, read by whoever watches.
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> moves_{0};
};

}  // namespace tutti::runtime
