// transport.cc: the memory transport: one endpoint per peer and channel over the world's queues.
#include "transport/memory/transport.hpp"

#include <bit>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "transport/fifo/endpoint.hpp"
#include "transport/fifo/outbox.hpp"
#include "transport/memory/world.hpp"

namespace tutti::transport {
namespace memory {
namespace {

// Every address is addressable, so one region spans them all and an offset is an address.
constexpr std::uint32_t kEverything = 1;

class MemoryEndpoint final : public fifo::QueueEndpoint {
 public:
  MemoryEndpoint(World& world, Rank rank, Rank peer, int channel)
      : QueueEndpoint(peer, world.doorbell(peer)), world_(world), rank_(rank), channel_(channel) {
    producer_.attach(world.make_queue(rank, peer, channel), world.layout());
  }

  // True when the peer's queue, which appears on its first use, was just found.
  bool attach() {
    if (consumer_.attached()) return false;
    std::byte* queue = world_.find_queue(peer(), rank_, channel_);
    if (queue == nullptr) return false;
    consumer_.attach(queue, world_.layout());
    return true;
  }

  MemoryReference export_memory(const void* memory, std::size_t) override {
    if (memory == nullptr) return {};
    return {kEverything, std::bit_cast<std::uintptr_t>(memory)};
  }

  std::byte* import_memory(const MemoryReference& reference, std::size_t bytes) override {
    if (reference.region != kEverything || reference.offset == 0) return nullptr;
    if (reference.offset + bytes < reference.offset) return nullptr;
    return std::bit_cast<std::byte*>(static_cast<std::uintptr_t>(reference.offset));
  }
  std::uint64_t import_generation() const override { return 1; }  // an address stays what it is

 private:
  World& world_;
  Rank rank_;
  int channel_;
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(std::shared_ptr<World> world, Rank rank)
      : world_(std::move(world)),
        rank_(rank),
        sleeper_(world_->doorbell(rank)),
        endpoints_(static_cast<std::size_t>(size()) * static_cast<std::size_t>(channel_count())) {}

  ~MemoryTransport() override {
    world_->doorbell(rank_).left.store(1, std::memory_order_release);
    for (MemoryEndpoint* endpoint : live_) fifo::ring(world_->doorbell(endpoint->peer()));
  }

  TransportTraits traits() const override {
    return {.name = "memory", .direct = true, .any_memory = true, .immediate = true};
  }
  Rank rank() const override { return rank_; }
  int size() const override { return world_->size(); }
  std::size_t frame_bytes_max() const override { return world_->options().frame_bytes_max; }
  int channel_count() const override { return world_->options().channel_count; }

  Rank caller(int channel, Rank after) override {
    for (Rank peer = after + 1; peer < size(); ++peer) {
      const auto index =
          static_cast<std::size_t>(peer) * static_cast<std::size_t>(channel_count()) +
          static_cast<std::size_t>(channel);
      if (!endpoints_[index] && world_->find_queue(peer, rank_, channel) != nullptr) return peer;
    }
    return -1;
  }

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    TUTTI_ASSERT(peer >= 0 && peer < size() && peer != rank_, "a peer is another rank");
    TUTTI_ASSERT(channel >= 0 && channel < channel_count(), "channels count from 0");
    const auto index = static_cast<std::size_t>(peer) * static_cast<std::size_t>(channel_count()) +
                       static_cast<std::size_t>(channel);
    if (!endpoints_[index]) {
      endpoints_[index] = std::make_unique<MemoryEndpoint>(*world_, rank_, peer, channel);
      live_.push_back(endpoints_[index].get());
    }
    return static_cast<Endpoint*>(endpoints_[index].get());
  }

  Result<bool> poll() override {
    const bool found = look();
    if (!status_.ok()) [[unlikely]]
      return status_;
    return found;
  }

  void sleep(std::int64_t timeout_us) override {
    sleeper_.sleep(timeout_us, [this] { return look() || awaited_.came(); });
  }

  bool send_to_all(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                   std::span<const std::byte> head, std::span<const std::byte> body) override {
    return outbox().send(endpoints, tag, head, body);
  }
  std::span<std::byte> reserve_for_all(std::span<Endpoint* const> endpoints,
                                       std::size_t bytes) override {
    return outbox().reserve(endpoints, bytes);
  }
  std::span<std::byte> reserve_in_place(std::span<Endpoint* const> endpoints, Endpoint& from,
                                        std::size_t bytes) override {
    return outbox().reserve_in_place(endpoints, from, bytes);
  }
  void commit_for_all(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                      std::size_t bytes) override {
    outbox().commit(endpoints, tag, bytes);
  }

  std::span<std::atomic<std::uint64_t>> shared_words() override { return world_->shared_words(); }
  std::span<std::byte> shared_memory() override { return world_->shared_memory(); }
  void wake_sharers() override {
    for (Rank rank = 0; rank < size(); ++rank) fifo::ring(world_->doorbell(rank));
  }
  void await_shared(const std::atomic<std::uint64_t>* word, std::uint64_t number) override {
    awaited_ = {word, number};
  }

  // Plain memory serves.
  void* allocate_shareable(std::size_t) override { return nullptr; }
  void release_shareable(void*) override {}

  bool flushed() const override { return true; }
  std::size_t memory_bytes() const override {
    return live_.size() * world_->layout().bytes() + (outbox_ ? outbox_->bytes() : 0);
  }

 private:
  fifo::Outbox& outbox() {
    if (!outbox_) [[unlikely]]
      outbox_.emplace(world_->make_outbox(rank_), world_->layout());
    return *outbox_;
  }

  // True when a peer did something since the last look.
  bool look() {
    bool found = false;
    for (MemoryEndpoint* endpoint : live_) {
      // In this order: a peer makes its queue before it leaves.
      const bool left = world_->doorbell(endpoint->peer()).left.load(std::memory_order_acquire);
      found = endpoint->attach() || found;
      if (left) endpoint->peer_left();
      found = endpoint->news() || found;
      if (endpoint->failed() && status_.ok()) [[unlikely]]
        status_ = endpoint->status();
    }
    return found;
  }

  std::shared_ptr<World> world_;
  Rank rank_;
  fifo::Sleeper sleeper_;
  fifo::AwaitedWord awaited_;
  Status status_;                                           // the first failure of any endpoint
  std::vector<std::unique_ptr<MemoryEndpoint>> endpoints_;  // by peer, then channel
  std::vector<MemoryEndpoint*> live_;                       // those that exist
  std::optional<fifo::Outbox> outbox_;                      // from its first use on
};

}  // namespace
}  // namespace memory

std::unique_ptr<Transport> make_memory_transport(std::shared_ptr<MemoryWorld> world, Rank rank) {
  // MemoryWorld::make is the only maker.
  auto whole = std::static_pointer_cast<memory::World>(std::move(world));
  return std::make_unique<memory::MemoryTransport>(std::move(whole), rank);
}

}  // namespace tutti::transport
