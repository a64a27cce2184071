// moving_transport.hpp: a transport that says that it moves long messages from memory to memory
// (TransportTraits::moves_itself), and counts how they are asked for.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "unit/transport/forwarding.hpp"

namespace tutti::runtime::testing {

struct Moved {
  std::size_t behind_heads = 0;  // messages taken behind a head
  std::size_t whole = 0;         // and without one
  std::size_t shown = 0;         // frames that peek() was asked for and that were there
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

    bool peek(Frame& frame) override {
      const bool found = inner().peek(frame);
      moved_.shown += found ? 1 : 0;
      return found;
    }
    bool peek_head(std::size_t, Frame& frame) override { return inner().peek(frame); }
    Taken take(std::uint32_t tag, std::size_t head, std::span<std::byte> place) override {
      const Taken taken = inner().take(tag, head, place);
      if (taken == Taken::frame) ++(head > 0 ? moved_.behind_heads : moved_.whole);
      return taken;
    }

   private:
    Moved& moved_;
  };

  Moved& moved_;
  std::map<std::pair<Rank, int>, std::unique_ptr<MovingEndpoint>> endpoints_;
};

}  // namespace tutti::runtime::testing
