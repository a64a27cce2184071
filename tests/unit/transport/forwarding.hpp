// forwarding.hpp: a transport, and a connection, that hand everything to another one, for tests
// that change one thing about it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "tutti/transport.hpp"

namespace tutti::transport::testing {

class ForwardingEndpoint : public Endpoint {
 public:
  explicit ForwardingEndpoint(Endpoint& inner) : inner_(inner) {}

  void share_core() override { inner_.share_core(); }
  std::span<std::byte> reserve(std::size_t bytes) override { return inner_.reserve(bytes); }
  void commit(std::uint32_t tag, std::size_t bytes) override { inner_.commit(tag, bytes); }
  bool peek(Frame& frame) override { return inner_.peek(frame); }
  void release() override { inner_.release(); }
  void signal(Signal which, std::uint64_t value) override { inner_.signal(which, value); }
  std::uint64_t signalled(Signal which) override { return inner_.signalled(which); }
  MemoryReference export_memory(const void* memory, std::size_t bytes) override {
    return inner_.export_memory(memory, bytes);
  }
  std::byte* import_memory(const MemoryReference& reference, std::size_t bytes) override {
    return inner_.import_memory(reference, bytes);
  }
  bool attached() const override { return inner_.attached(); }
  MemoryReference attach_memory(const void* memory, std::size_t bytes) override {
    return inner_.attach_memory(memory, bytes);
  }
  Status read_attached(std::byte* to, std::uint64_t from, std::size_t bytes) override {
    return inner_.read_attached(to, from, bytes);
  }
  Status write_attached(std::uint64_t to, const std::byte* from, std::size_t bytes) override {
    return inner_.write_attached(to, from, bytes);
  }
  Status status() const override { return inner_.status(); }

 protected:
  Endpoint& inner() { return inner_; }

 private:
  Endpoint& inner_;
};

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
  bool all_attached() override { return inner_->all_attached(); }
  void begin_direct_call() override { inner_->begin_direct_call(); }
  void end_direct_call() override { inner_->end_direct_call(); }
  Result<bool> poll() override { return inner_->poll(); }
  void sleep(std::int64_t timeout_us) override { inner_->sleep(timeout_us); }
  void* allocate_shareable(std::size_t bytes) override { return inner_->allocate_shareable(bytes); }
  void release_shareable(void* memory) override { inner_->release_shareable(memory); }
  void withdraw_memory(const void* memory, std::size_t bytes) override {
    inner_->withdraw_memory(memory, bytes);
  }
  void give_up(const Status& why) override { inner_->give_up(why); }
  bool flushed() const override { return inner_->flushed(); }
  bool delivered() const override { return inner_->delivered(); }
  std::size_t memory_bytes() const override { return inner_->memory_bytes(); }
  std::span<std::atomic<std::uint64_t>> shared_words() override { return inner_->shared_words(); }
  std::span<std::byte> shared_memory() override { return inner_->shared_memory(); }
  void wake_sharers() override { inner_->wake_sharers(); }
  void await_shared(const std::atomic<std::uint64_t>* word, std::uint64_t number) override {
    inner_->await_shared(word, number);
  }

 protected:
  Transport& inner() { return *inner_; }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace tutti::transport::testing
