// lending_transport.hpp: two ranks in one thread, between which frames go at once, and lent bytes
// when the test says so: what a transport with a network card of its own does, slowed down.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/transport.hpp"

namespace tutti::runtime::gpu {

// What one rank sends the other, and what the test lets happen of it.
struct LendingWire {
  struct Sent {
    std::uint32_t tag = 0;
    std::vector<std::byte> payload;
    const std::byte* lent = nullptr;  // in the sender's memory
    std::size_t lent_bytes = 0;
  };
  struct Fetch {
    Sent frame;
    std::byte* to = nullptr;
  };

  std::deque<Sent> frames;
  std::deque<Fetch> fetches;  // begun, and not over
  std::uint64_t fetched = 0;
  std::uint64_t lent_read = 0;
  bool refuses_fetches = false;
  bool moves_at_once = false;
  Status status;  // of the connection, as its receiver sees it

  // The oldest fetch comes to its end.
  void move_one() {
    Fetch fetch = std::move(fetches.front());
    fetches.pop_front();
    if (fetch.frame.lent != nullptr)
      std::memcpy(fetch.to, fetch.frame.lent, fetch.frame.lent_bytes);
    ++fetched;
  }
};

class LendingTransport final : public Transport, private Endpoint {
 public:
  LendingTransport(Rank rank, LendingWire& out, LendingWire& in)
      : rank_(rank), out_(out), in_(in) {}

  TransportTraits traits() const override { return {.name = "lending"}; }
  Rank rank() const override { return rank_; }
  int size() const override { return 2; }
  std::size_t frame_bytes_max() const override { return 128; }
  Result<Endpoint*> endpoint(Rank, int) override { return static_cast<Endpoint*>(this); }
  int channel_count() const override { return 1; }
  Result<bool> poll() override { return false; }
  void sleep(std::int64_t) override {}
  void* allocate_shareable(std::size_t) override { return nullptr; }
  void release_shareable(void*) override {}
  bool flushed() const override { return out_.frames.empty() && out_.fetches.empty(); }
  std::size_t memory_bytes() const override { return 0; }
  Status can_lend(MemoryKind) override { return Status(); }
  Result<std::uint32_t> lend(const LentMemory& memory) override {
    lent_.push_back(memory);
    return static_cast<std::uint32_t>(lent_.size());
  }

 private:
  std::span<std::byte> reserve(std::size_t bytes) override {
    room_.resize(std::max<std::size_t>(bytes, 1));
    return {room_.data(), bytes};
  }
  void commit(std::uint32_t tag, std::size_t bytes) override {
    out_.frames.push_back(
        {tag, {room_.begin(), room_.begin() + static_cast<std::ptrdiff_t>(bytes)}});
  }
  bool peek(Frame& frame) override {
    if (in_.frames.empty()) return false;
    const LendingWire::Sent& oldest = in_.frames.front();
    frame = {oldest.tag, oldest.payload, oldest.lent_bytes};
    return true;
  }
  void release() override { in_.frames.pop_front(); }
  bool send_lent(std::uint32_t tag, std::span<const std::byte> head,
                 const LentPlace& body) override {
    out_.frames.push_back({tag,
                           {head.begin(), head.end()},
                           lent_.at(body.region - 1).memory.get() + body.offset,
                           body.bytes});
    return true;
  }
  std::uint64_t lent_read() override { return out_.lent_read; }
  bool fetch(const LentPlace& place) override {
    if (in_.refuses_fetches) return false;
    in_.fetches.push_back(
        {in_.frames.front(), lent_.at(place.region - 1).memory.get() + place.offset});
    if (in_.moves_at_once) in_.move_one();
    return true;
  }
  std::uint64_t fetched() override { return in_.fetched; }
  void signal(Signal, std::uint64_t) override {}
  std::uint64_t signalled(Signal) override { return 0; }
  MemoryReference export_memory(const void*, std::size_t) override { return {}; }
  std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }
  Status status() const override { return in_.status; }

  const Rank rank_;
  LendingWire& out_;
  LendingWire& in_;
  std::vector<LentMemory> lent_;
  std::vector<std::byte> room_;
};

}  // namespace tutti::runtime::gpu
