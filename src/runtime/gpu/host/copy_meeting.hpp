// copy_meeting.hpp: calls that move blocks and compute nothing, made by the copy engines of devices
// instead of kernels, for ranks of one process whose devices reach each other's memory.
//
// A copy must know both its ends when it is enqueued. So the ranks meet in the host: whoever comes
// last enqueues what all of them do, on their own streams, ordered by events. Nothing on a device
// ever waits for what is not enqueued yet, and no word in memory is waited for; a rank that does
// not come is missed by the host, and nothing has been enqueued then.
//
// Knows devices as device.hpp tells them; nothing of callers' groups or threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/gpu/host/world.hpp"

namespace tutti::runtime::gpu {

// A block of what `from` gives goes to what `to` receives. Units: blocks.
struct BlockCopy {
  Rank from = 0;
  Rank to = 0;
  std::size_t input_block = 0;
  std::size_t output_block = 0;

  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

// What a collective of so many ranks moves; each rank sends to those behind it first, so that no
// two send to the same one at a time. Empty for one that computes, or that kernels make better.
std::vector<BlockCopy> copies_of(Collective collective, Rank root, int ranks);

// How a meeting ended.
struct Met {
  Status status;            // of a failure, no call of the ranks can be made any more
  bool copied = false;      // the call is on all streams; else kernels are to make it
  std::string why_kernels;  // then, for people
};

// Threading  any thread; one rank from one thread at a time. Lifetime  not longer than the world's.
class CopyMeeting {
 public:
  // Requires  a world of one process, in which all ranks are. Errors  those of its devices.
  static Result<std::unique_ptr<CopyMeeting>> make(GpuWorld& world);
  CopyMeeting(const CopyMeeting&) = delete;
  CopyMeeting& operator=(const CopyMeeting&) = delete;
  ~CopyMeeting();

  // The rank comes with a call, and is to ask how its meeting ended before it comes again.
  // Not blocking. Errors  invalid_argument: the call cannot be right; what an earlier one failed
  //         with. Then the rank has not come.
  Status come(Rank rank, const GpuCall& call, StreamHandle stream);
  // None: others are awaited. Requires  the rank has come, and has not been told yet.
  std::optional<Met> look(Rank rank);
  // Blocks until all have come, or one is missing at the deadline, or somebody aborts.
  Met wait(Rank rank);
  // The rank that has come goes without having been told. Those who still wait for it go on
  // waiting.
  void withdraw(Rank rank);
  // Ends all meetings, those under way and those to come. Any thread.
  void abort(const Status& why);

 private:
  struct Guest {
    bool is_here = false;
    GpuCall call;
    StreamHandle stream = nullptr;
    std::uint64_t capture = 0;
    std::optional<Met> met;       // once it is over
    EventHandle event = nullptr;  // of the rank's device
  };

  explicit CopyMeeting(GpuWorld& world) : world_(world) {}
  Met hold();
  std::string why_kernels() const;
  std::string why_unreachable(Rank rank) const;
  Status enqueue(Rank last);
  Status gather_streams(Rank last);
  Status enqueue_copy(const BlockCopy& copy);
  void end(const Met& met);
  Rank first_missing() const;

  GpuWorld& world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Guest> guests_;  // by rank
  int here_ = 0;
  Rank last_ = 0;
  Status failure_;  // sticky
};

}  // namespace tutti::runtime::gpu
