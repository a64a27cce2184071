// launch_queue.hpp: launches on their way from CUDA streams to the thread that makes their calls.
//
// Does not know how calls are enqueued or made.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl/call.hpp"

namespace tutti::nccl {

class LaunchQueue;

// Calls that were enqueued on a stream together. The stream announces it and then waits for its
// cell; a replayed graph does so again and again.
struct Launch {
  std::vector<Call> calls;        // with pointers to host memory only
  std::uint32_t* cell = nullptr;  // 0; 1 once the calls are made; the stream makes it 0 again
  std::shared_ptr<LaunchQueue> queue;
  bool captured = false;              // announced by graphs, any number of times
  std::atomic<bool> given_up{false};  // enqueued in part only: its calls are not to be made
  std::atomic<bool> made{false};      // once at least

  // Lets the stream go on.
  void let_go();
};

// Threading  any thread.
class LaunchQueue {
 public:
  // What a stream calls when it comes to a launch. Only leaves word: it runs on a thread of the
  // driver. After end() the stream goes on at once.
  static void announce(void* launch);

  // The next launch that was announced, once the one before is done; null after end(). Blocking.
  Launch* next();

  // Blocks until all that has been announced is done.
  void wait_until_idle();

  // Blocks until so many launches that were not captured are done, or until end().
  void wait_until_done(std::uint64_t launches);

  void end();

 private:
  void push(Launch& launch);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Launch*> announced_;
  bool busy_ = false;       // with the one that next() gave last
  bool counts_ = false;     // that one, when it is done
  std::uint64_t done_ = 0;  // of those that were not captured
  bool ended_ = false;
};

}  // namespace tutti::nccl
