// stream_worker.hpp: makes the calls of one communicator that are enqueued on CUDA streams.
//
// A launch enqueues on the user's stream: copies of what the calls read into host memory, the word
// to our thread, a wait until it has made the calls there, and copies of what they wrote back. The
// copies go through the user's own stream on purpose: a stream that waits for a word in memory may
// hold up other streams of the device, and one of ours with the copies that it waits for would be
// among them.
//
// Knows the CUDA driver and calls as data. Does not know handles, groups, or how a call is made.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "nccl/call.hpp"
#include "nccl/launch_queue.hpp"
#include "nccl/pinned.hpp"
#include "nccl/staging.hpp"
#include "transport/cuda/driver.hpp"

namespace tutti::nccl {

// Order      launches are made in the order of launch(), also on different streams: each waits for
//            the one before. The launches of a capture keep their order among themselves; between
//            replayed graphs and other launches it is the caller's streams that must keep it.
// Failures   a call that fails does not hold up its stream: what it should have written is
//            unspecified then.
// Captures   a graph may be replayed as often as one likes, by one launch of it at a time, while
//            the worker lives. What a captured launch needs is kept until the worker ends.
// Lifetime   all that the device and the streams use must live until the worker has ended. fork():
//            a child cannot use the worker.
// Threading  one thread at a time.
class StreamWorker {
 public:
  // Makes calls that have pointers to host memory only. On the worker's thread; may block.
  using Run = std::function<Status(std::span<const Call>)>;
  using Failed = std::function<void(const Status&)>;  // on the worker's thread, once per launch

  static Result<std::unique_ptr<StreamWorker>> make(const transport::cuda::Driver& driver,
                                                    transport::cuda::Context context, Rank rank,
                                                    int size, Run run, Failed failed);
  StreamWorker(const StreamWorker&) = delete;
  StreamWorker& operator=(const StreamWorker&) = delete;
  ~StreamWorker();  // blocking: waits for what was enqueued, as drain() does

  // Ends a worker whose communicator was aborted without waiting for streams: what they come to
  // later lets them go on, and its calls are not made. Memory that they may still use is never
  // freed. Blocking  until Run returns, if it is making calls.
  static void abandon(std::unique_ptr<StreamWorker> worker);

  // Enqueues the calls as one group, and returns at once. `stream`: a CUDA stream of the context,
  // also one that is being captured; null: the default one. Requires  calls that check() approves.
  // Blocking  no; but locking more host memory than ever before takes some time.
  // Errors    the driver's; unsupported where it cannot capture what this needs. After an error
  //           half way, of a stream that is not being captured, every later launch gets it, too.
  Status launch(void* stream, std::vector<Call> calls);

  // What blocks until all that was launched so far, but not captured, has been made, or until the
  // worker ends. Lifetime: may outlive the worker. Errors: that of a launch that was in part only.
  Result<std::function<void()>> wait_for_launches() const;

  // Blocks until all launched calls have been made and their streams have gone on, and whatever
  // replayed graphs have announced so far has been made. Errors: of the device.
  Status drain();

 private:
  // Launches that follow one another in the order of streams, and may use the same memory for that.
  struct Chain {
    explicit Chain(transport::cuda::OwnEvent made) : end(std::move(made)) {}
    transport::cuda::OwnEvent end;  // of the last launch
    bool used = false;
    PinnedArena arena;
  };

  // What streams and the device use.
  struct Held {
    bool in_part() const;  // whether what was enqueued in part may still use it
    PinnedCells cells;
    std::unique_ptr<Chain> eager;
    std::map<std::uint64_t, Chain> captures;        // by the capture's number
    std::deque<std::unique_ptr<Launch>> under_way;  // not captured, in their order
    std::vector<std::unique_ptr<Launch>> captured;
  };
  static void keep_for_ever(std::unique_ptr<Held> held);

  StreamWorker(const transport::cuda::Driver& driver, transport::cuda::Context context, Rank rank,
               int size, Run run, Failed failed);
  Status begin();
  void end();
  void work();
  void make_calls(Launch& launch);

  Result<Chain*> chain_of(const transport::cuda::Capture& capture);
  Result<StagingPlan> plan(std::span<const Call> calls) const;
  void stage(std::span<Call> calls, const StagingPlan& plan, std::byte* staged) const;
  Status add(std::unique_ptr<Launch> launch, const std::function<Status()>& enqueue);
  Status enqueue(Chain& chain, transport::cuda::Stream stream, Launch& launch,
                 const StagingPlan& plan, std::byte* staged);
  Status wait_for_calls(transport::cuda::Stream stream, Launch& launch);
  void reclaim();
  void wait_for_replays();

  const transport::cuda::Driver& driver_;
  const transport::cuda::Context context_;
  const Rank rank_;
  const int size_;
  const Run run_;
  const Failed failed_;

  std::shared_ptr<LaunchQueue> queue_;
  std::unique_ptr<Held> held_;
  std::uint64_t launched_ = 0;  // but for captures
  Status broken_;               // by a launch that was enqueued in part
  std::thread thread_;
};

}  // namespace tutti::nccl
