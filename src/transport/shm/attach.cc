// attach.cc: the system calls behind attach.hpp.
#include "transport/shm/attach.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace tutti::transport::shm {
namespace {

std::byte* address_of(std::uint64_t place) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place));
}

// All of it: the system may copy a part of what it was asked for. False with errno set.
template <typename Transfer>
bool transfer_all(std::byte* here, std::uint64_t there, std::size_t bytes, Transfer transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const iovec local = {here + done, bytes - done};
    const iovec remote = {address_of(there + done), bytes - done};
    const ssize_t moved = transfer(&local, &remote);
    if (moved < 0 && errno == EINTR) continue;
    if (moved == 0) errno = EFAULT;
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

// Whether the process may be in a system call. One that is stopped is not: it stops on its way out.
bool runs(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return false;
  return std::string_view("TtZX").find(stat[name_end + 2]) == std::string_view::npos;
}

}  // namespace

void Attach::probe(bool wanted) {
  const bool all = wanted && std::all_of(addresses_.begin(), addresses_.end(),
                                         [this](const Address& a) { return finds_token(a); });
  const AttachVerdict verdict = all ? AttachVerdict::possible : AttachVerdict::impossible;
  seats_[self_].said.verdict.store(static_cast<std::uint32_t>(verdict), std::memory_order_release);
}

bool Attach::finds_token(const Address& address) const {
  const Address& mine = addresses_[static_cast<std::size_t>(self_)];
  if (address.processes != mine.processes || mine.processes == "-") return false;
  std::string found(address.token.size(), '\0');
  const bool read = transfer_all(reinterpret_cast<std::byte*>(found.data()), address.token_at,
                                 found.size(), [&](const iovec* local, const iovec* remote) {
                                   return process_vm_readv(address.pid, local, 1, remote, 1, 0);
                                 });
  return read && found == address.token;
}

bool Attach::all_reach() {
  for (Rank rank = 0; !all_reach_; ++rank) {
    if (rank == static_cast<Rank>(addresses_.size()))
      all_reach_ = true;
    else if (!can(rank))
      return false;
  }
  return true;
}

bool Attach::system_copies(const void* memory, std::size_t bytes) {
  const std::pair<const void*, std::size_t> asked(memory, bytes);
  if (std::find(copied_.begin(), copied_.end(), asked) != copied_.end()) return true;
  std::array<std::byte, 2> ends;
  auto* const first = static_cast<std::byte*>(const_cast<void*>(memory));
  const iovec local = {ends.data(), ends.size()};
  const iovec remote[] = {{first, 1}, {first + bytes - 1, 1}};
  if (process_vm_readv(getpid(), &local, 1, remote, std::size(remote), 0) != std::ssize(ends))
    return false;
  copied_[next_copied_] = asked;
  next_copied_ = (next_copied_ + 1) % copied_.size();
  return true;
}

Status Attach::read(Rank peer, std::byte* to, std::uint64_t from, std::size_t bytes) const {
  const pid_t process = addresses_[static_cast<std::size_t>(peer)].pid;
  const bool done =
      transfer_all(to, from, bytes, [process](const iovec* local, const iovec* remote) {
        return process_vm_readv(process, local, 1, remote, 1, 0);
      });
  return done ? Status() : explain(peer, "process_vm_readv", bytes);
}

Status Attach::write(Rank peer, std::uint64_t to, const std::byte* from, std::size_t bytes) {
  std::atomic<std::uint32_t>& writes_to = seats_[self_].doing.writes_to;
  writes_to.store(static_cast<std::uint32_t>(peer) + 1, std::memory_order_seq_cst);
  if (seats_[peer].said.withdrawn.load(std::memory_order_seq_cst) != 0) {
    writes_to.store(0, std::memory_order_release);
    return Status(StatusCode::aborted,
                  fmt::format("rank {} has withdrawn the memory of a call that failed", peer),
                  peer);
  }
  const pid_t process = addresses_[static_cast<std::size_t>(peer)].pid;
  const bool done = transfer_all(const_cast<std::byte*>(from), to, bytes,
                                 [process](const iovec* local, const iovec* remote) {
                                   return process_vm_writev(process, local, 1, remote, 1, 0);
                                 });
  const Status status = done ? Status() : explain(peer, "process_vm_writev", bytes);
  writes_to.store(0, std::memory_order_release);
  return status;
}

// What errno means.
Status Attach::explain(Rank peer, const char* call, std::size_t bytes) const {
  const int error = errno;
  if (error == ESRCH)
    return Status(StatusCode::peer_lost,
                  fmt::format("rank {} (pid {}) died without closing its communicator", peer,
                              addresses_[static_cast<std::size_t>(peer)].pid),
                  peer);
  return Status(StatusCode::system_error,
                fmt::format("{} of {} bytes of rank {}: {}; TUTTI_ATTACH=0 does without it", call,
                            bytes, peer, std::strerror(error)));
}

void Attach::withdraw() {
  seats_[self_].said.withdrawn.store(1, std::memory_order_seq_cst);
  const auto writes_here = [this](Rank rank) {
    return seats_[rank].doing.writes_to.load(std::memory_order_seq_cst) ==
           static_cast<std::uint32_t>(self_) + 1;
  };
  for (Rank rank = 0; rank < static_cast<Rank>(addresses_.size()); ++rank)
    while (writes_here(rank) && runs(addresses_[static_cast<std::size_t>(rank)].pid)) sched_yield();
}

}  // namespace tutti::transport::shm
