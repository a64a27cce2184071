// group.hpp: how the ranks of a job meet. Each finds its parent in a tree, by itself on its own
// host or with the help of rank 0, which listens at an address that everybody knows; both sides of
// every connection prove that they know the job's secret; and then all can exchange small blobs
// (addresses, topologies, settings).
//
// A rank has O(log size) connections and sends O(log size) messages for a join or an exchange of
// small blobs. Messages after the join are not encrypted. This is the thin blocking driver
// (sockets, clock); the protocol itself is meeting.hpp.
#pragma once

#include <cstdint>
#include <functional>
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
  bool local_names = true;    // false: find ranks of the same host as those of others are found

  // Asked at least every 20 ms while a join or an exchange waits. An error ends it, and all
  // connected ranks hear of it. May be empty.
  std::function<Status()> bad_news;
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
  // Errors    timeout and peer_lost name the ranks, mismatch of contexts, what bad_news says;
  //           sticky.
  virtual Result<std::vector<std::string>> exchange(const std::string& mine,
                                                    std::uint64_t context = 0) = 0;

  // What the join took, for those who watch it.
  struct Counts {
    std::size_t turned_away = 0;    // connections that did not prove to be of this job
    std::size_t introductions = 0;  // ranks that asked this one (rank 0) for a parent
    std::size_t connections = 0;    // to other ranks
  };
  virtual Counts counts() const = 0;
};

// Meets the other ranks. Blocking  until all `size` ranks have arrived, or the deadline.
// Errors  invalid_argument (bad options, another secret), mismatch (world sizes, two processes of
//         one rank), timeout (names who is missing), peer_lost, system_error, what bad_news says.
Result<std::unique_ptr<BootstrapGroup>> join(const BootstrapOptions& options);

}  // namespace tutti::transport
