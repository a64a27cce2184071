// transport.cc: see transport.hpp.
#include "transport/sim/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "base/assert.hpp"

namespace tutti::transport {
namespace {

constexpr int kGarbage = 0xa5;  // what reserved memory holds: reading it shows at once

}  // namespace

class SimEndpoint final : public Endpoint {
 public:
  SimEndpoint(SimWorld& world, int group, Rank rank, Rank peer, int channel)
      : world_(world),
        group_(group),
        rank_(rank),
        peer_(peer),
        out_(world.link(group, rank, peer, channel)),
        in_(world.link(group, peer, rank, channel)) {
    world_.touch(group, rank, peer);
    in_.attended = true;
    auto& callers = world_.state(group, rank).callers;
    std::erase(callers, std::pair(channel, peer));
  }

  std::span<std::byte> reserve(std::size_t bytes) override {
    TUTTI_ASSERT(bytes <= world_.options().frame_bytes_max,
                 "a frame may be frame_bytes_max() long at most");
    if (!alive() || !can_send() || out_.occupied >= out_.capacity) return {};
    if (staged_.storage.empty()) staged_.storage = world_.take_storage();
    staged_.storage.assign(std::max<std::size_t>(bytes, 1), static_cast<std::byte>(kGarbage));
    staged_.bytes = bytes;
    return {staged_.storage.data(), bytes};
  }

  void commit(std::uint32_t tag, std::size_t bytes) override {
    if (!alive()) return;
    TUTTI_ASSERT(!staged_.storage.empty() && bytes <= staged_.bytes,
                 "commit() without a reservation of that length");
    staged_.tag = tag;
    staged_.bytes = bytes;
    staged_.storage.resize(std::max<std::size_t>(bytes, 1));
    world_.send(out_, std::exchange(staged_, {}));
  }

  bool peek(Frame& frame) override {
    world_.pass_time();
    if (!alive() || in_.delivered.empty()) return false;
    const auto& front = in_.delivered.front();
    frame.tag = front.tag;
    frame.payload = {front.storage.data(), front.bytes};
    return true;
  }

  void release() override {
    if (!alive()) return;
    TUTTI_ASSERT(!in_.delivered.empty(), "release() without a frame");
    world_.give_storage(std::move(in_.delivered.front().storage));
    in_.delivered.pop_front();
    world_.schedule(SimEventKind::room, in_, world_.now_ns() + world_.delay_ns());
  }

  void signal(Signal which, std::uint64_t value) override {
    if (!alive()) return;
    SimEvent details;
    details.signal = which;
    details.value = value;
    // What a rank stores to its memory after it has failed is not seen before the word that it has:
    // with memory in common that holds on every machine.
    if (which == Signal::failed && world_.same_host(group_, rank_, peer_)) {
      std::uint64_t& seen = out_.signals[static_cast<std::size_t>(which)];
      seen = std::max(seen, value);
      world_.note_call(out_);
      world_.tell_news(group_, peer_);
    }
    world_.schedule(SimEventKind::signal, out_, world_.now_ns() + world_.delay_ns(), details);
  }

  std::uint64_t signalled(Signal which) override {
    world_.pass_time();
    return in_.signals[static_cast<std::size_t>(which)];
  }

  // Only memory from allocate_shareable: which plain memory lies where differs from run to run,
  // and would make the events differ.
  MemoryReference export_memory(const void* memory, std::size_t bytes) override {
    if (!world_.same_host(group_, rank_, peer_)) return {};
    const auto* begin = static_cast<const std::byte*>(memory);
    for (const auto& [number, region] : world_.regions_) {
      const std::byte* base = region.memory.get();
      if (region.owner != world_.in_world(group_, rank_) || std::less<>()(begin, base)) continue;
      const auto offset = static_cast<std::size_t>(begin - base);
      if (offset <= region.bytes && bytes <= region.bytes - offset) return {number, offset};
    }
    return {};
  }

  std::byte* import_memory(const MemoryReference& reference, std::size_t bytes) override {
    const auto found = world_.regions_.find(reference.region);
    if (found == world_.regions_.end()) return nullptr;
    auto& region = found->second;
    if (region.owner != world_.in_world(group_, peer_)) return nullptr;
    if (!world_.same_host(group_, rank_, peer_)) return nullptr;
    if (reference.offset > region.bytes || bytes > region.bytes - reference.offset) return nullptr;
    world_.map(reference.region, world_.in_world(group_, rank_));
    return region.memory.get() + reference.offset;
  }

  Status status() const override {
    if (!status_.ok()) return status_;
    const auto& mine = world_.state(group_, rank_);
    if (world_.killed(world_.in_world(group_, rank_))) return mine.status;
    if (!mine.lost[static_cast<std::size_t>(peer_)]) return Status();
    return Status(StatusCode::peer_lost, fmt::format("rank {} hung up", peer_), peer_);
  }

 private:
  // What status() says, quicker.
  bool alive() {
    return status_.ok() && !world_.killed(world_.in_world(group_, rank_)) &&
           !world_.state(group_, rank_).lost[static_cast<std::size_t>(peer_)];
  }

  bool can_send() {
    // Whoever left may leave answers unread; but when nothing of it is left to read either, then
    // who sends to it counts on a rank that is gone.
    if (world_.state(group_, peer_).left && in_.delivered.empty() &&
        !world_.frames_on_their_way(in_)) {
      status_ = Status(StatusCode::peer_lost,
                       fmt::format("rank {} has left: it closed its communicator", peer_), peer_);
      auto& mine = world_.state(group_, rank_);
      if (mine.status.ok()) mine.status = status_;
      return false;
    }
    if (!out_.connecting) {
      out_.connecting = true;
      world_.schedule(SimEventKind::connected, out_, world_.now_ns() + world_.delay_ns());
    }
    return out_.connected;
  }

  SimWorld& world_;
  int group_;
  Rank rank_;
  Rank peer_;
  SimWorld::Link& out_;
  SimWorld::Link& in_;
  SimFrame staged_;
  Status status_;
};

class SimTransport final : public Transport {
 public:
  SimTransport(SimWorld& world, std::shared_ptr<SimWorld> owner, Rank rank, int group)
      : owner_(std::move(owner)), world_(world), group_(group), rank_(rank) {
    TUTTI_ASSERT(rank >= 0 && rank < size(), "no such rank");
  }
  ~SimTransport() override {
    if (!world_.killed(world_.in_world(group_, rank_))) world_.state(group_, rank_).left = true;
  }

  TransportTraits traits() const override {
    return {.name = "sim", .direct = world_.options().ranks_per_host > 1};
  }
  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_.group(group_).members.size()); }
  std::size_t frame_bytes_max() const override { return world_.options().frame_bytes_max; }
  int channel_count() const override { return world_.options().channel_count; }

  Rank caller(int channel, Rank after) override {
    Rank first = -1;
    for (const auto& [on, peer] : world_.state(group_, rank_).callers)
      if (on == channel && peer > after && (first < 0 || peer < first)) first = peer;
    return first;
  }

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    TUTTI_ASSERT(peer >= 0 && peer < size() && peer != rank_, "no such peer");
    TUTTI_ASSERT(channel >= 0 && channel < channel_count(), "no such channel");
    auto& place = endpoints_[{peer, channel}];
    if (!place) place = std::make_unique<SimEndpoint>(world_, group_, rank_, peer, channel);
    return static_cast<Endpoint*>(place.get());
  }

  Result<bool> poll() override {
    auto& mine = world_.state(group_, rank_);
    const bool news = std::exchange(mine.news, false);
    if (!mine.status.ok()) return mine.status;
    return news;
  }

  void sleep(std::int64_t) override {}

  void* allocate_shareable(std::size_t bytes) override {
    if (world_.options().ranks_per_host == 1) return nullptr;
    auto& region = world_.regions_[world_.next_region_++];
    region.owner = world_.in_world(group_, rank_);
    region.bytes = bytes;
    region.memory = std::make_unique<std::byte[]>(std::max<std::size_t>(bytes, 1));
    std::memset(region.memory.get(), kGarbage, bytes);
    return region.memory.get();
  }

  void release_shareable(void* memory) override {
    if (memory == nullptr) return;
    for (auto each = world_.regions_.begin(); each != world_.regions_.end(); ++each) {
      if (each->second.memory.get() != memory) continue;
      if (!each->second.mapped_by.empty())
        world_.still_mapped_.push_back(std::move(each->second.memory));
      for (const Rank by : each->second.mapped_by) world_.withdrawn_from_[by].erase(each->first);
      world_.regions_.erase(each);
      return;
    }
    TUTTI_ASSERT(false, "release_shareable() of memory that allocate_shareable() did not make");
  }

  void withdraw_memory(const void* memory, std::size_t bytes) override {
    world_.withdraw(world_.in_world(group_, rank_), static_cast<const std::byte*>(memory), bytes);
  }

  bool flushed() const override { return true; }
  std::size_t memory_bytes() const override {
    return world_.state(group_, rank_).queued_max * frame_bytes_max();
  }

 private:
  std::shared_ptr<SimWorld> owner_;  // may be empty
  SimWorld& world_;
  int group_;
  Rank rank_;
  std::map<std::pair<Rank, int>, std::unique_ptr<SimEndpoint>> endpoints_;
};

std::unique_ptr<Transport> make_sim_transport(SimWorld& world, Rank rank, int group) {
  return std::make_unique<SimTransport>(world, nullptr, rank, group);
}

std::unique_ptr<Transport> make_sim_transport(std::shared_ptr<SimWorld> world, Rank rank) {
  SimWorld& itself = *world;
  return std::make_unique<SimTransport>(itself, std::move(world), rank, 0);
}

}  // namespace tutti::transport
