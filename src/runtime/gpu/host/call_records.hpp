// call_records.hpp: what calls of one rank are told (DeviceCall, DeviceExchange), in memory of its
// device. A record is written before the first launch that reads it and never changed while any
// launch may: so a captured graph replays with what it was captured with, and a call that is made
// again costs nothing but its launch.
//
// A record that a graph was captured with stays for ever, because nobody says when a graph is gone.
// Others are reused, the one that was not needed for the longest time first, once all launches that
// read it are known to be over; until then there are more of them.
//
// Knows nothing of what is in a record.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/gpu/host/device.hpp"
#include "runtime/gpu/write_exchange.hpp"

namespace tutti::runtime::gpu {

// What a rank asks for.
struct GpuCall {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;  // of reductions
  Rank root = 0;                // of those that have one; of send_recv: how far to the right
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements of a block, as Communicator counts them
  // Of a sum of what each rank has times a number of its own: the bits of that number, from the
  // first byte on; or where it lies whenever the call is made, in any memory that the device's
  // copies reach.
  bool has_factor = false;
  std::uint64_t factor = 0;
  const void* factor_at = nullptr;  // null: it is `factor`
  // Not a collective, but what only two ranks do, any number of times. All else is unused then.
  std::vector<GpuTransfer> transfers;

  friend bool operator==(const GpuCall&, const GpuCall&) = default;
};

struct HashCall {
  std::size_t operator()(const GpuCall& call) const;
};

// Bytes of the device that are copied before a launch.
struct CopyBefore {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;  // 0: nothing is to be copied
};

// A buffer of a call, and where peers find it.
struct SharedBuffer {
  const std::byte* memory = nullptr;
  std::size_t bytes = 0;
  MemoryRef at;
};

// How a call is launched.
struct PreparedCall {
  Launch launch;
  std::byte* record = nullptr;
  CopyBefore copy;
  CopyBefore copy_factor;
  std::uint64_t last_use = 0;  // number of the launch
  bool captured = false;
  GpuCall key;
  std::vector<SharedBuffer> shared;
  std::uint64_t as_of = 0;  // what the owner knows of `shared`
  bool forgotten = false;   // it is not found any more
};

// Threading  one thread at a time.
class CallRecords {
 public:
  // Makes another `slab` records of so many bytes whenever there are not enough.
  CallRecords(Device& device, std::size_t slab, std::size_t record_bytes);
  CallRecords(const CallRecords&) = delete;
  CallRecords& operator=(const CallRecords&) = delete;
  // Requires  nothing is under way.
  ~CallRecords();

  // Null: this call has not been made before, or not for long. Ensures  it is now the latest.
  PreparedCall* find(const GpuCall& call);

  // Keeps one that has not been found, with what its kernel is told of it. Its factor is copied
  // there where it lies in memory. Blocking  until the device has it.
  Result<PreparedCall*> add(const GpuCall& call, std::span<const std::byte> content, Launch launch,
                            const CopyBefore& copy);

  // From now on it is not found, as what it was told holds no more; where it is under way, it goes
  // on.
  void forget(PreparedCall& call);

  // Says that it is launched now on that stream.
  Status used(PreparedCall& call, StreamHandle stream, bool captured);

  std::size_t records() const { return slabs_.size() * slab_; }

 private:
  using Order = std::list<PreparedCall>;

  Result<std::byte*> take_record();
  Result<std::byte*> take_old();
  Status look_at_marks();

  // A moment in the rank's launches.
  struct Mark {
    std::uint64_t launch = 0;
    EventHandle event = nullptr;
  };

  Device& device_;
  const std::size_t slab_;
  const std::size_t record_bytes_;
  std::vector<std::byte*> slabs_;
  std::size_t unused_ = 0;  // records of the last slab, from its end
  Order order_;             // the latest first
  Order kept_;              // those that graphs were captured with
  std::unordered_map<GpuCall, Order::iterator, HashCall> by_call_;
  std::uint64_t launches_ = 0;
  std::uint64_t finished_ = 0;  // launches up to here are over
  std::deque<Mark> marks_;
  std::vector<EventHandle> spare_events_;
};

}  // namespace tutti::runtime::gpu
