// regions.hpp: memory of a rank that peers in other processes of its host map, so that kernels load
// and store it where it lies instead of going through slots.
//
// To register memory is a rank's own affair, at any time, and calls go on meanwhile. So a rank
// tells its peers what to map, and a gate in its device's memory opens when all of them have. Its
// kernels look at the gate when they enter a call, and tell peers where their buffer is, or that it
// cannot be addressed; both ends of every message then take the same way. To close it goes the
// other way round: the gate is closed, the own blocks that may have seen it open leave their calls,
// by which none of a peer's touches the memory any more, and then the peers let go of it.
//
// A thread of its own hears what the peers say, and maps what they ask for: the program's may be
// anywhere. Memory that was made part by part has no handle of the whole: peers ask its owner for
// one part after the other, so that no more than one descriptor is under way between two ranks.
//
// Knows nothing of calls.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/gpu/host/own_regions.hpp"
#include "runtime/gpu/host/rank_memory.hpp"
#include "runtime/gpu/host/region_line.hpp"

namespace tutti::runtime::gpu {

// How many allocations of a rank peers may have mapped at once, with those that are none.
inline constexpr std::uint32_t kSharedRegionCount = 1024;

// Parts that a region may have, and bytes: whoever says more is not believed.
inline constexpr std::uint32_t kRegionPartsMax = 1U << 20;
inline constexpr std::uint64_t kRegionBytesMax = std::uint64_t{1} << 46;

struct RegionPeer {
  Rank rank = 0;
  RegionDoor door;
  bool same_process = false;  // its addresses are ours
};

// Threading  any thread. Lifetime  not longer than the memory's and its device's.
class Regions {
 public:
  using Registration = OwnRegions::Registration;
  // What people should know; from any thread.
  using Tell = std::function<void(const std::string&)>;
  using Failed = std::function<bool()>;
  using Idle = std::function<bool()>;

  // Listens. Errors  system_error: there are no sockets.
  static Result<std::unique_ptr<Regions>> make(Tell tell);
  // Where peers call; they do once they know it.
  const RegionDoor& door() const { return door_; }
  // Calls those of lower rank; those of higher rank call. Once.
  // `is_idle` says whether no call of this rank is on its device, as far as it knows.
  // Errors  peer_lost: one is not where it said; system_error: no thread.
  Status connect(const RankMemory& memory, Rank rank, const std::vector<RegionPeer>& peers,
                 Idle is_idle);
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;
  // Lets go of all that is mapped of peers. Requires  no kernel of this rank is left. Blocking.
  ~Regions();

  // From now on peers map it, so that some time later it is loaded and stored where it lies.
  // Errors  unsupported: other processes cannot have this memory; invalid_argument: it is not in
  //         one allocation.
  Result<Registration> add(const std::byte* memory, std::size_t bytes);
  // `has_failed` says whether a call has. Blocking  until nothing of a peer's leads to it, as far
  // as peers are alive. Whatever calls peers wait in; with one of them a mapping may last until its
  // device is idle, and with it the memory's pages, not its address.
  // Errors  invalid_argument: there is no such registration; timeout: a call is under way that may
  //         use it, or a peer did not let go of it for a long time.
  Status remove(Registration registration, const Failed& has_failed);
  // The same for all, which is the end.
  Status remove_all(const Failed& has_failed);

  // To be held while a call is launched, and until is_idle() knows of it.
  [[nodiscard]] std::unique_lock<std::mutex> begin_launch() { return std::unique_lock(launching_); }

  // The process of this peer has ended: it holds nothing any more.
  void lose(Rank peer);

  // Where peers find it, once it is open; none: it is not registered.
  MemoryRef find(const std::byte* memory, std::size_t bytes) const;
  // Whether calls that begin now find it there.
  bool is_open(const std::byte* memory, std::size_t bytes) const;
  // A number that changes when find() may give something else.
  std::uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

 private:
  explicit Regions(Tell tell) : tell_(std::move(tell)) {}

  struct Peer {
    RegionPeer who;
    RegionLine line;
    bool has_ended = false;  // and that has been noted
    // The thread's alone: regions of which parts are missing here; the first is being asked for.
    std::deque<std::uint32_t> missing = {};
    // What it has asked for and cannot be mapped before the driver has forgotten what was there.
    std::vector<RegionNews> postponed = {};
  };
  // What is mapped of a peer, by its number there.
  struct Mapped {
    std::uint32_t generation = 0;
    std::byte* base = nullptr;  // null: parts are missing
    bool imported = false;
    std::unique_ptr<ForeignParts> parts = nullptr;  // of what is mapped part by part
    std::uint32_t count = 0;                        // of them
    std::uint32_t next = 0;                         // that is missing
    std::uint64_t bytes = 0;                        // of all
    std::uint64_t got = 0;
  };
  using Clock = std::chrono::steady_clock;

  Status connect_to(Peer& peer);
  void say_to(Peer& peer, const RegionNews& news, base::Descriptor descriptor = {});
  void say_to_all(const RegionNews& news);
  void wake();
  Status close(const std::vector<std::uint32_t>& regions, const Failed& has_failed);
  bool wait_for_visits(Clock::time_point deadline) const;
  bool nobody_visits() const;

  void run();
  void wait_for_news();
  void welcome();
  void take_stranger(RegionLine& stranger, const RegionNews& hello);
  bool hear_all();
  void handle(Peer& peer, HeardNews heard);
  void handle_answer(const Peer& peer, const RegionNews& news);
  void refuse(Rank peer, const RegionNews& news);
  void say(Peer& peer, RegionNews news, base::Descriptor descriptor = {});
  void map(Peer& peer, const RegionNews& news);
  std::optional<RegionNews> try_to_map(const Peer& peer, const RegionNews& news);
  Result<std::byte*> import(const RegionNews& news);
  bool unmap(Peer& peer, const RegionNews& news);
  Status check_new(const Peer& peer, const RegionNews& news) const;
  using MappedMap = std::map<std::pair<Rank, std::uint32_t>, Mapped>;
  void let_go(MappedMap::iterator mapped);
  void forget_if_idle();
  void map_postponed();
  void forget(Mapped& mapped);
  // Parts: regions_parts.cc.
  void begin_parts(Peer& peer, const RegionNews& news);
  void ask_for_part(Peer& peer);
  void give_part(Peer& peer, const RegionNews& news);
  void take_part(Peer& peer, HeardNews heard);
  Status add_part(Mapped& mapped, HeardNews heard);
  Status open_parts(const Peer& peer, std::uint32_t region, Mapped& mapped);
  void give_up_parts(Peer& peer, std::uint32_t region);
  void lose_parts(Peer& peer);

  const Tell tell_;
  RegionDoor door_;
  base::Descriptor listener_;
  base::Descriptor bell_;  // for the thread
  const RankMemory* memory_ = nullptr;
  Rank rank_ = 0;
  Idle is_idle_;
  std::atomic<std::uint64_t> changes_{1};
  std::mutex launching_;  // held by who begins a call, or has the driver forget

  mutable std::mutex mutex_;  // of what stands below
  std::condition_variable changed_;
  std::unique_ptr<OwnRegions> own_;
  std::vector<Peer> peers_;
  bool ends_ = false;

  // The thread's alone.
  MappedMap mapped_;
  std::vector<Mapped> let_go_;         // that the driver has to forget
  std::vector<RegionLine> strangers_;  // that have not said who they are

  std::thread thread_;
};

}  // namespace tutti::runtime::gpu
