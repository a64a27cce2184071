// private_transport.hpp: a transport whose ranks keep some memory to themselves. The memory
// transport shares all of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "unit/transport/forwarding.hpp"

namespace tutti::runtime::testing {

class PrivateTransport : public transport::testing::ForwardingTransport {
 public:
  // Whether peers may address what lies there.
  using Shares = std::function<bool(const void*)>;

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
  class PrivateEndpoint : public Endpoint {
   public:
    PrivateEndpoint(Endpoint& inner, const Shares& shares) : inner_(inner), shares_(shares) {}

    std::span<std::byte> reserve(std::size_t bytes) override { return inner_.reserve(bytes); }
    void commit(std::uint32_t tag, std::size_t bytes) override { inner_.commit(tag, bytes); }
    bool peek(Frame& frame) override { return inner_.peek(frame); }
    void release() override { inner_.release(); }
    void signal(Signal which, std::uint64_t value) override { inner_.signal(which, value); }
    std::uint64_t signalled(Signal which) override { return inner_.signalled(which); }
    MemoryReference export_memory(const void* memory, std::size_t bytes) override {
      return shares_(memory) ? inner_.export_memory(memory, bytes) : MemoryReference();
    }
    std::byte* import_memory(const MemoryReference& reference, std::size_t bytes) override {
      return inner_.import_memory(reference, bytes);
    }
    Status status() const override { return inner_.status(); }

   private:
    Endpoint& inner_;
    const Shares& shares_;
  };

  Shares shares_;
  std::map<std::pair<Rank, int>, std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace tutti::runtime::testing
