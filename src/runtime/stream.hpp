// stream.hpp: what stands behind a Stream: a queue, and the thread that empties it.
#pragma once

#include <condition_variable>
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
  bool reached() const;
  Status wait() const;
  void reach(Status status);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
  Status status_;
};

class StreamState {
 public:
  // Gets the error that the stream has failed with, and returns that which it has then.
  using Operation = std::function<Status(Status failure)>;

  StreamState() = default;
  ~StreamState();  // waits
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  void enqueue(Operation operation);
  Status synchronize();

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
