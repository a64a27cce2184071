// world.hpp: collectives of ranks that are on GPUs, and what they send each other, done by the GPUs
// themselves: the host plans, writes down what a call is, and launches one kernel for each rank.
//
// All ranks are of one process: threads, or one thread that speaks for all of them. They share one
// device, or devices that address each other's memory. Or they are of several processes: then each
// has a world object of its own, in which it is the only one; the control memory of the others on
// its host is mapped, and those of other hosts are reached through a carrier.
//
// A rank's kernel waits on its device for those of its peers. So all of them must be on their
// devices at once: make() refuses what cannot be, and callers must not put what a peer's call comes
// after behind a rank's call: on the same stream, in the default stream, or in a wait of the host.
// A world does not know what else a device does: calls of two worlds that share one must not be
// under way at once, unless all their blocks fit it together.
//
// Knows nothing of CUDA: devices are told by device.hpp.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/gpu/host/call_records.hpp"
#include "runtime/gpu/host/carrier.hpp"
#include "runtime/gpu/host/plans.hpp"
#include "runtime/gpu/host/rank_memory.hpp"
#include "runtime/gpu/host/regions.hpp"
#include "runtime/gpu/kernel_image.hpp"

namespace tutti::runtime::gpu {

struct GpuOptions {
  int channels = 0;                 // blocks of a rank; 0: what fits, at most kChannelsMax
  int threads = kKernelThreadsMax;  // of a block
  std::uint32_t slots = 4;
  std::size_t slot_bytes = 64 * 1024;
  std::size_t flagged_bytes = 16 * 1024;  // a message of low latency at most
  std::size_t channel_bytes = 64 * 1024;  // of a call's data that are worth another channel
  int lanes = 16;  // of transfers from one rank to another, at most one for each channel; 0: none
  bool direct = true;     // ranks load and store each other's buffers
  std::string algorithm;  // empty: the planner's choice
  // How fast the ranks reach each other, the same on all of them; null: it is assumed.
  std::shared_ptr<const DeviceTopology> topology;
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);  // of a call; 0: none
  std::size_t records = 256;  // calls of a rank that are remembered before more is allocated
  NetworkWishes network;      // of ranks of several hosts; each rank has its own
};

inline constexpr int kChannelsMax = 32;
inline constexpr int kLanesMax = kChannelsMax;
inline constexpr int kCarriedChannelsMax = 4;  // one thread of the host carries them all

class GpuWorld;

// A rank that joins others, of this process or another one, of this host or another one.
struct GpuSeat {
  Device* device = nullptr;
  Rank rank = 0;
  int ranks = 1;
  int ranks_per_device = 1;  // of any device at most
  std::string process;       // equal exactly for ranks of one process
  std::vector<int> hosts;    // by rank: equal for those of one host; empty: all are on one
  // Gives what each rank says to all of them. All ranks call it equally often. Blocking.
  std::function<Result<std::vector<std::string>>(const std::string&)> exchange;
  // Connects the ranks, for what their hosts carry. Called where there are several hosts, by all
  // ranks or by none. Blocking.
  std::function<Result<std::unique_ptr<Transport>>()> connect;
  // What people should know of memory that is registered; may be none. From any thread.
  std::function<void(const std::string&)> tell;
};

// One rank's side of a world.
//
// Threading  one thread at a time; different ranks from different threads.
class GpuRank {
 public:
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;
  ~GpuRank();

  // Enqueues the call on the stream of the rank's device and returns. A stream that is being
  // captured gets it, too, and the graph may be launched again and again: each time is a further
  // call. Calls of a rank follow each other also when their streams differ; what is captured, and
  // launches of graphs, the caller orders. An all_to_all may be in place: its input is copied
  // first. Transfers of a call are one launch, in which none waits for another one, and of which
  // none but their peers need know.
  // Errors  invalid_argument, unsupported: this call cannot be made, and nothing has happened;
  //         what an earlier call failed with, for ever: the world is broken then.
  // Blocking  at the first time of such a call: until the device has been told of it.
  Status call(const GpuCall& call, StreamHandle stream);

  // Ok, or why the call cannot be right on this rank whatever the others do.
  // Errors  invalid_argument.
  Status check(const GpuCall& call) const;
  // What is enqueued on the stream between these two comes behind the rank's calls before, and
  // before those that come afterwards. Not for streams that are being captured.
  Status follow(StreamHandle stream);
  Status mark(StreamHandle stream);

  // Waits for the stream, and says how the rank's calls went.
  Status synchronize(StreamHandle stream);
  // How the calls went that are over by now.
  Status failure() const;
  // Whether all calls are over that were enqueued so far, but for those of graphs. Any thread.
  Result<bool> is_idle() const;

  // Of a rank that has joined others of its host: from now on, until it is deregistered, peers map
  // this memory, and calls whose buffers are in it go direct as soon as all have. A matter of this
  // rank alone, at any time. 0: ranks reach all memory as it is.
  // Errors  unsupported: other processes cannot have it, or there is no such mapping in this world;
  //         invalid_argument: it is not in one allocation. Then calls go through slots.
  // Threading  any thread; so for the two that follow.
  Result<Regions::Registration> register_memory(const void* memory, std::size_t bytes);
  // Before the memory is given back, and when no call uses it any more. Blocking  until peers have
  // let go of it. Errors  invalid_argument: there is no such registration; timeout: a call is under
  // way, or a peer is stopped, and the memory must not be given back yet.
  Status deregister_memory(Regions::Registration registration);
  // Whether calls that begin now find this memory mapped by all peers.
  bool is_mapped(const void* memory, std::size_t bytes) const;

  Rank rank() const { return rank_; }
  Device& device() const { return memory_.device(); }
  std::size_t records() const { return records_.records(); }

 private:
  friend class GpuWorld;
  GpuRank(GpuWorld& world, Rank rank, RankMemory memory, std::size_t records);
  CallRecords& records_of(const GpuCall& call);
  Result<PreparedCall*> prepare(const GpuCall& call);
  Result<PreparedCall*> prepare_transfers(const GpuCall& call);
  Status check_transfers(std::span<const GpuTransfer> transfers) const;
  PreparedCall* find_prepared(const GpuCall& call);
  Result<CopyBefore> lay_out(const GpuCall& call, const ProgramHeader& program, DeviceCall& content,
                             std::array<SharedBuffer, kBufferCount>& shared);
  std::size_t bytes_of(const GpuCall& call, Buffer buffer) const;
  Result<const ProgramHeader*> upload(const std::shared_ptr<const WorldPrograms>& programs);
  Result<std::byte*> scratch(std::size_t bytes);
  Status launch(const Launch& launch, StreamHandle stream, bool is_captured);
  void wait();
  MemoryRef share(const std::byte* memory, std::size_t bytes) const;
  static MemoryRef as_it_is(const std::byte* memory);  // for those who have its addresses

  GpuWorld& world_;
  const Rank rank_;
  RankMemory memory_;
  CallRecords records_;                                  // of collectives
  std::map<std::size_t, CallRecords> transfer_records_;  // of so many transfers at most
  struct Uploaded {
    std::shared_ptr<const WorldPrograms> programs;  // kept, so that addresses stay theirs
    const ProgramHeader* program = nullptr;
  };
  std::unordered_map<const WorldPrograms*, Uploaded> programs_;
  std::vector<std::byte*> allocations_;  // programs, and all scratch memory that there ever was
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  StreamHandle last_stream_ = nullptr;  // may be gone by now: only compared
  bool is_in_graphs_ = false;
  std::atomic<EventHandle> last_event_ = nullptr;  // behind the last call on it; null: none yet
};

class GpuWorld {
 public:
  // A rank for every entry: its device, which lives longer than the world. Blocking.
  // Errors  unsupported: the blocks of all ranks do not fit their device at once; devices do not
  //         reach each other; an entry is null, which is a rank of another process. The text has
  //         the numbers and what to do.
  static Result<std::unique_ptr<GpuWorld>> make(std::span<Device* const> devices,
                                                const GpuOptions& options = {});
  // One rank of a world of several processes. `options.channels` is not 0, and the same on all
  // ranks; messages go through slots, unless `options.direct` is set, all ranks are on one host and
  // memory is registered; between hosts there are none of low latency, no transfers, and at most
  // kCarriedChannelsMax channels. All ranks call it, and it succeeds on all of them or on none.
  // Blocking.
  // Errors  those of the exchange; unsupported: a rank could not, with the first one's reason.
  static Result<std::unique_ptr<GpuWorld>> join(const GpuSeat& seat, const GpuOptions& options);
  GpuWorld(const GpuWorld&) = delete;
  GpuWorld& operator=(const GpuWorld&) = delete;
  // Aborts, so that nothing waits for ever, and frees when all calls are over. Graphs of the world
  // must not be launched any more.
  ~GpuWorld();

  int ranks() const { return static_cast<int>(shape_.ranks); }
  // Requires  a rank of this object.
  GpuRank& rank(Rank rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  const ControlShape& shape() const { return shape_; }
  const GpuOptions& options() const { return options_; }
  std::size_t memory_bytes() const;  // of all ranks, without scratch memory and records

  // How what goes to ranks of other hosts is carried, for people; empty: there are none.
  std::string describe_carrier() const { return carrier_ ? carrier_->describe() : std::string(); }

  // Whether all calls of all ranks are over, but for those of graphs, or cannot be known. Any
  // thread.
  bool is_idle() const;

  // Ends all calls, those under way and those to come, in failure; of other processes, too, as far
  // as they are there. `culprit`: the rank that is told to be where it began. Any thread.
  Status abort(Rank culprit = Status::kUnknownRank);

  // Says that the process of this peer has ended. Unless it had left: calls under way and to come
  // fail, and name it; until there is one, nothing has failed. A rank of another host may have left
  // without this one having heard it yet: whether it had, its connection tells. Any thread.
  Status tell_ended(Rank peer);

  // Tells ranks of other processes that this one makes no further calls. Blocking, for a moment:
  // until those of other hosts have been told, and those of this one have let go of what was
  // registered.
  void say_goodbye();
  // Whether all of them have said so: before that, their kernels may use this rank's memory.
  bool have_others_left() const;
  bool has_left(Rank peer) const;

 private:
  friend class GpuRank;
  class Joining;
  GpuWorld(const GpuOptions& options, const ControlShape& shape, std::size_t devices,
           std::unique_ptr<Plans> plans)
      : options_(options), shape_(shape), devices_(devices), plans_(std::move(plans)) {}

  // How a call is cut, the same on all ranks.
  struct Cutting {
    Protocol protocol = Protocol::simple;
    std::uint32_t channels = 1;
  };
  Result<Cutting> cut(const ProgramHeader& program, const GpuCall& call) const;
  // With what the carrier knows of a peer that is lost.
  Status explained(const Status& failure) const;

  const GpuOptions options_;
  const ControlShape shape_;
  const std::size_t devices_;
  std::unique_ptr<Plans> plans_;
  std::vector<std::unique_ptr<GpuRank>> ranks_;  // null: of another process, or another object
  // Of a rank that has joined, by peer of its host: its control memory as it is mapped here.
  struct Peer {
    Rank rank = 0;
    std::byte* control = nullptr;
    bool imported = false;
  };
  std::vector<Peer> peers_;
  std::unique_ptr<Carrier> carrier_;  // to ranks of other hosts; null: there are none
  std::unique_ptr<Regions> regions_;  // null: none come and go
  Status why_no_regions_;             // ok: nobody needs them
  Rank own_ = Status::kUnknownRank;   // the one that has joined
  std::atomic<bool> aborted_ = false;
};

}  // namespace tutti::runtime::gpu
