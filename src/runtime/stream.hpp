// stream.hpp: what stands behind a Stream: a queue, and the thread that empties it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/fork.hpp"
#include "tutti/stream.hpp"

namespace tutti::runtime {

class EventState {
 public:
  bool reached() const { return reached_.load(std::memory_order_acquire); }
  Status wait() const;

  void reach(Status status);
  void recorded_by(std::thread::id thread) { thread_ = thread; }  // before others have the event

  // In a child of the process that made it, nobody ever reaches it.
  bool forked() const { return fork_generation_ != base::fork_generation(); }

 private:
  const std::uint32_t fork_generation_ = base::fork_generation();
  std::thread::id thread_;  // of the stream
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> reached_{false};
  Status status_;  // once it is reached
};

// Its thread has a share in it, for a stream that goes away in one of its own operations.
class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  // Gets the error that the stream has failed with, and returns that which it has then.
  using Operation = std::function<Status(Status failure)>;

  StreamState() = default;
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  void enqueue(Operation operation);
  Status synchronize();
  // After the last operation. Blocking: until all are done, unless one of them calls it.
  void finish();

  std::thread::id thread() const { return thread_.get_id(); }  // after the first operation
  // A child of the process that made it has not got the thread.
  bool forked() const { return fork_generation_ != base::fork_generation(); }

 private:
  void begin();
  void work();

  const std::uint32_t fork_generation_ = base::fork_generation();
  std::mutex mutex_;  // guards what follows but the thread
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  bool busy_ = false;  // with one that is no longer in the queue
  bool ending_ = false;
  bool begun_ = false;
  Status failure_;
  std::thread thread_;
};

}  // namespace tutti::runtime
