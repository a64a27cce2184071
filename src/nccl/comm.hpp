// comm.hpp: what stands behind an ncclComm_t: a Communicator, the making of it, and what NCCL's
// callers may ask of one at any time.
//
// A Comm outlives its handle for as long as somebody is inside one of its calls, so that a
// communicator can be aborted, and given back, while another thread waits in it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/call.hpp"
#include "nccl/device_side.hpp"
#include "tutti/communicator.hpp"

namespace tutti::nccl {

// What a communicator is before it is connected.
struct CommIdentity {
  Rank rank = 0;
  int size = 1;
  DevicePlace device;         // the caller's when it was made
  bool blocking = true;       // calls return when they are done
  std::string name;           // for texts; may be empty
  bool copy_engines = false;  // make calls that only move data, where they can
};

// Threading  any thread, one at a time for what makes or moves calls: callers lock in_use().
class Comm {
 public:
  enum class Phase { making, ready, failed, closed };

  explicit Comm(CommIdentity identity)
      : rank_(identity.rank),
        size_(identity.size),
        identity_(std::move(identity)),
        device_side_(identity_.device) {}
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Of a part of another communicator: the other's, until it is made.
  Rank rank() const { return rank_.load(std::memory_order_relaxed); }
  int size() const { return size_.load(std::memory_order_relaxed); }
  DeviceSide& device_side() { return device_side_; }
  const DeviceSide& device_side() const { return device_side_; }
  bool blocking() const { return identity_.blocking; }
  const CommIdentity& identity() const { return identity_; }  // as it was to be

  // ---- Making it ----

  using Maker = std::function<Result<Communicator>()>;

  // Here and now: what it became. All its ranks do so at the same time: they find out whether
  // kernels can make their calls in device memory.
  Status make(const Maker& maker);
  // The same of one whose group on devices is known, or null: nobody waits for anybody.
  Status make(const Maker& maker, std::shared_ptr<DeviceGroup> devices);
  // The thread on which it is made by somebody else, who has a share in it.
  void made_by(std::thread thread) { maker_ = std::move(thread); }
  // For makers that wait for others: aborted once abort() was called.
  Status bad_news() const;

  Phase phase() const { return phase_.load(std::memory_order_acquire); }
  // Ok while it can be used; or that it is not ready yet, or what it failed with.
  Status usable() const;
  // Ok, or the first failure that was not the fault of one call's arguments.
  Status failure() const;

  // ---- Using it ----

  std::mutex& in_use() { return in_use_; }
  // Requires  phase() == ready.
  Communicator& communicator() { return communicator_; }

  // Starts calls in host memory. Requires  in_use() is locked.
  Result<std::vector<Work>> start(std::span<const Call> calls);
  // Makes them. The same.
  Status run(std::span<const Call> calls);
  // Notes how a call ended; the same, with the communicator's name where it has one.
  Status note(const Status& status);

  // Ends running and later calls, and the making, on this rank. Threading: any thread.
  void abort();
  // Ends them on all ranks. Threading: any thread, also while another is in a call.
  Status revoke();
  // Says goodbye to the peers; nothing can be called afterwards. Blocking, also for calls that
  // other threads are in.
  Status close();

  // ---- Sums with a factor for each rank (ncclRedOpCreatePreMulSum) ----

  struct PremulSum {
    Reduction op = ReduceOp::sum;     // says the type, and the factor if that is known
    const void* factor_at = nullptr;  // memory that is read whenever a call is made; null: known
  };

  // The number of a new operation, from `first` on.
  int add_premul_sum(PremulSum made, int first);
  Status remove_premul_sum(int number);
  Result<PremulSum> premul_sum(int number) const;

 private:
  std::span<const Call> out_of_place(std::span<const Call> calls);
  Status connect(const Maker& maker);
  Status fail(const Status& why);
  void become_ready();

  std::thread maker_;
  std::atomic<Rank> rank_;
  std::atomic<int> size_;
  const CommIdentity identity_;
  std::atomic<Phase> phase_{Phase::making};
  std::atomic<bool> aborted_{false};
  std::mutex in_use_;
  Communicator communicator_;
  bool connected_ = false;                      // it is one that can be aborted; under mutex_
  std::vector<Call> replaced_;                  // calls whose inputs were copied away
  std::vector<std::vector<std::byte>> copies_;  // those inputs, until the next calls

  DeviceSide device_side_;

  mutable std::mutex mutex_;  // guards what follows
  Status failure_;
  std::map<int, PremulSum> premul_sums_;
};

}  // namespace tutti::nccl
