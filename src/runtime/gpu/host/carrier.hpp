// carrier.hpp: the proxy of a rank at work: its memory, its transport, and the thread that drives
// it while kernels run, because none of the program's does.
//
// Payloads lie in memory of the device where network cards can read and write that by themselves
// and the transport moves it for them (GPUDirect RDMA); elsewhere in page-locked memory of the
// host, where all that tells of them lies. Either end decides that for itself: what comes from a
// device may go into the host's memory, and the other way round. Both ends have to know only
// whether payloads are lent to the transport, or are copied into frames and out of them.
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
#include <string>
#include <thread>
#include <vector>

#include "runtime/gpu/host/device.hpp"
#include "runtime/gpu/host/proxy.hpp"
#include "runtime/gpu/host/rank_memory.hpp"

namespace tutti::runtime::gpu {

// What network cards are to do by themselves, where they can.
struct NetworkWishes {
  std::string why_no_reads;   // of the device's memory; empty: they shall
  std::string why_no_writes;  // the same
};

// Threading  any thread. Lifetime  not longer than its device's.
class Carrier {
 public:
  // What a peer tells of a failure; on the thread of its own.
  using Hear = std::function<void(std::uint64_t notice)>;

  // `peers`: the ranks of other hosts. Blocking.
  // Errors  those of the device.
  static Result<std::unique_ptr<Carrier>> make(Device& device, const ControlShape& shape,
                                               std::span<const Rank> peers,
                                               std::unique_ptr<Transport> transport,
                                               const NetworkWishes& wishes, Hear hear);
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  // Requires  no kernel uses the links any more. Blocking.
  ~Carrier();

  // What peers have to know of this one, and what is done with what they say, by rank: from then on
  // it carries. Blocking. Errors  those of the proxy, of the transport, and of the device;
  // corrupt_data: that is no offer.
  std::string offer() const;
  Status start(std::span<const std::string> offers);

  // Puts its links where those of its peers belong. Requires  it has started.
  void link(Links& links) const;

  // Where payloads lie, and why, for people.
  std::string describe() const;
  std::size_t device_bytes() const { return device_bytes_; }

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
  // Memory of a device or of the host, which a transport may share in.
  using Piece = std::shared_ptr<std::byte>;

  Carrier(Device& device, const ControlShape& shape, std::unique_ptr<Transport> transport,
          Hear hear)
      : device_(device), shape_(shape), transport_(std::move(transport)), hear_(std::move(hear)) {}

  Status allocate_control();
  void allocate_payloads(const NetworkWishes& wishes);
  Status lend_payloads(MemoryKind kind);
  void use_no_device(const std::string& why);
  Status lend_of_host(std::byte* payloads, const Piece& control, LentPlace& place);
  void run();
  void carry();
  bool step();

  Device& device_;
  const ControlShape shape_;
  std::unique_ptr<Transport> transport_;
  const Hear hear_;
  std::vector<Piece> control_;   // by link: a notice, its inbox, and its outbox
  std::vector<Piece> payloads_;  // by link: of those, in the device's memory
  std::vector<ProxyLink> links_;
  std::string why_not_sent_;  // from the device's memory; empty: it is
  std::string why_not_received_;
  std::size_t device_bytes_ = 0;
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
