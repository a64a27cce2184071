// forwarding.hpp: a transport that hands everything to another one, for tests that change one thing
// about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "tutti/transport.hpp"

namespace tutti::transport::testing {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    return inner_->endpoint(peer, channel);
  }
  TransportTraits traits() const override { return inner_->traits(); }
  Rank rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::size_t frame_bytes_max() const override { return inner_->frame_bytes_max(); }
  int channel_count() const override { return inner_->channel_count(); }
  Rank caller(int channel, Rank after) override { return inner_->caller(channel, after); }
  Result<bool> poll() override { return inner_->poll(); }
  void sleep(std::int64_t timeout_us) override { inner_->sleep(timeout_us); }
  void* allocate_shareable(std::size_t bytes) override { return inner_->allocate_shareable(bytes); }
  void release_shareable(void* memory) override { inner_->release_shareable(memory); }
  void withdraw_memory(const void* memory, std::size_t bytes) override {
    inner_->withdraw_memory(memory, bytes);
  }
  void give_up(const Status& why) override { inner_->give_up(why); }
  bool flushed() const override { return inner_->flushed(); }
  std::size_t memory_bytes() const override { return inner_->memory_bytes(); }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace tutti::transport::testing
