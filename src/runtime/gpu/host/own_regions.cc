// own_regions.cc: see own_regions.hpp.
#include "runtime/gpu/host/own_regions.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::runtime::gpu {

using Phase = OwnRegions::Region::Phase;

std::optional<std::uint32_t> OwnRegions::find_region(const Allocation& allocation) const {
  for (std::uint32_t number = first_; number < regions_.size(); ++number) {
    const Region& region = regions_[number];
    const bool lives = region.phase != Phase::unused && region.phase != Phase::closing;
    if (lives && region.memory == allocation) return number;
  }
  return std::nullopt;
}

Result<OwnRegions::Added> OwnRegions::add(const std::byte* memory, std::size_t bytes,
                                          const Allocation& allocation,
                                          std::shared_ptr<SharedParts> parts) {
  if (memory < allocation.begin || bytes == 0 ||
      bytes > allocation.bytes - static_cast<std::size_t>(memory - allocation.begin))
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} bytes at {} go beyond their allocation, which has {} bytes at {}",
                              bytes, static_cast<const void*>(memory), allocation.bytes,
                              static_cast<const void*>(allocation.begin)));
  Added added;
  const auto known = find_region(allocation);
  added.is_new = !known;
  if (known) {
    added.region = *known;
  } else {
    const auto unused =
        std::find_if(regions_.begin() + first_, regions_.end(),
                     [](const Region& region) { return region.phase == Phase::unused; });
    if (unused == regions_.end())
      return Status(StatusCode::unsupported,
                    fmt::format("{} allocations are mapped by peers already, and no more can be",
                                regions_.size() - first_));
    added.region = static_cast<std::uint32_t>(unused - regions_.begin());
    ++unused->generation;
    unused->memory = allocation;
    unused->parts = std::move(parts);
    unused->awaited = peers_;
    unused->phase = Phase::opening;
  }
  ++regions_[added.region].registrations;
  added.registration = ++last_;
  registered_.push_front({added.registration, memory, bytes, added.region});
  return added;
}

Result<std::optional<std::uint32_t>> OwnRegions::remove(Registration registration) {
  const auto found =
      std::find_if(registered_.begin(), registered_.end(),
                   [&](const Registered& each) { return each.number == registration; });
  if (found == registered_.end())
    return Status(StatusCode::invalid_argument, "this memory is not registered (any more)");
  const std::uint32_t number = found->region;
  registered_.erase(found);
  Region& region = regions_[number];
  if (--region.registrations > 0) return std::optional<std::uint32_t>();
  region.phase = Phase::closing;
  return std::optional(number);
}

std::vector<std::uint32_t> OwnRegions::remove_all() {
  registered_.clear();
  std::vector<std::uint32_t> closing;
  for (std::uint32_t number = first_; number < regions_.size(); ++number) {
    Region& region = regions_[number];
    if (region.phase == Phase::unused) continue;
    region.registrations = 0;
    region.phase = Phase::closing;
    closing.push_back(number);
  }
  return closing;
}

// The latest registration first: an older one may be of memory that its owner has given back.
MemoryRef OwnRegions::find(const std::byte* memory, std::size_t bytes) const {
  for (const Registered& each : registered_) {
    if (memory < each.begin || bytes > each.bytes ||
        static_cast<std::size_t>(memory - each.begin) > each.bytes - bytes)
      continue;
    const Region& region = regions_[each.region];
    return {each.region, region.generation,
            static_cast<std::uint64_t>(memory - region.memory.begin)};
  }
  return {};
}

OwnRegions::Region* OwnRegions::named(std::uint32_t number, std::uint32_t generation) {
  const bool known = number >= first_ && number < regions_.size() &&
                     regions_[number].phase != Phase::unused &&
                     regions_[number].generation == generation;
  return known ? &regions_[number] : nullptr;
}

std::shared_ptr<SharedParts> OwnRegions::parts_of(std::uint32_t number, std::uint32_t generation) {
  const Region* const region = named(number, generation);
  return region != nullptr && region->phase == Phase::opening ? region->parts : nullptr;
}

bool OwnRegions::heard_opened(Rank peer, std::uint32_t number, std::uint32_t generation) {
  Region* const region = named(number, generation);
  if (region == nullptr || region->phase != Phase::opening) return false;
  region->awaited.erase(peer);
  if (!region->awaited.empty()) return false;
  region->phase = Phase::open;
  return true;
}

bool OwnRegions::heard_refused(Rank, std::uint32_t number, std::uint32_t generation) {
  Region* const region = named(number, generation);
  if (region == nullptr || region->phase != Phase::opening) return false;
  region->phase = Phase::refused;
  return true;
}

void OwnRegions::told_to_close(std::uint32_t number) {
  if (!told_.insert(number).second) return;
  regions_[number].awaited = peers_;
  end_if_closed(regions_[number]);
}

void OwnRegions::heard_closed(Rank peer, std::uint32_t number, std::uint32_t generation) {
  Region* const region = named(number, generation);
  if (region == nullptr || told_.count(number) == 0) return;
  region->awaited.erase(peer);
  end_if_closed(*region);
}

void OwnRegions::end_if_closed(Region& region) {
  const auto number = static_cast<std::uint32_t>(&region - regions_.data());
  if (told_.count(number) == 0 || !region.awaited.empty()) return;
  told_.erase(number);
  region.phase = Phase::unused;
  region.memory = {};
  region.parts.reset();
}

// What it was to map it will never have: such a region does not open.
void OwnRegions::lost(Rank peer) {
  peers_.erase(peer);
  for (std::uint32_t number = first_; number < regions_.size(); ++number) {
    Region& region = regions_[number];
    if (region.phase == Phase::opening) region.phase = Phase::refused;
    region.awaited.erase(peer);
    end_if_closed(region);
  }
}

}  // namespace tutti::runtime::gpu
