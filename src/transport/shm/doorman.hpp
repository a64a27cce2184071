// doorman.hpp: who may come in at a rank's socket: judges the first message of a connection.
//
// A first message counts when it is meant for this very listener, proves the job's secret, comes
// from the process that the claimed rank is (the kernel says which process is at the other end),
// and is the first of its kind: what was overheard cannot be said again. Knows no socket.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/shm/wire.hpp"

namespace tutti::transport::shm {

class Doorman {
 public:
  // `addresses` are those of all ranks, by rank.
  Doorman(Rank self, std::uint64_t context, std::string secret, std::vector<Address> addresses)
      : self_(self),
        context_(context),
        secret_(std::move(secret)),
        addresses_(std::move(addresses)) {}

  // True once for each rank and kind of first message. `process` is at the other end.
  bool admits(const Message& first, pid_t process);

 private:
  Rank self_;
  std::uint64_t context_;
  std::string secret_;
  std::vector<Address> addresses_;
  std::set<std::pair<Rank, MessageKind>> met_;
};

}  // namespace tutti::transport::shm
