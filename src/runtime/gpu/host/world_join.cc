// world_join.cc: a device world whose ranks are of several processes: one rank, with the control
// memory of all others of its host mapped, and a carrier to those of other hosts. See
// GpuWorld::join() in world.hpp.
//
// Ranks say twice how they fare: with their memory, and once they have that of all others. So all
// come to the same end, whoever could not. Between hosts they say besides how they carry.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <type_traits>

#include "base/try.hpp"
#include "runtime/gpu/host/world.hpp"
#include "runtime/gpu/host/world_options.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kProcessBytes = 64;

// How long peers of other hosts are waited for, to be told that a rank leaves.
constexpr std::chrono::seconds kGoodbyeTime{5};

// What a rank says of its memory. Addresses are of use to ranks of the same process only.
struct Card {
  char process[kProcessBytes] = {};
  std::uintptr_t control = 0;
  std::uintptr_t device = 0;
  MemoryHandle handle = {};
  RegionDoor door;  // where peers talk to it of what it registers
};
static_assert(std::is_trivially_copyable_v<Card>);

// A card, or why there is none.
std::string text_of(const Result<Card>& card) {
  std::string text(1, card.ok() ? '+' : '-');
  if (!card.ok()) return text + card.status().message();
  text.append(reinterpret_cast<const char*>(&*card), sizeof(Card));
  return text;
}

// That of the first rank which has none is everybody's failure.
Result<std::vector<Card>> cards_of(const std::vector<std::string>& texts) {
  std::vector<Card> cards(texts.size());
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string& text = texts[rank];
    if (text.size() != 1 + sizeof(Card) || text.front() != '+')
      return Status(
          StatusCode::unsupported,
          fmt::format("rank {}: {}", rank, text.empty() ? "said nothing" : text.substr(1)),
          static_cast<int>(rank));
    std::memcpy(&cards[rank], text.data() + 1, sizeof(Card));
  }
  return cards;
}

}  // namespace

// The making of one.
class GpuWorld::Joining {
 public:
  Joining(const GpuSeat& seat, const GpuOptions& options) : seat_(seat), options_(options) {}

  Result<std::unique_ptr<GpuWorld>> run() {
    const auto texts = seat_.exchange(text_of(make_card()));
    TUTTI_TRY(texts);
    const auto cards = cards_of(*texts);
    TUTTI_TRY(cards);
    connect_hosts();
    Links links;
    Status connected = connect(*cards, links);
    if (has_hosts()) {
      const auto offers = tell(connected, kWell + offer());
      TUTTI_TRY(offers);
      connected = start_carrier(*offers, links);
    }
    if (connected.ok()) connected = world_->rank(seat_.rank).memory_.connect(links);
    if (connected.ok() && wants_regions_) connect_regions(*cards);
    const auto outcomes = tell(connected, how_with_regions());
    TUTTI_TRY(outcomes);
    TUTTI_TRY(keep_regions(*outcomes));
    return std::move(world_);
  }

 private:
  // How a rank fares, before what it says of it.
  static constexpr char kWell = '+';
  static constexpr char kNoRegions = '~';  // well, but nothing that is registered can be mapped
  static constexpr char kFailed = '-';

  // Says how this rank fares, by `well` where it does; what all say, where all fare well.
  Result<std::vector<std::string>> tell(const Status& mine, const std::string& well) {
    auto texts = seat_.exchange(mine.ok() ? well : kFailed + mine.message());
    TUTTI_TRY(texts);
    for (std::size_t rank = 0; rank < texts->size(); ++rank) {
      const std::string& text = (*texts)[rank];
      if (text.starts_with(kWell) || text.starts_with(kNoRegions)) continue;
      return Status(StatusCode::unsupported,
                    fmt::format("rank {}: {}", rank, text.substr(text.empty() ? 0 : 1)),
                    static_cast<int>(rank));
    }
    return texts;
  }

  // As a carrier.
  std::string offer() const { return world_->carrier_ ? world_->carrier_->offer() : std::string(); }

  std::string how_with_regions() const {
    return regions_.ok() ? std::string(1, kWell) : kNoRegions + regions_.message();
  }

  // All ranks plan by what all of them can do.
  Status keep_regions(const std::vector<std::string>& outcomes) {
    if (!wants_regions_) return Status();
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      if (outcomes[rank].front() != kNoRegions) continue;
      world_->regions_.reset();
      world_->why_no_regions_ =
          Status(StatusCode::unsupported, fmt::format("no memory is shared between processes: "
                                                      "rank {}: {}",
                                                      rank, outcomes[rank].substr(1)));
      auto plans = make_plans(false);
      TUTTI_TRY(plans);
      world_->plans_ = *std::move(plans);
      return Status();
    }
    return Status();
  }

  void connect_regions(const std::vector<Card>& cards) {
    if (!regions_.ok()) return;
    const Card& mine = cards[static_cast<std::size_t>(seat_.rank)];
    std::vector<RegionPeer> peers;
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
      if (static_cast<Rank>(rank) == seat_.rank) continue;
      // The rank itself says why.
      if (cards[rank].door.name.front() == 0) return;
      const bool same = std::memcmp(cards[rank].process, mine.process, kProcessBytes) == 0;
      peers.push_back({static_cast<Rank>(rank), cards[rank].door, same});
    }
    GpuRank& own = world_->rank(seat_.rank);
    regions_ = world_->regions_->connect(own.memory_, seat_.rank, peers, [&own] {
      const auto idle = own.is_idle();
      return idle.ok() && *idle;
    });
  }

  Result<Card> make_card() {
    TUTTI_TRY(check_options(options_));
    if (options_.channels < 1)
      return Status(StatusCode::invalid_argument, "ranks that join have a number of channels");
    if (seat_.device == nullptr) return Status(StatusCode::unsupported, "it has no device");
    const bool knows_hosts =
        seat_.hosts.empty() || seat_.hosts.size() == static_cast<std::size_t>(seat_.ranks);
    if (!knows_hosts || (has_hosts() && !seat_.connect))
      return Status(StatusCode::invalid_argument,
                    "ranks of several hosts say where each of them is, and how they connect");
    wants_regions_ = options_.direct && !has_hosts() && has_peers_here();
    options_.direct = wants_regions_;
    if (has_hosts()) {
      options_.flagged_bytes = 0;
      options_.lanes = 0;  // nobody carries them
      options_.channels = std::min(options_.channels, kCarriedChannelsMax);
    }
    TUTTI_TRY(make_world());
    RankMemory& memory = world_->rank(seat_.rank).memory_;
    Card card;
    if (has_peers_here()) {
      const auto handle = seat_.device->export_memory(memory.control());
      TUTTI_TRY(handle);
      card.handle = *handle;
    }
    if (wants_regions_) {
      auto regions = Regions::make(seat_.tell);
      regions_ = regions.status();
      if (regions.ok()) card.door = (*regions)->door();
      if (regions.ok()) world_->regions_ = *std::move(regions);
    } else if (has_hosts()) {
      world_->why_no_regions_ = Status(StatusCode::unsupported, "ranks are on several hosts");
    }
    std::memcpy(card.process, seat_.process.data(), std::min(kProcessBytes, seat_.process.size()));
    card.control = reinterpret_cast<std::uintptr_t>(memory.control());
    card.device = reinterpret_cast<std::uintptr_t>(seat_.device);
    return card;
  }

  Result<std::unique_ptr<Plans>> make_plans(bool direct) const {
    PlansOptions planning;
    planning.ranks = seat_.ranks;
    planning.ranks_per_device = seat_.ranks_per_device;
    planning.channels = options_.channels;
    planning.slot_bytes = options_.slot_bytes;
    planning.direct = direct;
    planning.algorithm = options_.algorithm;
    planning.topology = options_.topology;
    planning.hosts = seat_.hosts;
    return Plans::make(planning);
  }

  Status make_world() {
    auto plans = make_plans(wants_regions_);
    TUTTI_TRY(plans);
    const auto ranks = static_cast<std::size_t>(seat_.ranks);
    const ControlShape shape = shape_of(options_, ranks, options_.channels);
    auto memory = RankMemory::make(*seat_.device, shape, seat_.rank,
                                   wants_regions_ ? kSharedRegionCount : kRegionCount);
    TUTTI_TRY(memory);
    // Where all memory lies nobody asks: what is not registered goes through slots.
    world_.reset(new GpuWorld(options_, shape, 1, *std::move(plans)));
    world_->own_ = seat_.rank;
    world_->ranks_.resize(ranks);
    world_->ranks_[static_cast<std::size_t>(seat_.rank)].reset(
        new GpuRank(*world_, seat_.rank, *std::move(memory), options_.records));
    return Status();
  }

  bool has_hosts() const {
    return std::any_of(seat_.hosts.begin(), seat_.hosts.end(),
                       [&](int host) { return host != seat_.hosts.front(); });
  }
  bool has_peers_here() const {
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(seat_.ranks); ++rank)
      if (static_cast<Rank>(rank) != seat_.rank && is_here(rank)) return true;
    return false;
  }
  bool is_here(std::size_t rank) const {
    return seat_.hosts.empty() ||
           seat_.hosts[rank] == seat_.hosts[static_cast<std::size_t>(seat_.rank)];
  }

  Status connect(const std::vector<Card>& cards, Links& links) {
    std::vector<std::byte*> controls(cards.size(), nullptr);
    std::vector<Rank> elsewhere;
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
      const auto number = static_cast<Rank>(rank);
      if (!is_here(rank)) {
        elsewhere.push_back(number);
        continue;
      }
      const auto control = control_of(number, cards);
      if (!control.ok()) return control.status().with_context(fmt::format("of rank {}", rank));
      controls[rank] = *control;
    }
    links = direct_links(world_->shape_, seat_.rank, controls);
    return elsewhere.empty() ? Status() : make_carrier(elsewhere);
  }

  Status make_carrier(const std::vector<Rank>& peers) {
    if (!connected_.ok()) return connected_;
    const RankMemory& memory = world_->rank(seat_.rank).memory_;
    auto carrier =
        Carrier::make(*seat_.device, world_->shape_, peers, std::move(transport_), options_.network,
                      [&memory](std::uint64_t notice) {
                        static_cast<void>(memory.give_notice(static_cast<Why>(notice >> 32),
                                                             static_cast<std::uint32_t>(notice)));
                      });
    TUTTI_TRY(carrier);
    world_->carrier_ = *std::move(carrier);
    return Status();
  }

  Status start_carrier(std::vector<std::string> offers, Links& links) {
    for (std::string& offer : offers) offer.erase(0, 1);  // how the rank fares
    TUTTI_TRY(world_->carrier_->start(offers));
    world_->carrier_->link(links);
    return Status();
  }

  // All ranks do, or none: how one fares is told with the second word.
  void connect_hosts() {
    if (!has_hosts()) return;
    auto transport = seat_.connect();
    connected_ = transport.status().with_context("connecting the hosts");
    if (transport.ok()) transport_ = *std::move(transport);
  }

  Result<std::byte*> control_of(Rank rank, const std::vector<Card>& cards) {
    const Card& mine = cards[static_cast<std::size_t>(seat_.rank)];
    const Card& card = cards[static_cast<std::size_t>(rank)];
    auto* const here = reinterpret_cast<std::byte*>(card.control);  // NOLINT(*-int-to-ptr)
    if (rank == seat_.rank) return here;
    if (std::memcmp(card.process, mine.process, kProcessBytes) == 0) {
      auto* const device = reinterpret_cast<Device*>(card.device);  // NOLINT(*-int-to-ptr)
      TUTTI_TRY(seat_.device->reach(*device));
      world_->peers_.push_back({rank, here, false});
      return here;
    }
    const auto imported = seat_.device->import_memory(card.handle);
    TUTTI_TRY(imported);
    world_->peers_.push_back({rank, *imported, true});
    return *imported;
  }

  const GpuSeat& seat_;
  GpuOptions options_;
  std::unique_ptr<GpuWorld> world_;
  std::unique_ptr<Transport> transport_;  // between hosts
  Status connected_;
  bool wants_regions_ = false;  // the same on all ranks
  Status regions_;              // why this rank has none, though it wants them
};

Result<std::unique_ptr<GpuWorld>> GpuWorld::join(const GpuSeat& seat, const GpuOptions& options) {
  return Joining(seat, options).run();
}

Status GpuWorld::tell_ended(Rank peer) {
  if ((carrier_ && carrier_->has_peer(peer)) || has_left(peer)) return Status();
  if (regions_) regions_->lose(peer);
  return rank(own_).memory_.give_notice(Why::peer_failed, static_cast<std::uint32_t>(peer) + 1);
}

void GpuWorld::say_goodbye() {
  // What happens to memory that a peer does not let go of is its owner's affair: it was told when
  // it deregistered it, or does not ask.
  if (regions_)
    static_cast<void>(regions_->remove_all([this] { return !rank(own_).failure().ok(); }));
  for (const Peer& peer : peers_) static_cast<void>(rank(own_).memory_.say_goodbye(peer.control));
  if (carrier_) carrier_->leave(kGoodbyeTime);
}

bool GpuWorld::have_others_left() const {
  return (!carrier_ || carrier_->have_all_left()) &&
         std::all_of(peers_.begin(), peers_.end(),
                     [&](const Peer& peer) { return has_left(peer.rank); });
}

Status GpuWorld::explained(const Status& failure) const {
  const Status why = carrier_ ? carrier_->failure() : Status();
  if (why.ok() || why.culprit() != failure.culprit()) return failure;
  return Status(failure.code(), fmt::format("{} ({})", failure.message(), why.message()),
                failure.culprit());
}

bool GpuWorld::has_left(Rank peer) const {
  if (carrier_ && carrier_->has_peer(peer)) return carrier_->has_left(peer);
  const auto left = ranks_[static_cast<std::size_t>(own_)]->memory_.has_left(peer);
  return left.ok() && *left;
}

}  // namespace tutti::runtime::gpu
