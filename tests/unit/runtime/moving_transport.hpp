// moving_transport.hpp: a transport that says that it moves long messages from memory to memory
// (TransportTraits::moves_itself), and counts how they are asked for.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "unit/transport/forwarding.hpp"

namespace tutti::runtime::testing {

struct Moved {
  std::size_t behind_heads = 0;  // messages taken behind a head
  std::size_t whole = 0;         // and without one
  std::size_t shown = 0;         // frames that peek() was asked for and that were there
  std::size_t parts = 0;         // beginnings of frames that were not whole
  // What is to happen: so many bytes of a frame come between two looks at it; 0: all at once.
  std::size_t bytes_at_a_time = 0;
  int longer = 0;  // every frame, by so many bytes, or shorter
};

class MovingTransport : public transport::testing::ForwardingTransport {
 public:
  MovingTransport(std::unique_ptr<Transport> inner, Moved& moved)
      : ForwardingTransport(std::move(inner)), moved_(moved) {}

  TransportTraits traits() const override { return {.name = "moving", .moves_itself = true}; }

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    auto inner = ForwardingTransport::endpoint(peer, channel);
    if (!inner.ok()) return inner;
    auto& mine = endpoints_[{peer, channel}];
    if (mine == nullptr) mine = std::make_unique<MovingEndpoint>(**inner, moved_);
    return mine.get();
  }

 private:
  class MovingEndpoint : public transport::testing::ForwardingEndpoint {
   public:
    MovingEndpoint(Endpoint& inner, Moved& moved) : ForwardingEndpoint(inner), moved_(moved) {}

    std::span<std::byte> reserve(std::size_t bytes) override {
      const auto room =
          inner().reserve(bytes + static_cast<std::size_t>(std::max(moved_.longer, 0)));
      return room.data() == nullptr ? room : room.first(bytes);
    }
    void commit(std::uint32_t tag, std::size_t bytes) override {
      inner().commit(tag, bytes + static_cast<std::size_t>(moved_.longer));
    }
    bool peek(Frame& frame) override {
      const bool found = more_comes(frame) && come_.size() == frame.payload.size();
      moved_.shown += found ? 1 : 0;
      return found;
    }
    bool peek_head(std::size_t bytes, Frame& frame) override {
      if (!more_comes(frame)) return false;
      if (come_.size() == frame.payload.size()) return true;
      if (come_.size() < bytes) return false;
      ++moved_.parts;
      frame.payload = come_;
      return true;
    }
    void release() override {
      come_ = {};
      inner().release();
    }
    Taken take(std::uint32_t tag, std::size_t head, std::span<std::byte> place) override {
      const Taken taken = inner().take(tag, head, place);
      if (taken == Taken::frame) ++(head > 0 ? moved_.behind_heads : moved_.whole);
      return taken;
    }

   private:
    // What has come lies in memory of its own length, so that reading more of it is found.
    bool more_comes(Frame& frame) {
      if (!inner().peek(frame)) return false;
      const auto whole = frame.payload;
      const std::size_t more = moved_.bytes_at_a_time == 0 ? whole.size() : moved_.bytes_at_a_time;
      const auto come = whole.first(std::min(whole.size(), come_.size() + more));
      come_ = std::vector<std::byte>(come.begin(), come.end());
      return true;
    }

    Moved& moved_;
    std::vector<std::byte> come_;  // of the frame at the head
  };

  Moved& moved_;
  std::map<std::pair<Rank, int>, std::unique_ptr<MovingEndpoint>> endpoints_;
};

}  // namespace tutti::runtime::testing
