// attach.hpp: memory of other processes that the system copies from and to, wherever it lies
// (process_vm_readv, process_vm_writev): the one way to a peer's plain memory without a copy more.
//
// Whether the system allows it is tried when the ranks meet: each rank reads the token of every
// other one out of that one's memory, and writes on the board whether it found all of them. That is
// also how a process number is known to mean here what it means there.
//
// Who is written to must be able to put an end to it: a peer that does not know yet that a call has
// failed may be slow, and the memory is the program's again. So a writer says on the board whose
// memory it is about to write to, and then looks whether the owner has withdrawn it; an owner that
// withdraws says so, and then waits for those who are writing. Whoever looks second sees the other.
// Reading needs none of that.
//
// Does not know which memory is worth it, nor calls.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/cache_line.hpp"
#include "transport/shm/wire.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport::shm {

// A rank's part of the board. Zeros at first.
struct AttachSeat {
  struct alignas(base::kLineBytes) Said {
    std::atomic<std::uint32_t> verdict;    // of AttachVerdict
    std::atomic<std::uint32_t> withdrawn;  // 1: nobody writes to this rank's memory any more
  };
  struct alignas(base::kLineBytes) Doing {
    std::atomic<std::uint32_t> writes_to;  // the rank, plus one
  };
  Said said;
  Doing doing;
};

enum class AttachVerdict : std::uint32_t { none, impossible, possible };

// Threading  one thread.
class Attach {
 public:
  // Lifetime  of `seats`, by rank, and `addresses`: longer than this.
  Attach(AttachSeat* seats, Rank self, const std::vector<Address>& addresses)
      : seats_(seats), self_(self), addresses_(addresses) {}

  // Tries to reach all ranks, and tells them; not if it is not `wanted`.
  // Requires  every rank's token lies where its address says.
  void probe(bool wanted);

  // Whether this rank and that one reach each other. What they say of it may still come, and stays.
  bool reaches(Rank peer) const { return can(self_) && can(peer); }
  // The same of all ranks.
  bool all_reach();

  // Whether the system copies that memory of this process: most, but not what drivers map. Looks at
  // its ends.
  bool system_copies(const void* memory, std::size_t bytes);

  // Copies from, or to, the memory of `peer`. Requires reaches(peer).
  // Errors  peer_lost: its process is gone; aborted: it has withdrawn its memory; system_error: the
  //         system refused, as it does where no memory is.
  Status read(Rank peer, std::byte* to, std::uint64_t from, std::size_t bytes) const;
  Status write(Rank peer, std::uint64_t to, const std::byte* from, std::size_t bytes);

  // No peer writes to this rank's memory when this returns, or ever again, but for one that was
  // stopped (SIGSTOP) within the few instructions between its look and its copy, and goes on.
  // Blocking  for as long as a peer is copying and runs.
  void withdraw();

 private:
  bool can(Rank rank) const {
    return seats_[rank].said.verdict.load(std::memory_order_acquire) ==
           static_cast<std::uint32_t>(AttachVerdict::possible);
  }
  bool finds_token(const Address& address) const;
  Status explain(Rank peer, const char* call, std::size_t bytes) const;

  AttachSeat* seats_;
  Rank self_;
  const std::vector<Address>& addresses_;
  bool all_reach_ = false;
  // The last memory of which it was true: programs use the same few buffers again and again.
  std::array<std::pair<const void*, std::size_t>, 8> copied_ = {};
  std::size_t next_copied_ = 0;
};

}  // namespace tutti::transport::shm
