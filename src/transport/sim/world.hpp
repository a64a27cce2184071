// world.hpp: a simulated network among the ranks of one communicator, all in one thread: a virtual
// clock, a seed, and everything that may legally happen to frames and signals. Between two ranks
// frames keep their order; everything else is reordered at will, queues are small and full, room
// comes back late, connections take time.
//
// The same seed and the same calls give the same events, so a failure replays; the event hash says
// whether it did. When nothing is in flight and no rank moves, the ranks hang, and no clock on the
// wall is needed to know it. Does not know what the frames mean, nor who drives the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/transport.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

struct SimOptions {
  int size = 2;
  int channel_count = 1;
  std::size_t frame_bytes_max = 4096;
  std::uint64_t seed = 1;
  std::uint64_t delay_ns_min = 500;
  std::uint64_t delay_ns_max = 20'000;
  int stragglers_per_mille = 20;  // deliveries that take a hundred times as long
  int queue_frames_max = 4;       // each connection's capacity is drawn from 2..this
  int ranks_per_host = 1;         // ranks of one host can address each other's memory
  // How often a look at a connection delivers an event first, as if the peers ran meanwhile.
  // Without it, all that a rank sees between two steps of the world is one and the same moment.
  int meanwhile_per_mille = 0;
  // Frames that arrive damaged: with a flipped bit, twice, cut short, or before an earlier one. No
  // legal network does that; for what is meant to notice (transport/checked).
  int damage_per_mille = 0;
  // So many of them at most, then the network is repaired: among many ranks no call would be right.
  std::uint64_t damaged_max = ~std::uint64_t{0};
  // Channels from here on are left alone by damage.
  int damage_channels = 1 << 20;
};

enum class SimEventKind : std::uint8_t { connected, frame, room, signal, lost };

// Something that was delivered: from whom, to whom.
struct SimEvent {
  std::uint64_t time_ns = 0;
  SimEventKind kind{};
  Rank from = 0;
  Rank to = 0;
  int channel = 0;
  int group = 0;            // of ranks; `from` and `to` count in it
  std::uint32_t tag = 0;    // of a frame
  std::size_t bytes = 0;    // of a frame
  Signal signal{};          // which
  std::uint64_t value = 0;  // of a signal
};

// "12034 ns: frame 0 -> 3 on channel 1, tag 7, 4096 bytes".
std::string to_string(const SimEvent& event);

// A frame as it travels.
struct SimFrame {
  std::uint32_t tag = 0;
  std::vector<std::byte> storage;  // never empty, so that empty frames have an address too
  std::size_t bytes = 0;
};

// Threading  one thread. Lifetime  longer than its transports.
class SimWorld {
 public:
  explicit SimWorld(const SimOptions& options);
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  const SimOptions& options() const { return options_; }

  // Advances the clock to the next event and delivers it. False when nothing is in flight.
  bool step();

  // The event that was delivered last.
  const SimEvent& last_event() const { return last_; }

  // `told` hears of every event when it has been delivered.
  void observe(std::function<void(const SimEvent&)> told) { told_ = std::move(told); }

  // The ranks of the world for which something arrived, or became possible, since the last call; to
  // the others a look would show nothing new. Appended to `ranks`, each once.
  void take_woken(std::vector<Rank>& ranks);

  std::size_t in_flight() const { return due_.size(); }
  std::uint64_t now_ns() const { return now_ns_; }
  std::uint64_t event_count() const { return event_count_; }

  // Over all events delivered so far, contents of frames included.
  std::uint64_t event_hash() const { return hash_; }

  // A number below `bound` (which is at least 1) for the driver's own choices, from the seed but
  // independent of the network's.
  std::uint64_t random(std::uint64_t bound);

  // Some of the ranks as a group of their own, on connections of their own; its number, for
  // make_sim_transport. Group 0 is all ranks.
  int add_group(std::vector<Rank> members);

  // Ends a rank as kill -9 would: what was in flight from it is gone, and those who are connected
  // to it, or connect later, hear of it after a while; or, as if its host went dark, never.
  void kill(Rank rank, bool silently = false);
  bool killed(Rank rank) const { return fates_[static_cast<std::size_t>(rank)].killed; }
  bool killed_silently(Rank rank) const { return fates_[static_cast<std::size_t>(rank)].silent; }

  std::uint64_t damaged_frames() const { return damaged_; }
  // What is not released yet of allocate_shareable.
  std::size_t region_count() const { return regions_.size(); }

  // Around whatever `rank` does that may store to other ranks' memory: what it stores to memory
  // that was withdrawn is lost, as where ranks are processes.
  void begin_stores(Rank rank);
  void end_stores(Rank rank);

  // The word that `from` has told `to` and that has come; 0: none.
  std::uint64_t told(int group, Rank from, Rank to, int channel, Signal what) const;

 private:
  friend class SimTransport;
  friend class SimEndpoint;

  // One direction between two ranks of a group on one channel.
  struct Link {
    int group = 0;
    Rank from = 0;
    Rank to = 0;
    int channel = 0;
    int capacity = 1;
    int occupied = 0;    // frames in flight, delivered, or released without the sender knowing
    int travelling = 0;  // frames in flight
    bool connecting = false;
    bool connected = false;
    bool attended = false;  // the receiver has an endpoint
    bool called = false;    // something arrived while it had none
    std::uint64_t last_delivery_ns = 0;
    std::deque<SimFrame> delivered;
    std::uint64_t signals[kSignalCount] = {};
  };
  // A heap of these says what comes next; what it is stays where it lies.
  struct Due {
    std::uint64_t time_ns = 0;
    std::uint64_t sequence = 0;
    std::uint32_t pending = 0;
  };
  struct Pending {
    SimEvent event;
    Link* link = nullptr;
    SimFrame frame;
  };
  struct Fate {
    bool killed = false;
    bool silent = false;
    bool woken = false;
  };
  // A rank in a group.
  struct RankState {
    bool left = false;
    bool news = false;
    std::size_t queued_max = 0;                 // frames that its queues to peers hold
    Status status;                              // the first failure that this rank has heard of
    std::vector<bool> touches;                  // peers that it has an endpoint to
    std::vector<bool> lost;                     // peers whose death it has heard of
    std::vector<std::pair<int, Rank>> callers;  // channel and peer, of what nobody attends to
  };
  struct Group {
    std::vector<Rank> members;
    std::vector<RankState> ranks;
  };
  struct Region {
    Rank owner = 0;  // in the world
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    std::vector<Rank> mapped_by;  // in the world
    // What was withdrawn, if anything; and what it holds while a peer stores there.
    std::size_t withdrawn_begin = 0;
    std::size_t withdrawn_end = 0;
    std::vector<std::byte> kept;
  };

  static std::uint64_t link_index(int group, Rank from, Rank to, int channel);
  Link& link(int group, Rank from, Rank to, int channel);
  Group& group(int number) { return groups_[static_cast<std::size_t>(number)]; }
  RankState& state(int in, Rank rank) { return group(in).ranks[static_cast<std::size_t>(rank)]; }
  Rank in_world(int in, Rank rank) { return group(in).members[static_cast<std::size_t>(rank)]; }
  bool same_host(int in, Rank a, Rank b) {
    return in_world(in, a) / options_.ranks_per_host == in_world(in, b) / options_.ranks_per_host;
  }
  void touch(int in, Rank observer, Rank peer);
  void note_call(Link& on);
  void tell_news(int in, Rank rank);
  std::vector<std::byte> take_storage();
  void give_storage(std::vector<std::byte> storage);
  bool damage(SimFrame& frame);
  void withdraw(Rank owner, const std::byte* memory, std::size_t bytes);
  void map(std::uint32_t number, Rank by);
  static void keep(Region& region);
  void pass_time();
  void send(Link& on, SimFrame frame);
  std::uint64_t delay_ns();
  void schedule(SimEventKind kind, Link& on, std::uint64_t time_ns, SimEvent details = {},
                SimFrame frame = {});
  static bool later(const Due& a, const Due& b);
  bool frames_on_their_way(const Link& on) const { return on.travelling > 0; }
  void schedule_lost(int in, Rank dead, Rank observer);
  void deliver(Pending& pending);
  void mix(std::uint64_t value);

  SimOptions options_;
  std::uint64_t network_random_;
  std::uint64_t driver_random_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t event_count_ = 0;
  std::uint64_t hash_;
  std::vector<Due> due_;          // a heap, earliest first
  std::vector<Pending> pending_;  // in any order
  std::vector<std::uint32_t> free_pending_;
  std::vector<std::vector<std::byte>> spare_;  // storage of frames that were read
  std::unordered_map<std::uint64_t, Link> links_;
  std::vector<Rank> woken_;
  std::vector<Fate> fates_;
  std::vector<Group> groups_;
  std::uint64_t damaged_ = 0;
  std::map<std::uint32_t, Region> regions_;
  // By rank: regions that it maps and that are withdrawn, in part or whole. Each turn of a rank
  // asks.
  std::map<Rank, std::set<std::uint32_t>> withdrawn_from_;
  Rank storing_ = -1;  // between begin_stores() and end_stores()
  std::uint32_t next_region_ = 1;
  // Of regions that are released: a peer that was not told yet may still store there, harming
  // nobody.
  std::vector<std::unique_ptr<std::byte[]>> still_mapped_;
  SimEvent last_;
  std::function<void(const SimEvent&)> told_;
};

}  // namespace tutti::transport
