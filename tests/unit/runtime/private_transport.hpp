// private_transport.hpp: a transport whose ranks keep some memory to themselves. The memory
// transport shares all of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "unit/transport/forwarding.hpp"

namespace tutti::runtime::testing {

class PrivateTransport : public transport::testing::ForwardingTransport {
 public:
  // Whether the next buffer that is shown to a peer may be addressed by it.
  using Shares = std::function<bool()>;

  PrivateTransport(std::unique_ptr<Transport> inner, Shares shares)
      : ForwardingTransport(std::move(inner)), shares_(std::move(shares)) {}

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    auto inner = ForwardingTransport::endpoint(peer, channel);
    if (!inner.ok()) return inner;
    auto& mine = endpoints_[{peer, channel}];
    if (mine == nullptr) mine = std::make_unique<PrivateEndpoint>(**inner, shares_);
    return mine.get();
  }

 private:
  class PrivateEndpoint : public transport::testing::ForwardingEndpoint {
   public:
    PrivateEndpoint(Endpoint& inner, const Shares& shares)
        : ForwardingEndpoint(inner), shares_(shares) {}

    MemoryReference export_memory(const void* memory, std::size_t bytes) override {
      return shares_() ? inner().export_memory(memory, bytes) : MemoryReference();
    }

   private:
    const Shares& shares_;
  };

  Shares shares_;
  std::map<std::pair<Rank, int>, std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace tutti::runtime::testing
