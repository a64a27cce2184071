// carrier.hpp: the proxy of a rank at work: its memory, its transport, and the thread that drives
// it while kernels run, because none of the program's does.
//
// What a kernel stores rings no bell, so that the thread has to look: it gives its core away while
// something moved lately, then sleeps between looks.
//
// Knows nothing of what the frames say; proxy.hpp does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/gpu/host/device.hpp"
#include "runtime/gpu/host/proxy.hpp"
#include "runtime/gpu/host/rank_memory.hpp"

namespace tutti::runtime::gpu {

// Threading  any thread. Lifetime  not longer than its device's.
class Carrier {
 public:
  // What a peer tells of a failure; on the thread of its own.
  using Hear = std::function<void(std::uint64_t notice)>;

  // `peers`: the ranks of other hosts. Blocking.
  // Errors  those of the proxy and of the device.
  static Result<std::unique_ptr<Carrier>> make(Device& device, const ControlShape& shape,
                                               std::span<const Rank> peers,
                                               std::unique_ptr<Transport> transport, Hear hear);
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  // Requires  no kernel uses the links any more. Blocking.
  ~Carrier();

  // Puts its links where those of its peers belong.
  void link(Links& links) const;

  // As kernels tell of a failure.
  void give_notice(std::uint64_t notice) const;

  // The kernels make no further calls. Blocking: until the peers have been told, or for so long.
  void leave(std::chrono::nanoseconds at_most);
  bool has_left(Rank peer) const;
  bool have_all_left() const;
  bool has_peer(Rank peer) const;
  // The first peer that is lost or made no sense; ok: none is.
  Status failure() const;

 private:
  Carrier(Device& device, std::unique_ptr<Transport> transport, Hear hear)
      : device_(device), transport_(std::move(transport)), hear_(std::move(hear)) {}

  Status allocate(const ControlShape& shape, std::span<const Rank> peers);
  void run();
  bool step();

  Device& device_;
  std::unique_ptr<Transport> transport_;
  const Hear hear_;
  std::vector<std::byte*> memory_;
  std::vector<ProxyLink> links_;
  std::unique_ptr<Proxy> proxy_;  // the thread's

  mutable std::mutex mutex_;  // of what stands below
  std::condition_variable changed_;
  bool leaving_ = false;
  bool ends_ = false;
  bool told_all_ = false;
  std::vector<bool> has_left_;  // by link
  Status failure_;

  std::thread thread_;
};

}  // namespace tutti::runtime::gpu
