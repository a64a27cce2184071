// stream_worker.cc: see stream_worker.hpp.
#include "nccl/stream_worker.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/try.hpp"
#include "nccl/memory_kind.hpp"
#include "runtime/own_thread.hpp"

namespace tutti::nccl {

namespace cuda = transport::cuda;

namespace {

// Locked at once, so that most programs lock none while their streams are busy.
constexpr std::size_t kFirstStagingBytes = std::size_t{1} << 20;

// How long the end of a worker waits for graphs at most.
constexpr std::chrono::seconds kReplaysEnd{10};

constexpr std::uint32_t kWaited = 0;  // what a cell is when its stream has gone on
constexpr std::uint32_t kMade = 1;

bool has_gone_on(const Launch& launch) {
  return launch.made.load(std::memory_order_acquire) &&
         __atomic_load_n(launch.cell, __ATOMIC_ACQUIRE) == kWaited;
}

}  // namespace

StreamWorker::StreamWorker(const cuda::Driver& driver, cuda::Context context, Rank rank, int size,
                           Run run, Failed failed)
    : driver_(driver),
      context_(context),
      rank_(rank),
      size_(size),
      run_(std::move(run)),
      failed_(std::move(failed)),
      queue_(std::make_shared<LaunchQueue>()),
      held_(std::make_unique<Held>()) {}

Result<std::unique_ptr<StreamWorker>> StreamWorker::make(const cuda::Driver& driver,
                                                         cuda::Context context, Rank rank, int size,
                                                         Run run, Failed failed) {
  std::unique_ptr<StreamWorker> worker(
      new StreamWorker(driver, context, rank, size, std::move(run), std::move(failed)));
  TUTTI_TRY(worker->begin());
  return worker;
}

Status StreamWorker::begin() {
  const auto scope = cuda::ContextScope::enter(driver_, context_);
  TUTTI_TRY(scope);
  auto end = cuda::OwnEvent::make(driver_);
  TUTTI_TRY(end);
  held_->eager = std::make_unique<Chain>(*std::move(end));
  TUTTI_TRY(held_->eager->arena.reserve(driver_, kFirstStagingBytes));
  auto thread = runtime::begin_own_thread("tutti-nccl", [this] { work(); });
  TUTTI_TRY(thread);
  thread_ = *std::move(thread);
  return Status();
}

StreamWorker::~StreamWorker() {
  if (!held_) return;
  if (drain().ok()) wait_for_replays();  // a device that has failed will announce nothing more
  end();
  const cuda::RelaxedCapture relaxed(driver_);
  const auto scope = cuda::ContextScope::enter(driver_, context_);
  if (held_->in_part())
    keep_for_ever(std::move(held_));
  else
    held_.reset();
}

bool StreamWorker::Held::in_part() const {
  const auto in_part = [](const std::unique_ptr<Launch>& launch) {
    return launch->given_up.load();
  };
  return std::any_of(under_way.begin(), under_way.end(), in_part) ||
         std::any_of(captured.begin(), captured.end(), in_part);
}

void StreamWorker::abandon(std::unique_ptr<StreamWorker> worker) {
  if (!worker) return;
  worker->end();
  keep_for_ever(std::move(worker->held_));
}

void StreamWorker::end() {
  queue_->end();
  if (thread_.joinable()) thread_.join();
}

// Where leak checkers find it.
void StreamWorker::keep_for_ever(std::unique_ptr<Held> held) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<Held>>;
  std::lock_guard lock(mutex);
  kept.push_back(std::move(held));
}

// Until graphs that were answered have gone on. Bounded, because a graph may have failed.
void StreamWorker::wait_for_replays() {
  const auto deadline = std::chrono::steady_clock::now() + kReplaysEnd;
  for (const std::unique_ptr<Launch>& launch : held_->captured) {
    if (launch->given_up) continue;  // there may be nobody to go on
    while (launch->made.load(std::memory_order_acquire) && !has_gone_on(*launch) &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void StreamWorker::work() {
  while (Launch* const launch = queue_->next()) make_calls(*launch);
}

void StreamWorker::make_calls(Launch& launch) {
  if (!launch.given_up.load(std::memory_order_acquire)) {
    const Status status = run_(launch.calls);
    if (!status.ok()) failed_(status);
  }
  launch.let_go();
  launch.made.store(true, std::memory_order_release);
}

Status StreamWorker::launch(void* stream, std::vector<Call> calls) {
  const auto user_stream = static_cast<cuda::Stream>(stream);
  const auto scope = cuda::ContextScope::enter(driver_, context_);
  TUTTI_TRY(scope);
  const Result<cuda::Capture> capture = driver_.capture_of(user_stream);
  TUTTI_TRY(capture);
  if (!capture->active) TUTTI_TRY(broken_);
  const Result<StagingPlan> planned = plan(calls);
  TUTTI_TRY(planned);
  const Result<Chain*> chain = chain_of(*capture);
  TUTTI_TRY(chain);
  const Result<std::byte*> staged = (*chain)->arena.reserve(driver_, planned->bytes);
  TUTTI_TRY(staged);
  auto launch = std::make_unique<Launch>();
  launch->calls = std::move(calls);
  launch->captured = capture->active;
  stage(launch->calls, *planned, *staged);
  Launch& added = *launch;
  return add(std::move(launch),
             [&] { return enqueue(**chain, user_stream, added, *planned, *staged); });
}

// From the moment that it is enqueued, a launch may be announced.
Status StreamWorker::add(std::unique_ptr<Launch> launch, const std::function<Status()>& enqueue) {
  reclaim();
  const Result<std::uint32_t*> cell = held_->cells.take(driver_);
  TUTTI_TRY(cell);
  launch->cell = *cell;
  launch->queue = queue_;
  Launch& kept = *launch;
  if (kept.captured)
    held_->captured.push_back(std::move(launch));
  else
    held_->under_way.push_back(std::move(launch));
  const Status status = enqueue();
  if (status.ok()) {
    if (!kept.captured) ++launched_;
    return status;
  }
  kept.given_up.store(true, std::memory_order_release);
  if (!kept.captured) return broken_ = status;
  return status.with_context("calls on a stream that is being captured");
}

// Chains of captures are kept, because what is replayed uses their memory.
Result<StreamWorker::Chain*> StreamWorker::chain_of(const cuda::Capture& capture) {
  if (!capture.active) return held_->eager.get();
  const auto found = held_->captures.find(capture.id);
  if (found != held_->captures.end()) return &found->second;
  auto end = cuda::OwnEvent::make(driver_);
  TUTTI_TRY(end);
  return &held_->captures.emplace(capture.id, *std::move(end)).first->second;
}

Result<StagingPlan> StreamWorker::plan(std::span<const Call> calls) const {
  std::vector<DeviceUse> inputs;
  std::vector<DeviceUse> outputs;
  for (const Call& call : calls) {
    const Footprint footprint = footprint_of(call, rank_, size_);
    const auto add = [&](std::vector<DeviceUse>& uses, const void* memory, std::size_t bytes) {
      if (bytes == 0) return Status();
      const Result<MemoryKind> kind = memory_kind_of(&driver_, memory);
      TUTTI_TRY(kind);
      if (kind->device) uses.push_back({memory, bytes});
      return Status();
    };
    TUTTI_TRY(add(inputs, call.input, footprint.input_bytes));
    TUTTI_TRY(add(outputs, call.output, footprint.output_bytes));
    TUTTI_TRY(add(inputs, call.factor_at, factor_bytes_of(call)));
  }
  return plan_staging(inputs, outputs);
}

// Gives the calls the host's memory instead of the device's. What a call does not touch becomes
// null: it may be a device's address, too.
void StreamWorker::stage(std::span<Call> calls, const StagingPlan& plan, std::byte* staged) const {
  for (Call& call : calls) {
    const Footprint footprint = footprint_of(call, rank_, size_);
    if (footprint.input_bytes == 0)
      call.input = nullptr;
    else if (std::byte* const place = staged_place(plan, call.input, staged); place != nullptr)
      call.input = place;
    if (footprint.output_bytes == 0)
      call.output = nullptr;
    else if (std::byte* const place = staged_place(plan, call.output, staged); place != nullptr)
      call.output = place;
    if (std::byte* const place = staged_place(plan, call.factor_at, staged); place != nullptr)
      call.factor_at = place;
  }
}

Status StreamWorker::enqueue(Chain& chain, cuda::Stream stream, Launch& launch,
                             const StagingPlan& plan, std::byte* staged) {
  if (chain.used) TUTTI_TRY(driver_.wait_event(stream, chain.end.get()));
  for (const StagedRange& range : plan.inputs)
    TUTTI_TRY(driver_.copy_to_host(staged + range.offset, range.device(), range.bytes(), stream));
  TUTTI_TRY(wait_for_calls(stream, launch));
  for (const StagedRange& range : plan.outputs)
    TUTTI_TRY(driver_.copy_to_device(range.device(), staged + range.offset, range.bytes(), stream));
  TUTTI_TRY(driver_.write_value(stream, launch.cell, kWaited));
  TUTTI_TRY(driver_.record(chain.end.get(), stream));
  chain.used = true;
  return Status();
}

Status StreamWorker::wait_for_calls(cuda::Stream stream, Launch& launch) {
  TUTTI_TRY(driver_.call_host(stream, &LaunchQueue::announce, &launch));
  return driver_.wait_value(stream, launch.cell, kMade);
}

// Launches are done in their order, so that the first that is not ends the search.
void StreamWorker::reclaim() {
  while (!held_->under_way.empty() && has_gone_on(*held_->under_way.front())) {
    held_->cells.give_back(held_->under_way.front()->cell);
    held_->under_way.pop_front();
  }
}

Result<std::function<void()>> StreamWorker::wait_for_launches() const {
  TUTTI_TRY(broken_);
  return std::function<void()>(
      [queue = queue_, launched = launched_] { queue->wait_until_done(launched); });
}

Status StreamWorker::drain() {
  const cuda::RelaxedCapture relaxed(driver_);
  const auto scope = cuda::ContextScope::enter(driver_, context_);
  TUTTI_TRY(scope);
  if (held_->eager && held_->eager->used) TUTTI_TRY(driver_.synchronize(held_->eager->end.get()));
  queue_->wait_until_idle();
  return Status();
}

}  // namespace tutti::nccl
