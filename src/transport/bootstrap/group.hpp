// group.hpp: how the ranks of a job meet. Rank 0 listens at an address that everybody knows, the
// others connect, both sides prove that they know the job's secret, and then all can exchange
// small blobs (addresses, topologies, settings).
//
// A star through rank 0: simple, and quick enough for thousands of ranks. Callers see only join
// and exchange, so a tree can replace it. Messages after the join are not encrypted. This is the
// thin blocking driver (sockets, clock); the protocol itself is hub.hpp and spoke.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

struct BootstrapOptions {
  Rank rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  // host name or number where rank 0 listens
  int port = 0;
  std::string secret;                 // of the job; may be empty where address is loopback
  std::string job;                    // a name that must agree, at most 256 bytes; may be empty
  std::int64_t deadline_ms = 30'000;  // of the join, and of each exchange
  int listening_socket = -1;  // rank 0: use (and own) this listening socket, not address and port
};

// The ranks of a job that have met.
//
// Threading  one thread at a time.
class BootstrapGroup {
 public:
  virtual ~BootstrapGroup() = default;

  // An all-gather: every rank gives a blob and gets everybody's, by rank. All ranks must call it
  // equally often and with equal contexts.
  // Requires  mine.size() <= 64 KiB. Blocking  until all have called, or the deadline.
  // Errors    timeout and peer_lost name the ranks, mismatch of contexts; sticky.
  virtual Result<std::vector<std::string>> exchange(const std::string& mine,
                                                    std::uint64_t context = 0) = 0;
};

// Meets the other ranks. Blocking  until all `size` ranks have arrived, or the deadline.
// Errors  invalid_argument (bad options, another secret), mismatch (world sizes, two processes of
//         one rank), timeout (names who is missing), system_error.
Result<std::unique_ptr<BootstrapGroup>> join(const BootstrapOptions& options);

}  // namespace tutti::transport
