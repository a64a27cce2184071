// device_group.hpp: the ranks of a communicator, where all of them are on this host and have a
// device: kernels make their calls in device memory, on the streams that callers name. Ranks of one
// process share a group; where there are several processes, each rank has one of its own.
//
// What kernels do not do is left to others, and all ranks come to the same answer by themselves,
// because it depends on nothing but the kind of call and what all of them share: transfers between
// two ranks where there are several hosts, and what the encoder refuses.
//
// Does not know handles, groups of calls, or how calls are staged.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nccl/call.hpp"
#include "nccl/peer_watch.hpp"
#include "runtime/gpu/host/copy_meeting.hpp"
#include "runtime/gpu/host/device_stock.hpp"
#include "transport/cuda/driver.hpp"

namespace tutti::nccl {

// Threading  any thread; calls of one rank one at a time.
class DeviceGroup {
 public:
  using Stock = runtime::gpu::DeviceStock;

  // A rank for every entry: the number of its device. `stock` outlives the group.
  // Blocking  as DeviceStock::make_world() is. Errors  the same.
  static Result<std::shared_ptr<DeviceGroup>> make(std::vector<int> ordinals,
                                                   const runtime::gpu::GpuOptions& options,
                                                   Stock& stock);
  // A rank of several processes that has joined others.
  static std::shared_ptr<DeviceGroup> make_joined(Rank rank, int size, int ordinal,
                                                  std::unique_ptr<Stock::Tenancy> tenancy,
                                                  Stock& stock);
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;
  // Blocking  until the devices have nothing left to do; not after an abort, nor of a rank that has
  //           joined others, whose kernels may still use its memory.
  ~DeviceGroup();

  // Of a rank that has joined others: from now on the end of these processes is heard, and calls
  // that need them fail. Errors  system_error: they cannot be watched.
  Status watch(std::span<const PeerProcess> peers);

  // From now on copy engines make what only moves data, where they can. Before the first call.
  // Requires  all ranks are here. Errors  those of the devices.
  Status use_copy_engines();
  // Whether the ranks are to meet in a call of this kind, before it is known how it is made.
  bool meets(const Call& call) const;
  // The rank comes with such a call, and asks met() until it hears; or withdraws.
  // Requires  as launch(). Errors  invalid_argument: this rank's call cannot be right.
  Status come(Rank rank, const Call& call, void* stream);
  // True: the call is on the stream; false: it is to be launched. None: others are awaited, unless
  // it may wait for them. Errors  what ended the meeting: no call can be made any more.
  std::optional<Result<bool>> met(Rank rank, bool may_wait);
  void withdraw(Rank rank);

  // Whether kernels do calls of this kind; why they do not is told once (NCCL_DEBUG=INFO).
  bool takes(const Call& call);
  // Puts the call on the stream; false: kernels cannot do it, on any rank, and nothing has
  // happened. Requires  takes(); check() approves of it; the context of the rank's device has the
  // stream. Blocking  at the first such call of a rank: until the device has been told of it.
  // Errors    invalid_argument: this rank's call cannot be right; what an earlier one failed with.
  Result<bool> launch(Rank rank, const Call& call, void* stream);

  // Puts sends and receives on the stream as one launch, which goes on when all are done.
  // Requires, blocking, errors  as launch(). Ensures  other ranks than their peers need not call.
  Status launch_transfers(Rank rank, std::span<const Call> calls, void* stream);

  // From now on calls whose buffers are in this memory go direct where ranks are processes of one
  // host, as soon as all of them have it mapped; why it cannot be is told once (NCCL_DEBUG=INFO).
  // 0: there is nothing to be given back.
  std::uint64_t register_memory(Rank rank, const void* memory, std::size_t bytes);
  // Blocking  until no peer has it mapped any more. Errors  as GpuRank::deregister_memory().
  Status deregister_memory(Rank rank, std::uint64_t registration);

  // How the rank's calls went that are over by now.
  Status failure(Rank rank) const;
  // Blocks until the rank's calls are over that were enqueued before, but for those of graphs, or
  // until they have failed.
  Status wait(Rank rank) const;
  // Ends all calls, those under way and those to come, in failure. `rank`: whose wish it is.
  void abort(Rank rank);

  // Of a rank, on its device. Units: bytes.
  std::size_t memory_bytes() const;
  // How a rank that has joined others carries what goes to other hosts; empty: nothing does.
  std::string describe_carrier() const { return tenancy_->world().describe_carrier(); }

 private:
  DeviceGroup(std::vector<int> ordinals, Stock& stock, std::unique_ptr<Stock::Tenancy> tenancy)
      : ordinals_(std::move(ordinals)), stock_(stock), tenancy_(std::move(tenancy)) {}
  static constexpr int kElsewhere = -1;
  runtime::gpu::GpuRank& rank(Rank rank) const { return tenancy_->world().rank(rank); }
  std::size_t ranks_here() const;  // fewer than there are: it has joined others
  Status check_stream(Rank rank, const Call& call, void* stream);
  void tell_once(const std::string& text);

  const std::vector<int> ordinals_;  // by rank; kElsewhere: of another group
  Stock& stock_;
  std::unique_ptr<Stock::Tenancy> tenancy_;
  std::unique_ptr<runtime::gpu::CopyMeeting> copies_;  // null: kernels make all calls
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;                       // guards what follows
  std::map<int, Rank> on_default_stream_;  // of a device: the rank that calls on it
  std::set<std::string> told_;             // why what was asked for is not done
  std::unique_ptr<PeerWatch> watch_;       // goes first
};

// Whether the memory that the call touches on this rank is a device's. Errors  the driver's;
// invalid_argument: another device's than the rank's.
Result<bool> is_in_device_memory(const transport::cuda::Driver& driver, const Call& call, Rank rank,
                                 int size, int ordinal);

}  // namespace tutti::nccl
