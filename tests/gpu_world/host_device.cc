// host_device.cc: see host_device.hpp.
#include "gpu_world/host_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "gpu/host_kernels.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kAlignment = 256;

// A kernel: every thread of every block at once.
void run(const Launch& launch) {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::thread> threads;
  for (std::uint32_t channel = 0; channel < launch.blocks; ++channel) {
    Block& block = *blocks.emplace_back(std::make_unique<Block>(launch.threads));
    for (std::uint32_t thread = 0; thread < launch.threads; ++thread)
      threads.emplace_back([&, channel, thread] {
        const Team team{thread, launch.threads};
        if (launch.exchange != nullptr)
          run_exchange(block, team, *launch.world, *launch.exchange, channel);
        else
          run_kernel(launch.reduces, block, team, *launch.world, *launch.program, *launch.call,
                     channel);
      });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

// A moment in a stream; each record() makes another one.
struct HostDevice::Event {
  struct Moment {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
    std::chrono::steady_clock::time_point time;
    std::uint64_t capture = 0;  // 0: in none
  };

  std::shared_ptr<Moment> take() {
    const std::lock_guard lock(mutex);
    return moment;
  }
  std::shared_ptr<Moment> renew() {
    const std::lock_guard lock(mutex);
    return moment = std::make_shared<Moment>();
  }

  std::mutex mutex;
  std::shared_ptr<Moment> moment;  // null: never recorded
};

// What is enqueued, and the thread that does it.
class HostDevice::Stream {
 public:
  Stream() : thread_([this] { work(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void push(Operation operation) {
    const std::lock_guard lock(mutex_);
    if (capture_ != 0) {
      captured_.push_back(std::move(operation));
      return;
    }
    operations_.push_back(std::move(operation));
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return operations_.empty() && !busy_; });
  }
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return operations_.empty() && !busy_;
  }
  // Every capture is one of its own: what is captured here has one stream.
  std::uint64_t capture() {
    const std::lock_guard lock(mutex_);
    return capture_;
  }
  void begin_capture() {
    static std::atomic<std::uint64_t> captures{0};
    const std::lock_guard lock(mutex_);
    capture_ = ++captures;
  }
  std::vector<Operation> end_capture() {
    const std::lock_guard lock(mutex_);
    capture_ = 0;
    return std::exchange(captured_, {});
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || !operations_.empty(); });
      if (operations_.empty()) return;
      const Operation operation = std::move(operations_.front());
      operations_.pop_front();
      busy_ = true;
      lock.unlock();
      operation();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  bool busy_ = false;
  bool ends_ = false;
  std::uint64_t capture_ = 0;
  std::vector<Operation> captured_;
  std::thread thread_;
};

HostDevice::HostDevice(const HostDeviceOptions& options) : options_(options) {
  streams_.push_back(std::make_shared<Stream>());
}

HostDevice::~HostDevice() { streams_.clear(); }

Launch HostDevice::last_launch() const {
  const std::lock_guard lock(mutex_);
  return last_launch_;
}

std::string HostDevice::name() const {
  return fmt::format("threads of a processor (device {})", options_.id);
}

Result<std::byte*> HostDevice::allocate(std::size_t bytes) {
  if (fails_ > 0 && --fails_ == 0)
    return Status(StatusCode::system_error,
                  fmt::format("no {} bytes are left, as a test wants it", bytes));
  const std::size_t whole = (bytes / kAlignment + 1) * kAlignment;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
  std::memset(memory, 0xa5, whole);
  ++allocations_;
  const std::lock_guard lock(mutex_);
  made_[memory + whole] = {memory, bytes, ++last_id_};
  return memory;
}

void HostDevice::deallocate(std::byte* memory) {
  wait_for_all();
  if (look_) look_();
  {
    const std::lock_guard lock(mutex_);
    const auto found = made_.upper_bound(memory);
    if (found != made_.end() && found->second.begin == memory) made_.erase(found);
  }
  std::free(memory);
  --allocations_;
}

Result<std::byte*> HostDevice::allocate_shared(std::size_t bytes) {
  const std::size_t whole = (bytes / kAlignment + 1) * kAlignment;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
  std::memset(memory, 0, whole);
  ++allocations_;
  return memory;
}

void HostDevice::deallocate_shared(std::byte* memory) { deallocate(memory); }

// Word by word where it can be: an abort is told while kernels look at that word.
Status HostDevice::copy_in(void* to, const void* from, std::size_t bytes) {
  wait_for_driver();
  ++copies_in_;
  if (bytes == sizeof(std::uint64_t)) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, sizeof value);
    std::atomic_ref(*static_cast<std::uint64_t*>(to)).store(value);
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
  return Status();
}

// The same: kernels write such words.
Status HostDevice::copy_out(void* to, const void* from, std::size_t bytes) {
  wait_for_driver();
  if (bytes == sizeof(std::uint64_t)) {
    const std::uint64_t value =
        std::atomic_ref(*static_cast<std::uint64_t*>(const_cast<void*>(from))).load();
    std::memcpy(to, &value, sizeof value);
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
  return Status();
}

Status HostDevice::zero(void* at, std::size_t bytes) {
  std::memset(at, 0, bytes);
  return Status();
}

Status HostDevice::flush_network_writes() {
  ++flushes_;
  return Status();
}

Status HostDevice::reach(Device& peer) {
  if (options_.reaches_peers) return Status();
  return Status(StatusCode::unsupported,
                fmt::format("{} cannot load and store the memory of {}", name(), peer.name()));
}

bool HostDevice::is_reachable(const void* memory, std::size_t) const {
  return memory != nullptr && reachable_;
}

namespace {

// What a handle of this device says.
struct Exported {
  std::byte* memory = nullptr;
  std::uint64_t id = 0;  // 0: of memory that it does not know
};

}  // namespace

MemoryHandle HostDevice::handle_of(const Allocation& allocation) {
  const Exported exported{allocation.begin, allocation.id};
  MemoryHandle handle = {};
  std::memcpy(handle.data(), &exported, sizeof exported);
  return handle;
}

Result<MemoryHandle> HostDevice::export_memory(const std::byte* memory) {
  Allocation known{const_cast<std::byte*>(memory), 0, 0};
  const std::lock_guard lock(mutex_);
  if (const auto found = made_.upper_bound(memory);
      found != made_.end() && found->second.begin == memory)
    known = found->second;
  return handle_of(known);
}

Result<std::byte*> HostDevice::import_memory(const MemoryHandle& handle) {
  if (!options_.reaches_peers || !importing_)
    return Status(StatusCode::unsupported,
                  fmt::format("{} cannot load and store another's memory", name()));
  Exported exported;
  std::memcpy(&exported, handle.data(), sizeof exported);
  const std::lock_guard lock(mutex_);
  Import& import = imported_[exported.memory];
  if (import.times > 0 && import.id != exported.id)
    return Status(StatusCode::unsupported, "other memory is mapped at this address");
  import.id = exported.id;
  ++import.times;
  ++imports_;
  return exported.memory;
}

void HostDevice::forget_memory(std::byte* imported) {
  forget([&] {
    const std::lock_guard lock(mutex_);
    --imported_[imported].times;
  });
}

void HostDevice::renew(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  made_.upper_bound(memory)->second.id = ++last_id_;
}

void HostDevice::forget(const std::function<void()>& unmap) {
  const std::lock_guard lock(driver_);
  wait_for_all();
  unmap();
  --imports_;
}

Status HostDevice::finish() {
  wait_for_all();
  return Status();
}

Result<int> HostDevice::blocks_at_once(int) { return options_.blocks; }

Status HostDevice::launch(const Launch& launch, StreamHandle stream) {
  wait_for_driver();
  {
    const std::lock_guard lock(mutex_);
    last_launch_ = launch;
  }
  ++launches_;
  stream_of(stream).push([launch] { run(launch); });
  return Status();
}

HostDevice::Stream& HostDevice::stream_of(StreamHandle stream) {
  if (stream != nullptr) return *static_cast<Stream*>(stream);
  const std::lock_guard lock(mutex_);
  return *streams_.front();
}

void HostDevice::hold(StreamHandle stream, std::future<void> opened) {
  stream_of(stream).push([shared = opened.share()] { shared.wait(); });
}

void HostDevice::wait_for_all() {
  std::vector<std::shared_ptr<Stream>> all;  // any of which may be destroyed meanwhile
  {
    const std::lock_guard lock(mutex_);
    all = streams_;
  }
  for (const auto& stream : all) stream->wait();
}

Result<StreamHandle> HostDevice::make_stream() {
  const std::lock_guard lock(mutex_);
  return StreamHandle{streams_.emplace_back(std::make_shared<Stream>()).get()};
}

void HostDevice::destroy_stream(StreamHandle stream) {
  std::shared_ptr<Stream> gone;  // outside the lock: it waits for what the stream does
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const auto& other) { return other.get() == stream; });
  if (found == streams_.end()) return;
  gone = std::move(*found);
  streams_.erase(found);
}

Status HostDevice::synchronize(StreamHandle stream) {
  stream_of(stream).wait();
  return Status();
}

Result<bool> HostDevice::reached(StreamHandle stream) { return stream_of(stream).is_idle(); }

Status HostDevice::copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) {
  stream_of(stream).push([=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
  return Status();
}

Result<EventHandle> HostDevice::make_event() { return EventHandle{new Event}; }

void HostDevice::destroy_event(EventHandle event) { delete static_cast<Event*>(event); }

Status HostDevice::record(EventHandle event, StreamHandle stream) {
  const auto moment = static_cast<Event*>(event)->renew();
  moment->capture = stream_of(stream).capture();
  stream_of(stream).push([moment] {
    const std::lock_guard lock(moment->mutex);
    moment->reached = true;
    moment->time = std::chrono::steady_clock::now();
    moment->changed.notify_all();
  });
  return Status();
}

Result<bool> HostDevice::reached_event(EventHandle event) {
  const auto moment = static_cast<Event*>(event)->take();
  if (moment == nullptr) return true;
  const std::lock_guard lock(moment->mutex);
  return moment->reached;
}

Status HostDevice::wait_event(StreamHandle stream, EventHandle event) {
  const auto moment = static_cast<Event*>(event)->take();
  if (moment == nullptr) return Status();
  if (moment->capture != 0 && moment->capture != stream_of(stream).capture())
    return Status(StatusCode::unsupported, "a graph has one stream here");
  stream_of(stream).push([moment] {
    std::unique_lock lock(moment->mutex);
    moment->changed.wait(lock, [&] { return moment->reached; });
  });
  return Status();
}

Result<double> HostDevice::elapsed_us(EventHandle from, EventHandle to) {
  const auto begin = static_cast<Event*>(from)->take();
  const auto end = static_cast<Event*>(to)->take();
  const std::scoped_lock lock(begin->mutex, end->mutex);
  return std::chrono::duration<double, std::micro>(end->time - begin->time).count();
}

Result<std::uint64_t> HostDevice::capture_of(StreamHandle stream) {
  return stream_of(stream).capture();
}

Status HostDevice::begin_capture(StreamHandle stream) {
  stream_of(stream).begin_capture();
  return Status();
}

Result<GraphHandle> HostDevice::end_capture(StreamHandle stream) {
  return GraphHandle{new Graph{stream_of(stream).end_capture()}};
}

Status HostDevice::replay(GraphHandle graph, StreamHandle stream) {
  for (const Operation& operation : static_cast<Graph*>(graph)->operations)
    stream_of(stream).push(operation);
  return Status();
}

void HostDevice::destroy_graph(GraphHandle graph) { delete static_cast<Graph*>(graph); }

}  // namespace tutti::runtime::gpu
