// world.cc: see world.hpp.
#include "transport/sim/world.hpp"

#include <array>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"

namespace tutti::transport {
namespace {

constexpr std::uint64_t kHashStart = 0xcbf29ce484222325;
constexpr std::uint64_t kHashPrime = 0x100000001b3;

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
      ranks_(static_cast<std::size_t>(options.size)) {
  TUTTI_ASSERT(options.size >= 1 && options.channel_count >= 1 && options.queue_frames_max >= 2 &&
                   options.ranks_per_host >= 1 && options.delay_ns_min <= options.delay_ns_max,
               "simulation options make no sense");
  for (RankState& rank : ranks_) {
    rank.touches.resize(ranks_.size());
    rank.lost.resize(ranks_.size());
  }
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

SimWorld::Link& SimWorld::link(Rank from, Rank to, int channel) {
  const auto size = static_cast<std::size_t>(options_.size);
  const auto channels = static_cast<std::size_t>(options_.channel_count);
  const std::size_t index =
      (static_cast<std::size_t>(from) * size + static_cast<std::size_t>(to)) * channels +
      static_cast<std::size_t>(channel);
  const auto [place, fresh] = links_.try_emplace(index);
  Link& found = place->second;
  if (fresh) {
    found.from = from;
    found.to = to;
    found.channel = channel;
    // Drawn from the place, not from the stream of delays: who looks first must not matter.
    std::uint64_t seed = options_.seed * 0x9e3779b97f4a7c15 + index;
    // A queue of one frame is no legal queue: see collectives/lowered.hpp.
    found.capacity = 2 + static_cast<int>(next_random(seed) % static_cast<std::uint64_t>(
                                                                  options_.queue_frames_max - 1));
  }
  return found;
}

void SimWorld::touch(Rank observer, Rank peer) {
  RankState& mine = state(observer);
  if (mine.touches[static_cast<std::size_t>(peer)]) return;
  mine.touches[static_cast<std::size_t>(peer)] = true;
  if (killed(peer)) schedule_lost(peer, observer);
}

// Whether anything of a peer's has arrived on a channel.
bool SimWorld::has_called(Rank from, Rank to, int channel) const {
  const auto size = static_cast<std::size_t>(options_.size);
  const std::size_t index = (static_cast<std::size_t>(from) * size + static_cast<std::size_t>(to)) *
                                static_cast<std::size_t>(options_.channel_count) +
                            static_cast<std::size_t>(channel);
  const auto found = links_.find(index);
  if (found == links_.end()) return false;
  const Link& on = found->second;
  return !on.delivered.empty() ||
         std::any_of(std::begin(on.signals), std::end(on.signals), [](auto s) { return s != 0; });
}

void SimWorld::send(Link& on, SimFrame frame) {
  on.occupied += 1;
  on.travelling += 1;
  on.last_delivery_ns = std::max(on.last_delivery_ns + 1, now_ns_ + delay_ns());
  SimEvent details;
  details.tag = frame.tag;
  details.bytes = frame.bytes;
  schedule(SimEventKind::frame, on, on.last_delivery_ns, details, std::move(frame));
}

void SimWorld::schedule(SimEventKind kind, const Link& on, std::uint64_t time_ns, SimEvent details,
                        SimFrame frame) {
  details.kind = kind;
  details.time_ns = time_ns;
  details.from = on.from;
  details.to = on.to;
  details.channel = on.channel;
  pending_.push_back({details, sequence_++, std::move(frame)});
  std::push_heap(pending_.begin(), pending_.end(), later);
}

void SimWorld::schedule_lost(Rank dead, Rank observer) {
  schedule(SimEventKind::lost, link(dead, observer, 0), now_ns_ + delay_ns());
}

bool SimWorld::later(const Pending& a, const Pending& b) {
  if (a.event.time_ns != b.event.time_ns) return a.event.time_ns > b.event.time_ns;
  return a.sequence > b.sequence;
}

bool SimWorld::step() {
  if (pending_.empty()) return false;
  std::pop_heap(pending_.begin(), pending_.end(), later);
  Pending next = std::move(pending_.back());
  pending_.pop_back();
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
  Link& on = link(event.from, event.to, event.channel);
  switch (event.kind) {
    case SimEventKind::connected:
      on.connected = true;
      state(event.from).news = true;
      break;
    case SimEventKind::room:
      on.occupied -= 1;
      state(event.from).news = true;
      break;
    case SimEventKind::frame:
      mix((static_cast<std::uint64_t>(event.tag) << 32) ^ event.bytes);
      for (std::size_t at = 0; at < pending.frame.storage.size(); at += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, pending.frame.storage.data() + at,
                    std::min(sizeof(word), pending.frame.storage.size() - at));
        mix(word);
      }
      on.travelling -= 1;
      on.delivered.push_back(std::move(pending.frame));
      state(event.to).news = true;
      break;
    case SimEventKind::signal: {
      mix(event.value);
      std::uint64_t& seen = on.signals[static_cast<std::size_t>(event.signal)];
      seen = std::max(seen, event.value);
      state(event.to).news = true;
      break;
    }
    case SimEventKind::lost: {
      RankState& observer = state(event.to);
      observer.lost[static_cast<std::size_t>(event.from)] = true;
      observer.news = true;
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

void SimWorld::kill(Rank rank) {
  RankState& dead = state(rank);
  if (dead.killed || dead.left) return;
  dead.killed = true;
  dead.status = Status(StatusCode::aborted, fmt::format("the simulation killed rank {}", rank));
  const auto of_the_dead = [rank](const Pending& each) {
    return each.event.from == rank &&
           (each.event.kind == SimEventKind::frame || each.event.kind == SimEventKind::signal);
  };
  for (auto& [index, each] : links_)
    if (each.from == rank) each.travelling = 0;
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), of_the_dead), pending_.end());
  std::make_heap(pending_.begin(), pending_.end(), later);
  for (Rank observer = 0; observer < options_.size; ++observer)
    if (state(observer).touches[static_cast<std::size_t>(rank)]) schedule_lost(rank, observer);
}

}  // namespace tutti::transport
