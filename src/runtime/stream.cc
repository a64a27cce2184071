// One thread for each stream that has ever been used, because an operation may be any code.
#include "runtime/stream.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <system_error>
#include <utility>

#include "runtime/communicator_state.hpp"
#include "runtime/own_thread.hpp"

namespace tutti {
namespace runtime {

namespace {

Status forked(const char* what) {
  return Status(StatusCode::invalid_argument,
                fmt::format("this {} belongs to the process that made it, and this is a child "
                            "forked from that; make a stream in the child",
                            what));
}

Status waits_for_itself() {
  return Status(StatusCode::invalid_argument,
                "an operation of a stream cannot wait for the stream itself");
}

}  // namespace

Status EventState::wait() const {
  if (reached()) return status_;
  if (forked()) return runtime::forked("event");
  if (std::this_thread::get_id() == thread_) return waits_for_itself();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached(); });
  return status_;
}

void EventState::reach(Status status) {
  std::lock_guard lock(mutex_);
  status_ = std::move(status);
  reached_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void StreamState::finish() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (!thread_.joinable()) return;
  if (std::this_thread::get_id() == thread_.get_id())
    thread_.detach();
  else
    thread_.join();
}

void StreamState::enqueue(Operation operation) {
  std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
  if (!begun_)
    begin();
  else
    changed_.notify_all();
}

// Requires  the lock. Without a thread, the operations are made here, so that events are reached.
void StreamState::begin() {
  Result<std::thread> thread =
      begin_own_thread("tutti-stream", [self = shared_from_this()] { self->work(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
    begun_ = true;
    return;
  }
  if (failure_.ok()) failure_ = thread.status().with_context("stream");
  for (const Operation& operation : std::exchange(operations_, {}))
    failure_ = operation(std::move(failure_));
}

void StreamState::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !operations_.empty() || ending_; });
    if (operations_.empty()) return;
    Operation operation = std::move(operations_.front());
    operations_.pop_front();
    busy_ = true;
    Status failure = std::move(failure_);
    lock.unlock();
    failure = operation(std::move(failure));
    operation = nullptr;  // what it holds goes before anybody hears that it is done
    lock.lock();
    failure_ = std::move(failure);
    busy_ = false;
    if (operations_.empty()) changed_.notify_all();
  }
}

Status StreamState::synchronize() {
  if (std::this_thread::get_id() == thread_.get_id()) return waits_for_itself();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return operations_.empty() && !busy_; });
  return std::exchange(failure_, Status());
}

namespace {

// A communicator that an operation of a stream is using.
class Claim {
 public:
  explicit Claim(CommunicatorState& comm) : comm_(comm), held_(comm.claim()) {}
  ~Claim() {
    if (held_) comm_.release();
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  bool held() const { return held_; }

 private:
  CommunicatorState& comm_;
  const bool held_;
};

Status claimed_twice(Rank rank) {
  return Status(StatusCode::invalid_argument,
                fmt::format("rank {}: two streams use this communicator at once; make one wait for "
                            "an event of the other, or give each a communicator of its own (split)",
                            rank));
}

}  // namespace
}  // namespace runtime

using runtime::EventState;
using runtime::StreamState;

Event::Event(std::shared_ptr<const EventState> state) : state_(std::move(state)) {}

bool Event::query() const { return !state_ || state_->reached() || state_->forked(); }

Status Event::synchronize() const { return state_ ? state_->wait() : Status(); }

Stream::Stream() = default;
Stream::Stream(Stream&&) noexcept = default;

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    const Stream old(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

// In a forked child nothing is ended: what the thread had a share in stays.
Stream::~Stream() {
  if (state_ && !state_->forked()) state_->finish();
}

StreamState& Stream::state() {
  if (!state_) state_ = std::make_shared<StreamState>();
  return *state_;
}

void Stream::run(std::function<Status()> operation) {
  if (state().forked()) return;  // synchronize() says so
  state_->enqueue([operation = std::move(operation)](Status failure) {
    if (!failure.ok()) return failure;
    if (!operation) return Status(StatusCode::invalid_argument, "an empty operation");
    return operation();
  });
}

void Stream::run(Communicator& comm, std::function<Status(Communicator&)> call) {
  if (!call) return run(nullptr);
  run([state = comm.state_, call = std::move(call)] {
    Communicator again(state);
    if (!state) return call(again);  // it says that it is not connected
    const runtime::Claim claim(*state);
    return claim.held() ? call(again) : runtime::claimed_twice(state->rank());
  });
}

void Stream::wait(const Event& event) {
  if (!event.state_ || state().forked()) return;
  state_->enqueue([other = event.state_](Status failure) {
    const Status status = other->wait();
    return failure.ok() ? status.with_context("waited for an event of a stream that failed")
                        : failure;
  });
}

Event Stream::record() {
  if (!state_) return Event();
  auto reached = std::make_shared<EventState>();
  if (state_->forked()) {
    reached->reach(runtime::forked("stream"));
    return Event(std::move(reached));
  }
  state_->enqueue([reached](Status failure) {
    reached->reach(failure);
    return failure;
  });
  reached->recorded_by(state_->thread());
  return Event(std::move(reached));
}

Status Stream::synchronize() {
  if (!state_) return Status();
  return state_->forked() ? runtime::forked("stream") : state_->synchronize();
}

}  // namespace tutti
