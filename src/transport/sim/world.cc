// world.cc: see world.hpp.
#include "transport/sim/world.hpp"

#include <array>
#include <functional>

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.hpp"
#include "base/crc32c.hpp"

namespace tutti::transport {
namespace {

constexpr std::uint64_t kHashStart = 0xcbf29ce484222325;
constexpr std::uint64_t kHashPrime = 0x100000001b3;
constexpr int kReleased = 0x5a;
constexpr std::size_t kSpareMax = 256;  // storages kept

// SplitMix64: small, and the same everywhere.
std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

const char* signal_name(Signal signal) {
  static constexpr std::array<const char*, kSignalCount> kNames = {"offered", "produced", "granted",
                                                                   "taken", "failed"};
  return kNames[static_cast<std::size_t>(signal)];
}

}  // namespace

std::string to_string(const SimEvent& event) {
  const std::string place = fmt::format("{} ns: {{}} {} -> {} on channel {}", event.time_ns,
                                        event.from, event.to, event.channel);
  const auto named = [&](const char* name) { return fmt::format(fmt::runtime(place), name); };
  switch (event.kind) {
    case SimEventKind::connected:
      return named("connection");
    case SimEventKind::frame:
      return named("frame") + fmt::format(", tag {}, {} bytes", event.tag, event.bytes);
    case SimEventKind::room:
      return named("room");
    case SimEventKind::signal:
      return named(signal_name(event.signal)) + fmt::format(", {}", event.value);
    case SimEventKind::lost:
      return fmt::format("{} ns: rank {} hears that rank {} died", event.time_ns, event.to,
                         event.from);
  }
  return "?";
}

SimWorld::SimWorld(const SimOptions& options)
    : options_(options),
      network_random_(options.seed),
      driver_random_(options.seed ^ 0x5851f42d4c957f2d),
      hash_(kHashStart),
      fates_(static_cast<std::size_t>(options.size)) {
  TUTTI_ASSERT(options.size >= 1 && options.channel_count >= 1 && options.queue_frames_max >= 2 &&
                   options.ranks_per_host >= 1 && options.delay_ns_min <= options.delay_ns_max,
               "simulation options make no sense");
  std::vector<Rank> all;
  for (Rank rank = 0; rank < options.size; ++rank) all.push_back(rank);
  add_group(std::move(all));
}

int SimWorld::add_group(std::vector<Rank> members) {
  Group made;
  made.ranks.resize(members.size());
  for (RankState& rank : made.ranks) {
    rank.touches.resize(members.size());
    rank.lost.resize(members.size());
  }
  made.members = std::move(members);
  groups_.push_back(std::move(made));
  return static_cast<int>(groups_.size()) - 1;
}

SimWorld::~SimWorld() = default;

std::uint64_t SimWorld::random(std::uint64_t bound) { return next_random(driver_random_) % bound; }

std::uint64_t SimWorld::delay_ns() {
  const std::uint64_t range = options_.delay_ns_max - options_.delay_ns_min + 1;
  const std::uint64_t delay = options_.delay_ns_min + next_random(network_random_) % range;
  const bool straggler =
      static_cast<int>(next_random(network_random_) % 1000) < options_.stragglers_per_mille;
  return straggler ? delay * 100 : delay;
}

std::uint64_t SimWorld::link_index(int group, Rank from, Rank to, int channel) {
  const auto wide = [](int value) { return static_cast<std::uint64_t>(value); };
  return wide(group) << 48 | wide(from) << 28 | wide(to) << 8 | wide(channel);
}

SimWorld::Link& SimWorld::link(int group, Rank from, Rank to, int channel) {
  const std::uint64_t index = link_index(group, from, to, channel);
  const auto [place, fresh] = links_.try_emplace(index);
  Link& found = place->second;
  if (fresh) {
    found.group = group;
    found.from = from;
    found.to = to;
    found.channel = channel;
    // Drawn from the place, not from the stream of delays: who looks first must not matter.
    std::uint64_t seed = options_.seed * 0x9e3779b97f4a7c15 + index;
    // A queue of one frame is no legal queue: see collectives/lowered.hpp.
    found.capacity = 2 + static_cast<int>(next_random(seed) % static_cast<std::uint64_t>(
                                                                  options_.queue_frames_max - 1));
    state(group, from).queued_max += static_cast<std::size_t>(found.capacity);
  }
  return found;
}

void SimWorld::tell_news(int in, Rank rank) {
  state(in, rank).news = true;
  const Rank who = in_world(in, rank);
  if (!std::exchange(fates_[static_cast<std::size_t>(who)].woken, true)) woken_.push_back(who);
}

void SimWorld::take_woken(std::vector<Rank>& ranks) {
  for (const Rank rank : woken_) fates_[static_cast<std::size_t>(rank)].woken = false;
  ranks.insert(ranks.end(), woken_.begin(), woken_.end());
  woken_.clear();
}

std::vector<std::byte> SimWorld::take_storage() {
  if (spare_.empty()) return {};
  std::vector<std::byte> storage = std::move(spare_.back());
  spare_.pop_back();
  return storage;
}

void SimWorld::give_storage(std::vector<std::byte> storage) {
  // Whoever still looks at what it has released is to see it.
  std::fill(storage.begin(), storage.end(), static_cast<std::byte>(kReleased));
  if (spare_.size() < kSpareMax && storage.capacity() > 0) spare_.push_back(std::move(storage));
}

void SimWorld::touch(int in, Rank observer, Rank peer) {
  RankState& mine = state(in, observer);
  if (mine.touches[static_cast<std::size_t>(peer)]) return;
  mine.touches[static_cast<std::size_t>(peer)] = true;
  if (killed(in_world(in, peer))) schedule_lost(in, peer, observer);
}

// Something arrived where its receiver has no endpoint yet.
void SimWorld::note_call(Link& on) {
  if (on.attended || std::exchange(on.called, true)) return;
  state(on.group, on.to).callers.emplace_back(on.channel, on.from);
}

void SimWorld::send(Link& on, SimFrame frame) {
  on.occupied += 1;
  on.travelling += 1;
  on.last_delivery_ns = std::max(on.last_delivery_ns + 1, now_ns_ + delay_ns());
  const bool may_suffer = options_.damage_per_mille > 0 && damaged_ < options_.damaged_max &&
                          on.channel < options_.damage_channels;
  if (may_suffer && damage(frame)) {
    // It comes twice.
    on.occupied += 1;
    on.travelling += 1;
    SimEvent again;
    again.tag = frame.tag;
    again.bytes = frame.bytes;
    schedule(SimEventKind::frame, on, on.last_delivery_ns++, again, SimFrame(frame));
  }
  SimEvent details;
  details.tag = frame.tag;
  details.bytes = frame.bytes;
  schedule(SimEventKind::frame, on, on.last_delivery_ns, details, std::move(frame));
}

// Now and then; true when the frame is to come twice.
bool SimWorld::damage(SimFrame& frame) {
  const auto draw = [this](std::uint64_t below) { return next_random(network_random_) % below; };
  if (static_cast<int>(draw(1000)) >= options_.damage_per_mille) return false;
  ++damaged_;
  switch (draw(4)) {
    case 0:
      return true;
    case 1:
      if (frame.bytes == 0) return true;
      frame.bytes = draw(frame.bytes);
      return false;
    case 2:
      frame.tag ^= 1U << draw(32);
      return false;
    default:
      if (frame.bytes == 0) return true;
      frame.storage[draw(frame.bytes)] ^= static_cast<std::byte>(1U << draw(8));
      return false;
  }
}

void SimWorld::schedule(SimEventKind kind, Link& on, std::uint64_t time_ns, SimEvent details,
                        SimFrame frame) {
  details.kind = kind;
  details.time_ns = time_ns;
  details.group = on.group;
  details.from = on.from;
  details.to = on.to;
  details.channel = on.channel;
  if (free_pending_.empty()) {
    free_pending_.push_back(static_cast<std::uint32_t>(pending_.size()));
    pending_.emplace_back();
  }
  const std::uint32_t place = free_pending_.back();
  free_pending_.pop_back();
  pending_[place] = {details, &on, std::move(frame)};
  due_.push_back({time_ns, sequence_++, place});
  std::push_heap(due_.begin(), due_.end(), later);
}

void SimWorld::schedule_lost(int in, Rank dead, Rank observer) {
  if (killed_silently(in_world(in, dead))) return;
  schedule(SimEventKind::lost, link(in, dead, observer, 0), now_ns_ + delay_ns());
}

bool SimWorld::later(const Due& a, const Due& b) {
  if (a.time_ns != b.time_ns) return a.time_ns > b.time_ns;
  return a.sequence > b.sequence;
}

bool SimWorld::step() {
  if (due_.empty()) return false;
  std::pop_heap(due_.begin(), due_.end(), later);
  const std::uint32_t place = due_.back().pending;
  due_.pop_back();
  Pending next = std::move(pending_[place]);
  free_pending_.push_back(place);
  now_ns_ = next.event.time_ns;
  event_count_ += 1;
  deliver(next);
  last_ = next.event;
  if (told_) told_(last_);
  return true;
}

// Between two looks of a rank.
void SimWorld::pass_time() {
  if (options_.meanwhile_per_mille == 0) return;
  if (static_cast<int>(next_random(network_random_) % 1000) < options_.meanwhile_per_mille) step();
}

void SimWorld::deliver(Pending& pending) {
  const SimEvent& event = pending.event;
  mix(event.time_ns);
  mix((static_cast<std::uint64_t>(event.kind) << 56) ^
      (static_cast<std::uint64_t>(event.channel) << 40) ^
      (static_cast<std::uint64_t>(event.from) << 20) ^ static_cast<std::uint64_t>(event.to));
  Link& on = *pending.link;
  switch (event.kind) {
    case SimEventKind::connected:
      on.connected = true;
      tell_news(event.group, event.from);
      break;
    case SimEventKind::room:
      on.occupied -= 1;
      tell_news(event.group, event.from);
      break;
    case SimEventKind::frame:
      mix((static_cast<std::uint64_t>(event.tag) << 32) ^ event.bytes);
      mix(base::crc32c(pending.frame.storage));
      on.travelling -= 1;
      on.delivered.push_back(std::move(pending.frame));
      note_call(on);
      tell_news(event.group, event.to);
      break;
    case SimEventKind::signal: {
      mix(event.value);
      std::uint64_t& seen = on.signals[static_cast<std::size_t>(event.signal)];
      seen = std::max(seen, event.value);
      note_call(on);
      tell_news(event.group, event.to);
      break;
    }
    case SimEventKind::lost: {
      RankState& observer = state(event.group, event.to);
      observer.lost[static_cast<std::size_t>(event.from)] = true;
      tell_news(event.group, event.to);
      if (observer.status.ok())
        observer.status =
            Status(StatusCode::peer_lost, fmt::format("rank {} hung up", event.from), event.from);
      break;
    }
  }
}

void SimWorld::mix(std::uint64_t value) {
  hash_ = (hash_ ^ value) * kHashPrime;
  hash_ ^= hash_ >> 29;
}

// ---- Memory ----

void SimWorld::withdraw(Rank owner, const std::byte* memory, std::size_t bytes) {
  for (auto& [number, region] : regions_) {
    const std::byte* base = region.memory.get();
    if (region.owner != owner || std::less<>()(memory, base)) continue;
    const auto offset = static_cast<std::size_t>(memory - base);
    if (offset > region.bytes || bytes > region.bytes - offset) continue;
    const bool first = region.withdrawn_begin == region.withdrawn_end;
    for (const Rank by : region.mapped_by) withdrawn_from_[by].insert(number);
    region.withdrawn_begin = first ? offset : std::min(region.withdrawn_begin, offset);
    region.withdrawn_end = std::max(region.withdrawn_end, offset + bytes);
    return;
  }
}

void SimWorld::keep(Region& region) {
  const std::byte* memory = region.memory.get();
  region.kept.assign(memory + region.withdrawn_begin, memory + region.withdrawn_end);
}

// Who maps memory only after it was withdrawn reaches it as little.
void SimWorld::map(std::uint32_t number, Rank by) {
  Region& region = regions_.at(number);
  auto& all = region.mapped_by;
  if (std::find(all.begin(), all.end(), by) != all.end()) return;
  all.push_back(by);
  if (region.withdrawn_begin != region.withdrawn_end) withdrawn_from_[by].insert(number);
  if (storing_ == by) keep(region);
}

void SimWorld::begin_stores(Rank rank) {
  storing_ = rank;
  for (const std::uint32_t number : withdrawn_from_[rank]) keep(regions_.at(number));
}

void SimWorld::end_stores(Rank rank) {
  storing_ = -1;
  for (const std::uint32_t number : withdrawn_from_[rank]) {
    Region& region = regions_.at(number);
    if (region.kept.empty()) continue;
    std::copy(region.kept.begin(), region.kept.end(), region.memory.get() + region.withdrawn_begin);
    region.kept.clear();
  }
}

std::uint64_t SimWorld::told(int group, Rank from, Rank to, int channel, Signal what) const {
  const auto found = links_.find(link_index(group, from, to, channel));
  return found == links_.end() ? 0 : found->second.signals[static_cast<std::size_t>(what)];
}

void SimWorld::kill(Rank rank, bool silently) {
  Fate& fate = fates_[static_cast<std::size_t>(rank)];
  if (fate.killed) return;
  fate = Fate{true, silently};
  const auto of_the_dead = [&](const Due& due) {
    const SimEvent& event = pending_[due.pending].event;
    const bool gone = in_world(event.group, event.from) == rank &&
                      (event.kind == SimEventKind::frame || event.kind == SimEventKind::signal);
    if (gone) free_pending_.push_back(due.pending);
    return gone;
  };
  for (auto& [index, each] : links_)
    if (in_world(each.group, each.from) == rank) each.travelling = 0;
  due_.erase(std::remove_if(due_.begin(), due_.end(), of_the_dead), due_.end());
  std::make_heap(due_.begin(), due_.end(), later);
  for (int in = 0; in < static_cast<int>(groups_.size()); ++in) {
    const auto& members = group(in).members;
    const auto place = std::find(members.begin(), members.end(), rank);
    if (place == members.end()) continue;
    const auto dead = static_cast<Rank>(place - members.begin());
    if (state(in, dead).left) continue;
    state(in, dead).status =
        Status(StatusCode::aborted, fmt::format("the simulation killed rank {}", rank));
    for (Rank observer = 0; observer < static_cast<Rank>(members.size()); ++observer)
      if (state(in, observer).touches[static_cast<std::size_t>(dead)])
        schedule_lost(in, dead, observer);
  }
}

}  // namespace tutti::transport
