// streams.cc: see streams.hpp.
#include "kit/cuda_stand_in/streams.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "kit/cuda_stand_in/kernels.hpp"

namespace stand_in {

namespace {

constexpr Code kInvalidHandle = 400;
constexpr Code kCaptureWrongThread = 908;

// How long the end of a program waits for a host function, and how soon others see that it ends.
constexpr std::chrono::milliseconds kPatience{5000};
constexpr std::chrono::milliseconds kLook{5};

// Stops the streams when the program ends: threads that outlive what they use crash leak checkers
// now and then. A child that was forked has none of them.
class AtExit {
 public:
  AtExit() = default;
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() {
    if (::getpid() == process_) Streams::instance().stop();
  }

 private:
  const pid_t process_ = ::getpid();
};

}  // namespace

std::atomic<bool>& ending() {
  static std::atomic<bool> ends{false};
  return ends;
}

void Point::reach() {
  std::lock_guard lock(mutex_);
  reached_ = true;
  time_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

bool Point::reached() {
  std::lock_guard lock(mutex_);
  return reached_;
}

void Point::wait() {
  std::unique_lock lock(mutex_);
  while (!reached_ && !ending()) changed_.wait_for(lock, kLook);
}

double Point::milliseconds_since(Point& earlier) {
  std::scoped_lock lock(mutex_, earlier.mutex_);
  return std::chrono::duration<double, std::milli>(time_ - earlier.time_).count();
}

void Work::begin() {
  thread_ = std::thread([this] { run(); });
}

void Work::push(Operation operation) {
  std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
  changed_.notify_all();
}

bool Work::idle() {
  std::lock_guard lock(mutex_);
  return operations_.empty() && !busy_;
}

void Work::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending() || (operations_.empty() && !busy_); });
}

void Work::end() {
  std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void Work::stop() {
  std::lock_guard lock(mutex_);
  ending_ = true;
  operations_.clear();
  changed_.notify_all();
}

bool Work::join(std::chrono::milliseconds patience) {
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [&] { return ended_; })) return false;
  }
  thread_.join();
  return true;
}

void Work::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !operations_.empty() || ending_; });
    if (operations_.empty()) break;
    Operation operation = std::move(operations_.front());
    operations_.pop_front();
    busy_ = true;
    lock.unlock();
    operation();
    operation = nullptr;
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
  ended_ = true;
  changed_.notify_all();
}

void CaptureState::add(Stream stream, Operation operation) {
  std::vector<std::size_t>& end = ends[stream];
  for (const std::size_t before : end) open.erase(before);
  graph.nodes.push_back({std::move(operation), stream, end});
  end = {graph.nodes.size() - 1};
  open.insert(end.front());
}

void GraphState::run() const {
  std::map<Stream, std::vector<std::size_t>> lanes;
  for (std::size_t i = 0; i < nodes.size(); ++i) lanes[nodes[i].lane].push_back(i);
  std::vector<Point> done(nodes.size());
  const auto run_lane = [&](const std::vector<std::size_t>& lane) {
    for (const std::size_t i : lane) {
      for (const std::size_t before : nodes[i].after) done[before].wait();
      if (ending()) return;
      nodes[i].operation();
      done[i].reach();
    }
  };
  if (lanes.size() == 1) return run_lane(lanes.begin()->second);
  std::vector<std::thread> threads;
  for (const auto& [stream, lane] : lanes) threads.emplace_back(run_lane, std::cref(lane));
  for (std::thread& thread : threads) thread.join();
}

Streams& Streams::instance() {
  static Streams& streams = *new Streams;
  return streams;
}

Stream Streams::known(Stream stream) {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->first;
}

// Requires  the lock. Those whose streams were destroyed go here, once they have ended.
std::shared_ptr<Work> Streams::begin_work() {
  static const AtExit at_exit;
  std::erase_if(works_, [](const auto& work) { return work->join(std::chrono::milliseconds(0)); });
  works_.push_back(std::make_shared<Work>());
  works_.back()->begin();
  return works_.back();
}

Stream Streams::make(Context context) {
  auto made = std::make_unique<CUstream_st>();
  made->context = context;
  const Stream stream = made.get();
  std::lock_guard lock(mutex_);
  made->work = begin_work();
  streams_[stream] = std::move(made);
  return stream;
}

void Streams::stop() {
  std::vector<std::shared_ptr<Work>> works;
  {
    std::lock_guard lock(mutex_);
    ending() = true;
    works = works_;
  }
  for (const std::shared_ptr<Work>& work : works) work->stop();
  stop_kernels();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (const std::shared_ptr<Work>& work : works) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (!work->join(std::chrono::duration_cast<std::chrono::milliseconds>(left)))
      std::fprintf(stderr, "CUDA stand-in: a stream is still at work when the program ends\n");
  }
}

Code Streams::destroy(Stream stream) {
  std::lock_guard lock(mutex_);
  if (known(stream) == nullptr) return kInvalidHandle;
  if (stream->capture) stream->capture->invalid = true;
  stream->work->end();
  streams_.erase(stream);
  return kSuccess;
}

Code Streams::enqueue(Stream stream, Operation operation) {
  std::lock_guard lock(mutex_);
  if (known(stream) == nullptr) return kInvalidHandle;
  if (!stream->capture) {
    stream->work->push(std::move(operation));
    return kSuccess;
  }
  CaptureState& capture = *stream->capture;
  if (capture.invalid) return kCaptureInvalidated;
  capture.add(stream, std::move(operation));
  return kSuccess;
}

Context Streams::context_of(Stream stream) {
  std::lock_guard lock(mutex_);
  return known(stream) == nullptr ? nullptr : stream->context;
}

Code Streams::query(Stream stream) {
  std::lock_guard lock(mutex_);
  if (known(stream) == nullptr) return kInvalidHandle;
  if (stream->capture) {
    stream->capture->invalid = true;
    return kCaptureUnsupported;
  }
  return stream->work->idle() ? kSuccess : kNotReady;
}

Code Streams::synchronize(Stream stream) {
  std::shared_ptr<Work> work;
  {
    std::lock_guard lock(mutex_);
    if (known(stream) == nullptr) return kInvalidHandle;
    if (stream->capture) {
      stream->capture->invalid = true;
      return kCaptureUnsupported;
    }
    work = stream->work;
  }
  work->wait_until_idle();
  return kSuccess;
}

Code Streams::synchronize(Context context) {
  {
    std::lock_guard lock(mutex_);
    bool captures = false;
    for (const auto& [stream, state] : streams_)
      if (state->context == context && state->capture) {
        state->capture->invalid = true;
        captures = true;
      }
    if (captures) return kCaptureUnsupported;
  }
  wait_until_idle(context);
  return kSuccess;
}

void Streams::wait_until_idle(Context context) {
  std::vector<std::shared_ptr<Work>> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [stream, state] : streams_)
      if (state->context == context) all.push_back(state->work);
  }
  for (const std::shared_ptr<Work>& work : all) work->wait_until_idle();
}

Event Streams::make_event(bool timed) {
  auto made = std::make_unique<CUevent_st>();
  made->timed = timed;
  const Event event = made.get();
  std::lock_guard lock(mutex_);
  events_[event] = std::move(made);
  return event;
}

Code Streams::destroy(Event event) {
  std::lock_guard lock(mutex_);
  return events_.erase(event) == 1 ? kSuccess : kInvalidHandle;
}

Code Streams::record(Event event, Stream stream) {
  std::lock_guard lock(mutex_);
  if (known(stream) == nullptr || !events_.contains(event)) return kInvalidHandle;
  event->capture = stream->capture;
  if (stream->capture) {
    if (stream->capture->invalid) return kCaptureInvalidated;
    event->captured = stream->capture->ends[stream];
    event->point = nullptr;
    return kSuccess;
  }
  event->point = std::make_shared<Point>();
  stream->work->push([point = event->point] { point->reach(); });
  return kSuccess;
}

// Requires  the lock, and an event of the capture.
Code Streams::join(CaptureState& capture, Stream stream, Event event) {
  if (capture.invalid) return kCaptureInvalidated;
  std::vector<std::size_t>& end = capture.ends[stream];
  end.insert(end.end(), event->captured.begin(), event->captured.end());
  stream->capture = event->capture;
  return kSuccess;
}

Code Streams::wait(Stream stream, Event event) {
  std::lock_guard lock(mutex_);
  if (known(stream) == nullptr || !events_.contains(event)) return kInvalidHandle;
  const bool captures = stream->capture != nullptr;
  if (event->capture && (!captures || stream->capture == event->capture))
    return join(*event->capture, stream, event);
  if (captures && (event->capture || event->point)) {
    stream->capture->invalid = true;
    return kCaptureIsolation;
  }
  if (event->point) stream->work->push([point = event->point] { point->wait(); });
  return kSuccess;
}

std::shared_ptr<Point> Streams::point_of(Event event, Code& code) {
  std::lock_guard lock(mutex_);
  code = !events_.contains(event) ? kInvalidHandle : event->capture ? 907 : kSuccess;
  return code == kSuccess ? event->point : nullptr;
}

Code Streams::query(Event event) {
  Code code = kSuccess;
  const std::shared_ptr<Point> point = point_of(event, code);
  return point && !point->reached() ? kNotReady : code;
}

Code Streams::synchronize(Event event) {
  Code code = kSuccess;
  const std::shared_ptr<Point> point = point_of(event, code);
  if (point) point->wait();
  return code;
}

Code Streams::elapsed(float* milliseconds, Event from, Event to) {
  {
    std::lock_guard lock(mutex_);
    for (const Event event : {from, to})
      if (!events_.contains(event) || !event->timed) return kInvalidHandle;
  }
  Code code = kSuccess;
  const std::shared_ptr<Point> begin = point_of(from, code);
  if (code != kSuccess) return code;
  const std::shared_ptr<Point> end = point_of(to, code);
  if (code != kSuccess) return code;
  if (!begin || !end || begin == end) return kInvalidHandle;
  if (!begin->reached() || !end->reached()) return kNotReady;
  *milliseconds = static_cast<float>(end->milliseconds_since(*begin));
  return kSuccess;
}

Code Streams::begin_capture(Stream stream, int mode) {
  std::lock_guard lock(mutex_);
  if (known(stream) == nullptr) return kInvalidHandle;
  if (stream->capture) return 401;
  auto capture = std::make_shared<CaptureState>();
  capture->id = next_capture_++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  stream->capture = capture;
  captures_.push_back(capture);
  return kSuccess;
}

Code Streams::end_capture(Stream stream, std::shared_ptr<GraphState>& graph) {
  std::lock_guard lock(mutex_);
  if (known(stream) == nullptr) return kInvalidHandle;
  const std::shared_ptr<CaptureState> capture = stream->capture;
  if (!capture) return 401;
  if (capture->origin != stream) return kCaptureUnmatched;
  if (capture->mode != kCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return kCaptureWrongThread;
  for (const auto& [handle, state] : streams_)
    if (state->capture == capture) state->capture = nullptr;
  captures_.erase(std::find(captures_.begin(), captures_.end(), capture));
  if (capture->invalid) return kCaptureInvalidated;
  for (const std::size_t before : capture->ends[stream]) capture->open.erase(before);
  if (!capture->open.empty()) return kCaptureUnjoined;
  graph = std::make_shared<GraphState>(std::move(capture->graph));
  return kSuccess;
}

Code Streams::capture_info(Stream stream, int* status, std::uint64_t* id) {
  std::lock_guard lock(mutex_);
  if (known(stream) == nullptr) return kInvalidHandle;
  *status = kCaptureStatusNone;
  if (!stream->capture) return kSuccess;
  *status = stream->capture->invalid ? kCaptureStatusInvalidated : kCaptureStatusActive;
  if (id != nullptr) *id = stream->capture->id;
  return kSuccess;
}

Code Streams::unsafe_call(int mode) {
  if (mode == kCaptureModeRelaxed) return kSuccess;
  std::lock_guard lock(mutex_);
  for (const std::shared_ptr<CaptureState>& capture : captures_) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool refused = own ? capture->mode != kCaptureModeRelaxed
                             : mode == kCaptureModeGlobal && capture->mode == kCaptureModeGlobal;
    if (!refused) continue;
    capture->invalid = true;
    return kCaptureUnsupported;
  }
  return kSuccess;
}

std::size_t Streams::stream_count() {
  std::lock_guard lock(mutex_);
  return streams_.size();
}

std::size_t Streams::event_count() {
  std::lock_guard lock(mutex_);
  return events_.size();
}

Context primary_context(int ordinal) {
  static std::mutex mutex;
  static auto& contexts = *new std::array<CUctx_st, kMostDevices>;
  std::lock_guard lock(mutex);
  CUctx_st& context = contexts[static_cast<std::size_t>(ordinal)];
  context.ordinal = ordinal;
  if (context.default_stream == nullptr)
    context.default_stream = Streams::instance().make(&context);
  return &context;
}

bool is_device(int ordinal) { return ordinal >= 0 && ordinal < device_count(); }

int device_count() {
  const char* const text = std::getenv("CUDA_STAND_IN_DEVICES");
  return text == nullptr ? 4 : std::clamp(std::atoi(text), 0, kMostDevices);
}

}  // namespace stand_in
