// rank_memory.cc: see rank_memory.hpp. One piece of memory: control memory, farewells, states of
// peers and lanes, sequences, tables of pointers, and the view of the world that points at all of
// it.
#include "runtime/gpu/host/rank_memory.hpp"

#include <atomic>
#include <utility>

#include "base/try.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kAlignment = 128;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Where the parts begin.
struct Layout {
  Layout(const ControlShape& shape, std::uint32_t regions)
      : farewells(aligned(shape.bytes())),
        peers(aligned(farewells + shape.ranks * sizeof(std::uint64_t))),
        lanes(aligned(peers + shape.streams() * sizeof(PeerState))),
        sequences(aligned(lanes + 2 * shape.lane_states() * sizeof(LaneState))),
        inboxes(aligned(sequences + shape.channels * sizeof(std::uint64_t))),
        outboxes(aligned(inboxes + shape.ranks * sizeof(std::byte*))),
        inbox_payloads(aligned(outboxes + shape.ranks * sizeof(std::byte*))),
        outbox_payloads(aligned(inbox_payloads + shape.ranks * sizeof(std::byte*))),
        notices(aligned(outbox_payloads + shape.ranks * sizeof(std::byte*))),
        bases(aligned(notices + shape.ranks * sizeof(std::uint64_t*))),
        gates(aligned(bases + std::size_t{shape.ranks} * regions * sizeof(std::uint64_t))),
        visits(aligned(gates + regions * sizeof(std::uint64_t))),
        world(aligned(visits + shape.channels * sizeof(std::uint64_t))),
        bytes(aligned(world + sizeof(DeviceWorld))) {}

  std::size_t farewells;
  std::size_t peers;
  std::size_t lanes;
  std::size_t sequences;
  std::size_t inboxes;
  std::size_t outboxes;
  std::size_t inbox_payloads;
  std::size_t outbox_payloads;
  std::size_t notices;
  std::size_t bases;
  std::size_t gates;
  std::size_t visits;
  std::size_t world;
  std::size_t bytes;
};

}  // namespace

Links direct_links(const ControlShape& shape, Rank rank, std::span<std::byte* const> controls) {
  const auto place = static_cast<std::uint32_t>(rank);
  Links links;
  for (auto* const table :
       {&links.inboxes, &links.outboxes, &links.inbox_payloads, &links.outbox_payloads})
    table->resize(controls.size());
  links.notices.resize(controls.size());
  for (std::uint32_t peer = 0; peer < controls.size(); ++peer) {
    if (controls[peer] == nullptr) continue;
    links.inboxes[peer] = controls[place] + shape.inbox_at(peer);
    links.outboxes[peer] = controls[peer] + shape.inbox_at(place);
    links.inbox_payloads[peer] = links.inboxes[peer] + shape.payloads_at();
    links.outbox_payloads[peer] = links.outboxes[peer] + shape.payloads_at();
    links.notices[peer] = reinterpret_cast<std::uint64_t*>(controls[peer]);
  }
  return links;
}

Result<RankMemory> RankMemory::make(Device& device, const ControlShape& shape, Rank rank,
                                    std::uint32_t regions) {
  RankMemory made(device, shape, rank, regions);
  made.bytes_ = Layout(shape, regions).bytes;
  const auto memory = device.allocate(made.bytes_);
  TUTTI_TRY(memory);
  made.memory_ = *memory;
  TUTTI_TRY(device.zero(made.memory_, made.bytes_));
  const auto error = device.allocate_shared(sizeof(ErrorRecord));
  TUTTI_TRY(error);
  made.error_ = reinterpret_cast<ErrorRecord*>(*error);
  return made;
}

RankMemory::RankMemory(RankMemory&& other) noexcept
    : device_(other.device_),
      shape_(other.shape_),
      rank_(other.rank_),
      regions_(other.regions_),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      world_(other.world_),
      error_(std::exchange(other.error_, nullptr)) {}

RankMemory::~RankMemory() {
  if (memory_ != nullptr) device_->deallocate(memory_);
  if (error_ != nullptr) device_->deallocate_shared(reinterpret_cast<std::byte*>(error_));
}

Status RankMemory::connect(const Links& links) {
  const Layout layout(shape_, regions_);
  const auto copy_in = [&](std::size_t at, const auto& table) {
    return device_->copy_in(memory_ + at, table.data(), table.size() * sizeof(table[0]));
  };
  std::vector<std::uint64_t> bases(std::size_t{shape_.ranks} * regions_, 0);
  for (std::size_t rank = 0; rank < shape_.ranks; ++rank)
    bases[rank * regions_ + kEverywhere] = kEverywhereBase;
  DeviceWorld world;
  world.shape = shape_;
  world.rank = static_cast<std::uint32_t>(rank_);
  world.regions = regions_;
  world.inboxes = reinterpret_cast<std::byte* const*>(memory_ + layout.inboxes);
  world.outboxes = reinterpret_cast<std::byte* const*>(memory_ + layout.outboxes);
  world.inbox_payloads = reinterpret_cast<std::byte* const*>(memory_ + layout.inbox_payloads);
  world.outbox_payloads = reinterpret_cast<std::byte* const*>(memory_ + layout.outbox_payloads);
  world.notices = reinterpret_cast<std::uint64_t* const*>(memory_ + layout.notices);
  world.region_bases = reinterpret_cast<const std::uint64_t*>(memory_ + layout.bases);
  world.peers = reinterpret_cast<PeerState*>(memory_ + layout.peers);
  world.lanes = reinterpret_cast<LaneState*>(memory_ + layout.lanes);
  world.sequences = reinterpret_cast<std::uint64_t*>(memory_ + layout.sequences);
  world.error = error_;
  if (regions_ > kRegionCount) {
    world.gates = reinterpret_cast<const std::uint64_t*>(memory_ + layout.gates);
    world.visits = reinterpret_cast<std::uint64_t*>(memory_ + layout.visits);
  }
  TUTTI_TRY(copy_in(layout.inboxes, links.inboxes));
  TUTTI_TRY(copy_in(layout.outboxes, links.outboxes));
  TUTTI_TRY(copy_in(layout.inbox_payloads, links.inbox_payloads));
  TUTTI_TRY(copy_in(layout.outbox_payloads, links.outbox_payloads));
  TUTTI_TRY(copy_in(layout.notices, links.notices));
  TUTTI_TRY(copy_in(layout.bases, bases));
  TUTTI_TRY(device_->copy_in(memory_ + layout.world, &world, sizeof world));
  world_ = reinterpret_cast<const DeviceWorld*>(memory_ + layout.world);
  return Status();
}

ErrorRecord RankMemory::error() const {
  ErrorRecord known;
  if (std::atomic_ref(error_->ready).load(std::memory_order_acquire) == 0) return known;
  // Not what later failures may still touch: `claimed`.
  static_cast<Failure&>(known) = *error_;
  return known;
}

// A word at once: kernels may be looking at it.
Status RankMemory::set_region(Rank peer, std::uint32_t region, const std::byte* base) const {
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(base));
  const std::size_t index = static_cast<std::size_t>(peer) * regions_ + region;
  std::byte* const at = memory_ + Layout(shape_, regions_).bases + index * sizeof address;
  return device_->copy_in(at, &address, sizeof address);
}

Status RankMemory::set_gate(std::uint32_t region, std::uint32_t generation) const {
  const std::uint64_t word = generation;
  std::byte* const at = memory_ + Layout(shape_, regions_).gates + region * sizeof word;
  return device_->copy_in(at, &word, sizeof word);
}

Result<std::uint64_t> RankMemory::visits(std::uint32_t channel) const {
  std::uint64_t word = 0;
  const std::byte* const at = memory_ + Layout(shape_, regions_).visits + channel * sizeof word;
  TUTTI_TRY(device_->copy_out(&word, at, sizeof word));
  return word;
}

Status RankMemory::give_notice(Why why, std::uint32_t culprit) const {
  return give_notice_to(memory_, why, culprit);
}

Status RankMemory::give_notice_to(std::byte* control, Why why, std::uint32_t culprit) const {
  const std::uint64_t notice = make_notice(why, culprit);
  return device_->copy_in(control, &notice, sizeof notice);
}

Status RankMemory::say_goodbye(std::byte* control) const {
  const std::uint64_t left = 1;
  const std::size_t at =
      Layout(shape_, regions_).farewells + static_cast<std::size_t>(rank_) * sizeof left;
  return device_->copy_in(control + at, &left, sizeof left);
}

Result<bool> RankMemory::has_left(Rank peer) const {
  std::uint64_t left = 0;
  const std::size_t at =
      Layout(shape_, regions_).farewells + static_cast<std::size_t>(peer) * sizeof left;
  TUTTI_TRY(device_->copy_out(&left, memory_ + at, sizeof left));
  return left != 0;
}

}  // namespace tutti::runtime::gpu
