// Calls become works, works become plans that the executor runs, and whoever waits drives.
#include "runtime/communicator_state.hpp"

#include <fmt/format.h>
#include <sched.h>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "collectives/explain.hpp"
#include "collectives/lowering.hpp"

namespace tutti::runtime {
namespace {

// From here on a message between two ranks is worth an exchange of addresses: the exchange costs
// about a microsecond, which is what copying so many bytes through the queue costs.
constexpr std::size_t kDirectPointToPointBytes = 16 * 1024;

// What all_to_all_v is planned for: the plan must not depend on what only some ranks know.
constexpr std::size_t kGuessedBlockBytes = 16 * 1024;

constexpr int kRoundsAtOnce = 64;
constexpr int kLooksAtOnce = 256;  // at one message, of some 10 ns each
// On a core that other ranks need, too: as long as it takes to give it to one and to get it back.
constexpr int kLooksBetweenYields = 64;
// How often a call of one round gives the core away before it is treated as one that takes long.
constexpr int kTurnsAtOnce = 2;
// The progress thread comes once in a millisecond where nothing moves: a few looks each time, so
// that what only shows after many (see drive_locked) does not take a second.
constexpr int kTendingRounds = 16;

// Only one thread writes at a time.
void raise(std::atomic<std::uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

int looks_at_once(const CommunicatorParts& parts) {
  if (!Waiter::yields_at_once(parts.config.wait, parts.ranks_share_cores)) return kLooksAtOnce;
  return parts.neighbours.empty() ? 1 : kLooksBetweenYields;  // anybody may need this core
}

}  // namespace

CommunicatorState::CommunicatorState(CommunicatorParts parts)
    : parts_(std::move(parts)),
      transport_(std::move(parts_.transport)),
      executor_(std::make_unique<Executor>(*transport_)),
      membership_(std::make_unique<Membership>(*transport_, transport_->channel_count() - 1)),
      immediate_(transport_->traits().immediate),
      looks_(looks_at_once(parts_)),
      turns_(Waiter::yields_at_once(parts_.config.wait, parts_.ranks_share_cores) ? kTurnsAtOnce
                                                                                  : 0),
      watch_(parts_.config.slow_after),
      log_(parts_.config.log, fmt::format("rank {}", transport_->rank())),
      flight_(
          parts_.config.flight == base::FlightChoice::off ? nullptr
                                                          : flight::Recorder::of_process(),
          {parts_.members.job, parts_.members.context, rank(), size(), transport_->traits().name}) {
  if (parts_.config.check == base::CheckChoice::strict && size() > 1)
    strict_ = std::make_unique<StrictCheck>(rank(), size());
  if (parts_.members.board)
    executor_->explain_with([this](Status seen) { return explain(std::move(seen)); });
  executor_->share_core_with(parts_.neighbours);
  begin_driving(*this);
}

CommunicatorState::~CommunicatorState() {
  if (!check_process().ok()) {
    // The parent's: nobody is told goodbye, and no lock is taken that a lost thread may hold.
    static_cast<void>(executor_.release());
    static_cast<void>(membership_.release());
    static_cast<void>(transport_.release());
    return;
  }
  end_driving(*this);
  static_cast<void>(close());
  executor_.reset();  // before the transport that they use
  membership_.reset();
  scaled_.reset();
}

Status CommunicatorState::check_process() const {
  if (!forked()) [[likely]]
    return Status();
  return Status(StatusCode::invalid_argument,
                fmt::format("rank {}: this communicator belongs to the process that made it, and "
                            "this is a child forked from that; make a communicator in the child, "
                            "or fork before the first one is made",
                            rank()));
}

Status CommunicatorState::check(const Request& r) {
  TUTTI_TRY(check_process());
  if (r.special != nullptr) [[unlikely]]
    TUTTI_TRY(check_special(r));
  // Blocks were checked when they were laid out, but for how many they are together.
  if (r.blocks != nullptr && r.count <= kCountMax) return Status();
  RequestShape& shape = shapes_[static_cast<std::size_t>(r.collective)];
  if (!shape.fits(r)) {
    auto checked = RequestShape::of(r, rank(), size());
    TUTTI_TRY(checked);
    shape = *checked;
  }
  return shape.check_buffers(r);
}

bool CommunicatorState::point_to_point_direct(const Request& r) const {
  using collectives::Lowering;
  const collectives::PlannerOptions& options = parts_.planner_options;
  const bool large = r.count * size_of(r.type) >= kDirectPointToPointBytes;
  return options.direct_possible && (options.lowering == Lowering::direct ||
                                     (options.lowering == Lowering::automatic && large));
}

std::shared_ptr<const collectives::Plan> CommunicatorState::plan_point_to_point(
    const Request& r) const {
  auto plan = std::make_shared<collectives::Plan>();
  const collectives::PlannerOptions& options = parts_.planner_options;
  plan->algorithm = "point_to_point";
  plan->settings.slice_bytes =
      options.slice_bytes > 0 ? options.slice_bytes : options.frame_bytes_max;
  plan->settings.direct = point_to_point_direct(r);
  auto program = std::make_shared<collectives::LoweredProgram>(
      collectives::lower_point_to_point(size(), rank(), r.to, r.from));
  plan->hash = collectives::plan_hash(plan->algorithm, 1, program->shape, plan->settings);
  plan->program = std::move(program);
  return plan;
}

Result<std::shared_ptr<const collectives::Plan>> CommunicatorState::make_plan(
    const collectives::PlanQuery& query) {
  if (parts_.plan_source) return parts_.plan_source(query);
  if (parts_.tuner) return parts_.tuner->plan(*parts_.planner, query, rank());
  return parts_.planner->plan(query, rank());
}

collectives::ReductionForm CommunicatorState::form_of(Collective collective, DataType type) const {
  const bool ordered = parts_.config.reduce_order == base::ReduceOrder::rank_tree;
  if (!ordered || !is_reduction(collective)) return collectives::ReductionForm::any;
  return collectives::rank_tree_form(type);
}

// Lifetime  of what is returned: until the next call of the same collective asks.
Result<const collectives::Plan*> CommunicatorState::plan_for(const Request& r) {
  Memo& memo = memos_[static_cast<std::size_t>(r.collective)];
  const bool varied = r.blocks != nullptr;
  if (r.collective == Collective::send_recv) {
    if (varied) return exchange_plan_.get();
    const bool fits = memo.plan && memo.to == r.to && memo.from == r.from &&
                      memo.plan->settings.direct == point_to_point_direct(r);
    if (!fits) memo = Memo{r.count, r.type, r.root, r.to, r.from, plan_point_to_point(r)};
    return memo.plan.get();
  }
  // Of blocks that differ in size the plan goes by their average, or by a guess where no rank knows
  // all of them.
  std::size_t count = r.count;
  if (varied && r.collective == Collective::all_to_all)
    count = kGuessedBlockBytes / size_of(r.type);
  else if (varied)
    count /= static_cast<std::size_t>(size());
  const std::size_t width = r.special != nullptr ? (*r.special)->width : 0;
  if (!memo.plan || memo.count != count || memo.type != r.type || memo.root != r.root ||
      memo.varied != varied || memo.width != width || parts_.plan_source) {
    collectives::PlanQuery query{r.collective, count,  r.type,
                                 r.root,       varied, form_of(r.collective, r.type)};
    if (width > 0) {
      query.form = collectives::ReductionForm::tree;
      query.width = width;
    }
    auto plan = make_plan(query);
    if (!plan.ok()) return plan.status();
    memo = Memo{count, r.type, r.root, -1, -1, *std::move(plan), varied, width};
  }
  return memo.plan.get();
}

bool CommunicatorState::repeats(const Request& r) const {
  const Signature& s = latest_.call_.signature;
  // Types and operations lie side by side, and were stored one by one: compared next to each other
  // they would be loaded as one, which has to wait for both stores to reach the cache.
  return repeatable_ && r.count == s.count && r.collective == s.collective && r.op == s.op &&
         r.root == s.root && r.type == s.type && r.special == nullptr && r.blocks == nullptr &&
         !forked();
}

// Requires  repeats(request).
Status CommunicatorState::prepare_again(const Request& request) {
  const bool same_buffers =
      request.input == latest_.call_.input && request.output == latest_.call_.output;
  if (!same_buffers)
    TUTTI_TRY(shapes_[static_cast<std::size_t>(request.collective)].check_buffers(request));
  latest_.reset();
  latest_.call_.input = static_cast<const std::byte*>(request.input);
  latest_.call_.output = static_cast<std::byte*>(request.output);
  number_call(latest_.call_.signature);
  latest_.call_.sign_again();
  return Status();
}

// The next one needs the history after this; until then there is time.
void CommunicatorState::number_call(Signature& s) {
  s.sequence = ++sequence_;
  // Now and then, so that others can read it; the planner is the calling thread's.
  if ((s.sequence & (s.sequence - 1)) == 0) [[unlikely]]
    note_memory();
  s.history = history_;
}

Status CommunicatorState::prepare(const Request& request, WorkState& work) {
  repeatable_ = false;
  TUTTI_TRY(check(request));
  if (strict_ && !strict_plan_) [[unlikely]]
    TUTTI_TRY(make_check_plan());
  const auto plan = plan_for(request);
  if (!plan.ok()) return plan.status();
  work.plan_ = *plan;
  Signature& s = work.call_.signature;
  s.collective = request.collective;
  s.type = request.type;
  s.op = request.op;
  s.direct = work.plan_->settings.direct;
  s.root = request.root;
  s.count = request.count;
  s.plan_hash = work.plan_->hash ^ request.counts_hash;
  s.varied = request.blocks != nullptr;
  if (request.blocks != nullptr) {
    work.blocks_ = *request.blocks;
    work.call_.blocks = &work.blocks_;
  }
  work.call_.input = static_cast<const std::byte*>(request.input);
  work.call_.output = static_cast<std::byte*>(request.output);
  if (request.special != nullptr) [[unlikely]]
    prepare_special(*request.special, work);
  // Point-to-point calls are no collective ones: only two ranks count them.
  const bool collective = request.collective != Collective::send_recv;
  if (collective) {
    number_call(s);
    history_ = history_after(s);
  }
  work.call_.sign();
  return Status();
}

// The lock; whoever drives without need makes room.
std::unique_lock<base::Lock> CommunicatorState::take() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) [[likely]]
    return lock;
  const Attendance here(attended_);
  lock.lock();
  return lock;
}

// Starts it. For one who `waits` it is moved under the same lock: a small call may be complete
// then.
void CommunicatorState::submit(WorkState& work, bool waits) {
  const auto lock = take();
  if (current_ == nullptr && waiting_.empty())
    begin(work);
  else
    waiting_.push_back(&work);
  if (current_ == &work) conclude(true);
  move(work, waits);
}

// What has begun, or waits for others to end.
void CommunicatorState::move(WorkState& work, bool waits) {
  if (waits && !work.done() && !needs_neighbour(work)) linger(work);
  looked_ = waits && !work.done() && needs_neighbour(work);
  if (looked_) return;
  const int rounds = waits && !parts_.ranks_share_cores ? kRoundsAtOnce : 1;
  for (int round = 0; round < rounds && !work.done(); ++round) drive_locked();
}

// submit() for the latest call, where it has one round and the peers are there: then it is over
// without ever having been the current one. False: nothing was done.
bool CommunicatorState::round_again() {
  if (!immediate_ || strict_ != nullptr) return false;
  const auto lock = take();
  if (++lingers_since_poll_ >= kLingersPerPoll) {
    lingers_since_poll_ = 0;
    return false;
  }
  const bool free =
      current_ == nullptr && waiting_.empty() && !aborted_.load(std::memory_order_relaxed);
  if (!free || !executor_->post_again(latest_.call_, *latest_.plan_)) return false;
  std::uint64_t ended = flight_.begin(latest_.call_.record);
  raise(calls_);
  history_ = history_after(latest_.call_.signature);
  bool found = executor_->find_again(looks_, ended);
  for (int turn = 0; !found && turn < turns_ && !aborted_.load(std::memory_order_relaxed); ++turn) {
    sched_yield();
    ended = flight::ticks();  // others may have had the core for long
    found = executor_->find_again(looks_, ended);
  }
  if (executor_->end_again(found)) [[likely]] {
    flight_.end(StatusCode::ok, ended != 0 ? ended : flight::ticks());
    latest_.done_.store(true, std::memory_order_relaxed);
    return true;
  }
  idle_polls_ = 0;
  checking_ = false;
  current_ = &latest_;
  conclude(true);
  move(latest_, true);
  return true;
}

Status CommunicatorState::run(const Request& request) {
  if (in_group()) [[unlikely]]
    return add_to_group(request);
  if (repeats(request)) [[likely]] {
    TUTTI_TRY(prepare_again(request));
    if (!round_again()) {
      history_ = history_after(latest_.call_.signature);
      submit(latest_, true);
    }
    return latest_.done() ? std::move(latest_.status_) : wait(latest_);
  }
  WorkState work;
  TUTTI_TRY(prepare(request, work));
  remember(request, work);
  submit(work, true);
  return work.done() ? std::move(work.status_) : wait(work);
}

void CommunicatorState::remember(const Request& request, const WorkState& work) {
  repeatable_ = request.collective != Collective::send_recv && request.blocks == nullptr &&
                request.special == nullptr && !parts_.plan_source;
  if (!repeatable_) return;
  latest_.call_ = work.call_;
  latest_.plan_ = work.plan_;
}

Result<Work> CommunicatorState::start(const Request& request) {
  auto work = start_work(request);
  if (!work.ok()) return work.status();
  return Work(*std::move(work));
}

Result<std::shared_ptr<WorkState>> CommunicatorState::start_work(const Request& request) {
  if (in_group()) [[unlikely]]
    return Status(StatusCode::invalid_argument,
                  fmt::format("rank {}: {}: a group starts its calls together; inside it use the "
                              "forms without _async, and group_end_async()",
                              rank(), to_string(request.collective)));
  auto work = std::make_shared<WorkState>();
  TUTTI_TRY(prepare(request, *work));
  const bool exchange = request.collective == Collective::send_recv && request.blocks != nullptr;
  work->kept_ =
      exchange ? exchange_plan_ : memos_[static_cast<std::size_t>(request.collective)].plan;
  work->owner_ = shared_from_this();
  started_.fetch_add(1, std::memory_order_relaxed);
  submit(*work, false);
  if (!work->done() && has_progress()) expect_work();
  return work;
}

Tending CommunicatorState::tend(bool driven) {
  const bool started = started_.load(std::memory_order_relaxed) > 0;
  const bool listens = listens_.load(std::memory_order_relaxed) || abort_is_news();
  if ((!started && !listens) || forked() || !has_progress()) return Tending::nothing;
  if (driven || attended_.load(std::memory_order_relaxed)) return Tending::tended;
  if (drive_until(nullptr, started ? kTendingRounds : 1)) return Tending::moved;
  return started ? Tending::idle : Tending::listens;
}

std::string CommunicatorState::awaited() {
  std::lock_guard lock(mutex_);
  return current_ == nullptr || executor_->done() ? "nothing" : executor_->awaited().what;
}

void CommunicatorState::complete_current(const Status& status) {
  WorkState* work = std::exchange(current_, nullptr);
  flight_.end(status.code());
  if (!status.ok()) [[unlikely]]
    note_failure();
  if (work->owner_ != nullptr) started_.fetch_sub(1, std::memory_order_relaxed);
  if (!status.ok()) [[unlikely]]
    work->status_ = status;
  work->done_.store(true, std::memory_order_release);
}

// First what the peers wait for; what is noted of the call for others to read has time until then.
void CommunicatorState::begin(WorkState& work) {
  const Status status = launch(work);
  if (status.ok()) executor_->advance(false);
  flight_.begin(work.call_.record);
  raise(calls_);
  if (status.ok()) return;
  if (!executor_->status().ok()) tell_all();
  complete_current(status);
}

Status CommunicatorState::launch(WorkState& work) {
  idle_polls_ = 0;
  current_ = &work;
  // Whoever drove when abort() came may have been past looking.
  if (aborted_.load(std::memory_order_relaxed)) [[unlikely]]
    executor_->fail(abort_status());
  const bool collective = work.call_.signature.collective != Collective::send_recv;
  checking_ = strict_ != nullptr && collective;
  return checking_ ? begin_check(work) : begin_call(work);
}

Status CommunicatorState::begin_call(WorkState& work) {
  return work.special_ == nullptr ? executor_->start(work.call_, *work.plan_) : start_special(work);
}

// Before it is needed: works begin on any thread, but the planner is the calling thread's.
Status CommunicatorState::make_check_plan() {
  auto plan = make_plan({Collective::all_gather, StrictCheck::kCount, StrictCheck::kType});
  if (!plan.ok()) return plan.status();
  strict_plan_ = *std::move(plan);
  return Status();
}

Status CommunicatorState::begin_check(const WorkState& work) {
  return executor_->start(strict_->begin(work.call_.signature, *strict_plan_), *strict_plan_);
}

// The call before the call is over. True when the call itself has begun.
bool CommunicatorState::checked() {
  checking_ = false;
  Status verdict = strict_->verdict();
  if (verdict.ok()) verdict = begin_call(*current_);
  if (verdict.ok()) return true;
  if (verdict.code() == StatusCode::mismatch)
    executor_->fail_alone(verdict);
  else if (!executor_->status().ok())
    tell_all();
  complete_current(verdict);
  return false;
}

void CommunicatorState::begin_next() {
  while (current_ == nullptr && !waiting_.empty()) {
    WorkState& work = *waiting_.front();
    waiting_.pop_front();
    begin(work);
  }
}

// The transport says whether a peer did anything; while it did not, the executor has nothing new to
// look at. Every so often it looks all the same, so that what a transport failed to report costs a
// moment and not the call.
bool CommunicatorState::drive_locked() {
  if (current_ == nullptr) return take_abort() || drive_membership();
  const Result<bool> polled = transport_->poll();
  bool moved = polled.ok() && *polled;
  const bool looks = moved || executor_->is_combining();
  if (looks || ++idle_polls_ >= parts_.patience.idle_polls || !polled.ok()) {
    if (executor_->advance()) {
      raise(moves_);
      moved = true;
    }
    idle_rounds_ = moved ? 0 : idle_rounds_ + 1;
    if (idle_rounds_ >= parts_.patience.idle_rounds && !executor_->done()) {
      idle_rounds_ = 0;
      hear();
    }
    idle_polls_ = 0;
  }
  // What arrived before a peer was lost may have been all that this call needed.
  if (!polled.ok() && !executor_->done()) hear();  // perhaps somebody knows why
  if (!polled.ok() && !executor_->done())
    executor_->fail(polled.status().with_context(
        fmt::format("rank {}: {}", rank(), to_string(current_->call_.signature))));
  return conclude(moved);
}

// Who hung up may have done so because another rank was killed, and the launcher knows which.
Status CommunicatorState::explain(Status seen) const {
  if (seen.code() != StatusCode::peer_lost) return seen;
  const auto blamed = parts_.members.board->ending(parts_.members.job_rank(seen.culprit()));
  if (blamed && blamed->signal != 0) return seen;
  const Status known = find_ended(parts_.members, true);
  if (known.ok()) return seen;
  return known.with_context(seen.message());
}

// What is said neither by data nor by the end of a connection.
void CommunicatorState::hear() {
  Status news = find_ended(parts_.members, true);
  if (const auto told = membership_->hear(); news.ok() && told) news = *told;
  if (!news.ok())
    executor_->fail(news.with_context(
        fmt::format("rank {}: {}", rank(), to_string(current_->call_.signature))));
  else
    executor_->find_strays();
  membership_->advance();
  while (const auto asked = membership_->take_inquiry())
    executor_->answer_inquiry(asked->first, asked->second);
}

// Two ranks that wait for each other in different calls would never hear of it by their data.
void CommunicatorState::inquire() {
  std::lock_guard lock(mutex_);
  if (current_ == nullptr || executor_->done()) return;
  const Rank whom = executor_->awaited().rank;
  if (whom != Status::kUnknownRank) membership_->inquire(whom, executor_->record());
}

// After every advance: a call that is over makes place for the next.
bool CommunicatorState::conclude(bool moved) {
  if (current_ == nullptr) return moved;
  if (aborted_.load(std::memory_order_relaxed) && !executor_->done())
    executor_->fail(abort_status());
  if (!executor_->done()) return moved;
  if (!executor_->status().ok()) [[unlikely]] {
    executor_->withdraw_memory();
    tell_all();
  } else if (checking_ && checked()) {
    return true;
  }
  if (current_ != nullptr) complete_current(executor_->status());
  begin_next();
  return true;
}

Result<PlanReport> CommunicatorState::explain(Collective collective, std::size_t count,
                                              DataType type, Rank root) {
  const collectives::PlanQuery query{collective, count, type,
                                     root,       false, form_of(collective, type)};
  auto plan = parts_.tuner ? parts_.tuner->plan(*parts_.planner, query, rank())
                           : parts_.planner->plan(query, rank());
  if (!plan.ok()) return plan.status();
  auto explanation = parts_.planner->explain(query);
  if (!explanation.ok()) return explanation.status();
  PlanReport report;
  const collectives::Plan& chosen = **plan;
  report.algorithm = chosen.algorithm;
  report.lowering = chosen.settings.direct ? "direct" : "staged";
  report.channels = chosen.settings.channels;
  report.slice_bytes = chosen.settings.slice_bytes;
  if (!explanation->candidates.empty()) {
    report.predicted_us = explanation->candidates[0].predicted_us;
    report.measured = collectives::measured_text(explanation->candidates[0]);
  }
  report.chosen_by = collectives::chosen_by(*explanation);
  if (const auto usual = parts_.planner->plan(query, rank());
      parts_.tuner && usual.ok() && (*usual)->hash != chosen.hash) {
    const auto predicted = parts_.planner->predict(query, {chosen.algorithm, chosen.settings});
    report.predicted_us = predicted.ok() ? *predicted : 0;
    report.measured = "-";
    report.chosen_by = "tuner";
  }
  report.lower_bound_us = explanation->bound_us();
  if (report.chosen_by == "tuner")
    report.explanation = fmt::format("the tuner plugin takes {}, {}, {} channels; without it:\n\n",
                                     report.algorithm, report.lowering, report.channels);
  report.explanation += collectives::to_text(*explanation);
  return report;
}

Status CommunicatorState::close() {
  TUTTI_TRY(check_process());
  const auto deadline = Waiter::Clock::now() + parts_.config.setup_timeout;
  std::lock_guard lock(mutex_);
  if (!executor_->status().ok()) return executor_->status();  // nobody will take it any more
  while (!transport_->delivered()) {
    Result<bool> polled = transport_->poll();
    if (!polled.ok()) return polled.status();
    if (aborted_.load(std::memory_order_relaxed)) return abort_status();
    if (Waiter::Clock::now() > deadline)
      return Status(StatusCode::timeout,
                    fmt::format("rank {}: peers did not take what was sent", rank()));
    if (!*polled) transport_->sleep(100);
  }
  return Status();
}

}  // namespace tutti::runtime
