// tampering.hpp: a transport that tests put between checksums and the transport that carries the
// frames, to do to frames on their way what no healthy transport does.
//
// Frames that have arrived are taken out of the inner transport and wait in plain queues, where the
// test may alter, move, copy or remove them before they are looked at.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/transport.hpp"
#include "unit/transport/forwarding.hpp"

namespace tutti::transport::testing {

struct CapturedFrame {
  std::uint32_t tag = 0;
  std::vector<std::byte> bytes;
};

// What happens to each frame as it is taken out of the inner transport; may be empty.
using OnArrival = std::function<void(CapturedFrame&)>;

class TamperingEndpoint final : public ForwardingEndpoint {
 public:
  TamperingEndpoint(Endpoint& inner, const OnArrival& on_arrival)
      : ForwardingEndpoint(inner), on_arrival_(on_arrival) {}

  // What has arrived and was not released, oldest first.
  std::deque<CapturedFrame>& arrived() {
    Frame frame;
    while (inner().peek(frame)) {
      arrived_.push_back({frame.tag, {frame.payload.begin(), frame.payload.end()}});
      inner().release();
      if (on_arrival_) on_arrival_(arrived_.back());
    }
    return arrived_;
  }

  bool peek(Frame& frame) override {
    if (arrived().empty()) return false;
    frame = {arrived_.front().tag, arrived_.front().bytes};
    return true;
  }
  void release() override { arrived_.pop_front(); }

 private:
  const OnArrival& on_arrival_;
  std::deque<CapturedFrame> arrived_;
};

class TamperingTransport final : public ForwardingTransport {
 public:
  explicit TamperingTransport(std::unique_ptr<Transport> inner, OnArrival on_arrival = nullptr)
      : ForwardingTransport(std::move(inner)), on_arrival_(std::move(on_arrival)) {}

  TamperingEndpoint& tampering_endpoint(Rank peer, int channel) {
    auto& place = endpoints_[{peer, channel}];
    if (!place)
      place = std::make_unique<TamperingEndpoint>(
          *ForwardingTransport::endpoint(peer, channel).value(), on_arrival_);
    return *place;
  }

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    return static_cast<Endpoint*>(&tampering_endpoint(peer, channel));
  }

 private:
  OnArrival on_arrival_;
  std::map<std::pair<Rank, int>, std::unique_ptr<TamperingEndpoint>> endpoints_;
};

}  // namespace tutti::transport::testing
