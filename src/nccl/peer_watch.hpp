// peer_watch.hpp: hears when the process of a peer ends: a kernel that waits for a rank which is
// gone would wait until its deadline.
//
// Knows processes and their numbers only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::nccl {

// The process of a peer, by its number in this process's namespace.
struct PeerProcess {
  Rank rank = 0;
  int number = 0;
};

class PeerWatch {
 public:
  // Calls `lost` once for each peer whose process has ended, from a thread of its own.
  // Errors  system_error: there are no more threads or descriptors.
  static Result<std::unique_ptr<PeerWatch>> make(std::span<const PeerProcess> peers,
                                                 std::function<void(Rank)> lost);
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch();  // `lost` is not called any more afterwards

 private:
  explicit PeerWatch(std::function<void(Rank)> lost) : lost_(std::move(lost)) {}
  void work();

  const std::function<void(Rank)> lost_;
  base::Descriptor end_;
  std::vector<std::pair<Rank, base::Descriptor>> peers_;
  std::thread thread_;
};

}  // namespace tutti::nccl
