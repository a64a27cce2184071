// own_regions.hpp: which memory of a rank its peers are to map, and which of them have: the part
// of regions.hpp that has no device, socket or thread.
//
// What is mapped is a whole allocation, a *region*; what a program registers lies in one, and
// several registrations of an allocation share its region. Where memory was mapped part by part, a
// region is the parts that a registration touches, and they are held as long as it is there. A
// region has a number, which is used again, and a generation, which is not: so a call that was
// written down for an older one of that number is known for what it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "runtime/gpu/host/device.hpp"

namespace tutti::runtime::gpu {

// Threading  one thread at a time.
class OwnRegions {
 public:
  using Registration = std::uint64_t;

  // Regions have the numbers from `first` up to `end`.
  OwnRegions(std::uint32_t first, std::uint32_t end, std::set<Rank> peers)
      : first_(first), regions_(end), peers_(std::move(peers)) {}

  struct Region {
    enum class Phase {
      unused,
      opening,  // peers map it
      open,     // all have
      refused,  // one of them cannot
      closing,  // peers let go of it
    };
    Phase phase = Phase::unused;
    std::uint32_t generation = 0;
    Allocation memory;
    std::shared_ptr<SharedParts> parts;  // null: it is in one piece
    std::size_t registrations = 0;
    std::set<Rank> awaited;  // peers
  };

  struct Added {
    Registration registration = 0;
    std::uint32_t region = 0;
    bool is_new = false;  // peers do not know of it yet
  };
  // Errors  invalid_argument: it is not within the allocation; unsupported: no number is left.
  Result<Added> add(const std::byte* memory, std::size_t bytes, const Allocation& allocation,
                    std::shared_ptr<SharedParts> parts = nullptr);
  // The region that nobody needs any more, and that is closing now. None: others need it still.
  // Errors  invalid_argument: there is no such registration.
  Result<std::optional<std::uint32_t>> remove(Registration registration);
  // All regions that are not unused. Ends all registrations; their regions are closing.
  std::vector<std::uint32_t> remove_all();

  // Where peers find this memory; none if it was not registered, in one piece.
  MemoryRef find(const std::byte* memory, std::size_t bytes) const;

  const Region& at(std::uint32_t number) const { return regions_[number]; }
  // What peers map of it; null: it is in one piece, or there is no such region (any more).
  std::shared_ptr<SharedParts> parts_of(std::uint32_t number, std::uint32_t generation);

  // A peer has mapped it. True: it is open from now on.
  bool heard_opened(Rank peer, std::uint32_t number, std::uint32_t generation);
  // It cannot. True: it is the first that says so.
  bool heard_refused(Rank peer, std::uint32_t number, std::uint32_t generation);
  // Peers have been told to let go of it.
  void told_to_close(std::uint32_t number);
  void heard_closed(Rank peer, std::uint32_t number, std::uint32_t generation);
  // Holds nothing any more, and says nothing.
  void lost(Rank peer);

 private:
  struct Registered {
    Registration number = 0;
    const std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::uint32_t region = 0;
  };
  std::optional<std::uint32_t> find_region(const Allocation& allocation) const;
  Region* named(std::uint32_t number, std::uint32_t generation);
  void end_if_closed(Region& region);

  const std::uint32_t first_;
  std::vector<Region> regions_;  // by number
  std::set<Rank> peers_;         // that are there
  std::list<Registered> registered_;
  Registration last_ = 0;
  std::set<std::uint32_t> told_;  // closing ones that peers have been told of
};

}  // namespace tutti::runtime::gpu
