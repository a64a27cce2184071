// Lays groups of transfers out, and looks at what has come.
#include "exchange_trial.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace tutti::runtime::gpu {
namespace {

constexpr std::byte kUntouched{0xee};
constexpr std::size_t kAround = 32;  // bytes before a buffer, and behind it
// Of a region that holds everything, so that trials of one world share it.
constexpr std::uintptr_t kBase = 4096;

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

// Room behind what there is, `phase` bytes behind a multiple of a vector.
std::size_t take(std::vector<std::byte>& arena, std::size_t bytes, std::size_t phase) {
  const std::size_t begin =
      (arena.size() + kAround) / kVectorBytes * kVectorBytes + kVectorBytes + phase % kVectorBytes;
  arena.resize(begin + bytes + kAround, kUntouched);
  return begin;
}

}  // namespace

ExchangeTrial::ExchangeTrial(HostWorld& world, std::vector<Passing> passings)
    : shape_(world.shape()), passings_(std::move(passings)) {
  arenas_.resize(shape_.ranks);
  asked_.resize(shape_.ranks);
  is_offered_.resize(shape_.ranks);
  written_.resize(shape_.ranks);
  for (std::size_t i = 0; i < passings_.size(); ++i) {
    const Passing& passing = passings_[i];
    // Ends that lie alike and such that do not.
    const std::size_t phase = i % 3 == 0 ? 0 : 7 * i;
    places_.push_back({take(arenas_[idx(passing.from)], passing.bytes, phase),
                       take(arenas_[idx(passing.to)], passing.bytes, i % 2 == 0 ? phase : 3 * i)});
  }
  for (std::size_t i = 0; i < passings_.size(); ++i) {
    const auto& [from, to, bytes, offered] = passings_[i];
    asked_[idx(from)].push_back({true, to, arena(from) + places_[i].sent, bytes});
    is_offered_[idx(from)].push_back(offered);
    asked_[idx(to)].push_back({false, from, arena(to) + places_[i].received, bytes});
    is_offered_[idx(to)].push_back(false);
  }
  for (Rank rank = 0; rank < static_cast<Rank>(shape_.ranks); ++rank) {
    world.share(rank, reinterpret_cast<std::byte*>(kBase));  // NOLINT(*-int-to-ptr)
    fill(idx(rank));
  }
}

Job ExchangeTrial::job() {
  Job job;
  for (std::size_t rank = 0; rank < asked_.size(); ++rank) {
    job.exchanges.push_back(nullptr);
    const std::vector<GpuTransfer>& asked = asked_[rank];
    if (asked.empty()) continue;
    std::vector<MemoryRef> shared;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      MemoryRef memory;
      if (is_offered_[rank][i])
        memory = {1, generation_, reinterpret_cast<std::uintptr_t>(asked[i].memory) - kBase};
      shared.push_back(memory);
    }
    written_[rank] =
        write_exchange(asked, shared, {shape_.lanes, kLaneBytes, shape_.channels, timeout_ns_});
    job.exchanges.back() = reinterpret_cast<const DeviceExchange*>(written_[rank].data());
  }
  return job;
}

std::byte ExchangeTrial::value(std::size_t passing, std::size_t at) const {
  return static_cast<std::byte>((at * 31 + at / 251 + passing * 17 + 1) % 239);
}

void ExchangeTrial::fill(std::size_t rank) {
  for (std::size_t i = 0; i < passings_.size(); ++i) {
    const Passing& passing = passings_[i];
    if (idx(passing.to) == rank)
      std::fill_n(arenas_[rank].data() + places_[i].received, passing.bytes, kUntouched);
    if (idx(passing.from) == rank)
      for (std::size_t at = 0; at < passing.bytes; ++at)
        arenas_[rank][places_[i].sent + at] = value(i, at);
  }
}

std::string ExchangeTrial::judge() const {
  for (std::size_t i = 0; i < passings_.size(); ++i) {
    const auto& [from, to, bytes, offered] = passings_[i];
    const std::byte* const received = arenas_[idx(to)].data() + places_[i].received;
    for (std::size_t at = 0; at < bytes; ++at)
      if (received[at] != value(i, at))
        return fmt::format("transfer {} of {} bytes from rank {} to {}: byte {} is wrong", i, bytes,
                           from, to, at);
    if (const std::string wrong = beside(i, bytes); !wrong.empty()) return wrong;
  }
  return "";
}

std::string ExchangeTrial::beside(std::size_t passing, std::size_t bytes) const {
  const Passing& here = passings_[passing];
  const std::byte* const begin = arenas_[idx(here.to)].data() + places_[passing].received;
  const std::byte* const end = begin + here.bytes + kAround / 2;
  const auto untouched = [](std::byte value) { return value == kUntouched; };
  if (std::all_of(begin - kAround / 2, begin, untouched) &&
      std::all_of(begin + bytes, end, untouched))
    return "";
  return fmt::format("transfer {} from rank {} to {}: memory beside it was touched", passing,
                     here.from, here.to);
}

}  // namespace tutti::runtime::gpu
