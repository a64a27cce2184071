// counting_transport.hpp: how many bytes a rank sends and receives, as whole numbers, counted where
// frames leave and arrive. For tests that hold what a program moved against a formula.
//
// Bytes that peers load and store in each other's memory pass no counter. Therefore a counted
// communicator offers no memory for direct access, and all its data travels in frames. What a frame
// carries besides data (the record with which a rank enters a call; the words of ranks that lost
// one) is counted apart.
//
// Does not know what the bytes mean, nor the transport beneath.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/transport.hpp"

namespace tutti::kit {

using WrapTransport = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;

// What went one way. The difference of two looks is what was moved between them.
struct Traffic {
  std::uint64_t payload_bytes = 0;  // the data of calls
  std::uint64_t frames = 0;         // that carried it
  std::uint64_t other_bytes = 0;    // all that is not data of calls
  // Of what was sent: by the Collective that moved it. (Who receives knows only frames.)
  std::array<std::uint64_t, std::size(kAllCollectives)> sent_by = {};

  std::uint64_t by(Collective collective) const {
    return sent_by[static_cast<std::size_t>(collective)];
  }
  Traffic& operator+=(const Traffic& more);
  friend Traffic operator-(const Traffic& later, const Traffic& earlier);
};

// What one rank sent and received in one communicator.
//
// Threading  any thread may look; what a look finds is whole once no call is under way.
class TrafficCounter {
 public:
  TrafficCounter(Rank rank, int size);

  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  Traffic sent() const;
  Traffic sent(Rank to) const;
  Traffic received() const;
  Traffic received(Rank from) const;

 private:
  friend class CountingEndpoint;

  // Threading  one writer at a time.
  struct Direction {
    std::array<std::atomic<std::uint64_t>, std::size(kAllCollectives)> payload_bytes_by = {};
    std::atomic<std::uint64_t> payload_bytes = 0;
    std::atomic<std::uint64_t> frames = 0;
    std::atomic<std::uint64_t> other_bytes = 0;

    Traffic look() const;
  };
  struct Peer {
    Direction sent;
    Direction received;
    std::size_t calls = std::size(kAllCollectives);  // the Collective that data is sent for; none
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  Rank rank_;
  std::vector<Peer> peers_;
};

// `inner`, all frames of which are counted. Lifetime  of `counter`: it may outlive the transport.
// Requires  counter->rank() and size() are those of `inner`.
std::unique_ptr<Transport> make_counting_transport(std::unique_ptr<Transport> inner,
                                                   std::shared_ptr<TrafficCounter> counter);

// The counter of a transport, or of a communicator by its outermost one; null where it does not
// count. Lifetime: the communicator's.
const TrafficCounter* traffic_of(const Transport* transport);
inline const TrafficCounter* traffic_of(const Communicator& communicator) {
  return traffic_of(communicator.transport());
}

// The counters of all communicators that were made with its wrapper, also of those that are gone.
//
// Threading  any thread. Lifetime  the wrapper may outlive the book.
class TrafficBook {
 public:
  // For CommunicatorOptions::wrap_transport. `beneath` is put between the counter and the
  // transport: so that a throttled transport is counted, too.
  WrapTransport wrapper(WrapTransport beneath = nullptr) const;

  // In the order in which they were made; that of ranks which are threads is theirs to choose.
  std::vector<std::shared_ptr<const TrafficCounter>> counters() const;

  // What all ranks of this process have sent to others, in all communicators.
  Traffic sent() const;

 private:
  struct Pages {
    std::mutex mutex;
    std::vector<std::shared_ptr<const TrafficCounter>> counters;
  };

  std::shared_ptr<Pages> pages_ = std::make_shared<Pages>();
};

}  // namespace tutti::kit
