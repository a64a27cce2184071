// peer_watch.cc: see peer_watch.hpp.
#include "nccl/peer_watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/try.hpp"
#include "runtime/own_thread.hpp"

namespace tutti::nccl {
namespace {

Status failure(const char* what) {
  return Status(StatusCode::system_error, std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<PeerWatch>> PeerWatch::make(std::span<const PeerProcess> peers,
                                                   std::function<void(Rank)> lost) {
  std::unique_ptr<PeerWatch> watch(new PeerWatch(std::move(lost)));
  watch->end_ = base::Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!watch->end_.open()) return failure("eventfd");
  for (const PeerProcess& peer : peers) {
    base::Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, peer.number, 0)));
    if (!process.open()) return failure("pidfd_open");
    watch->peers_.emplace_back(peer.rank, std::move(process));
  }
  auto thread = runtime::begin_own_thread("tutti-peers", [self = watch.get()] { self->work(); });
  TUTTI_TRY(thread);
  watch->thread_ = *std::move(thread);
  return watch;
}

PeerWatch::~PeerWatch() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  static_cast<void>(!write(end_.number(), &one, sizeof one));
  thread_.join();
}

void PeerWatch::work() {
  while (true) {
    std::vector<pollfd> polled{{end_.number(), POLLIN, 0}};
    for (const auto& [rank, process] : peers_) polled.push_back({process.number(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled.front().revents != 0) return;
    for (std::size_t i = peers_.size(); i-- > 0;) {
      if (polled[i + 1].revents == 0) continue;
      lost_(peers_[i].first);
      peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

}  // namespace tutti::nccl
