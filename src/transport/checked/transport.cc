// transport.cc: see transport.hpp. All but endpoints, traits and the size of frames is the inner
// transport's own.
#include "transport/checked/transport.hpp"

#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "transport/checked/endpoint.hpp"

namespace tutti::transport {
namespace checked {
namespace {

class CheckedTransport final : public Transport {
 public:
  CheckedTransport(std::unique_ptr<Transport> inner, std::uint64_t context)
      : inner_(std::move(inner)),
        context_(context),
        endpoints_(static_cast<std::size_t>(size()) * static_cast<std::size_t>(channel_count())) {
    TUTTI_ASSERT(inner_->frame_bytes_max() > kChecksumBytes, "a frame holds more than a checksum");
  }

  TransportTraits traits() const override {
    const TransportTraits inner = inner_->traits();
    return {.name = inner.name, .direct = false, .any_memory = false, .immediate = inner.immediate};
  }
  Rank rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::size_t frame_bytes_max() const override {
    return inner_->frame_bytes_max() - kChecksumBytes;
  }
  int channel_count() const override { return inner_->channel_count(); }
  Rank caller(int channel, Rank after) override { return inner_->caller(channel, after); }

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    Result<Endpoint*> beneath = inner_->endpoint(peer, channel);
    TUTTI_TRY(beneath);
    auto& place =
        endpoints_[static_cast<std::size_t>(peer) * static_cast<std::size_t>(channel_count()) +
                   static_cast<std::size_t>(channel)];
    if (!place) {
      const Direction out{context_, rank(), peer, channel};
      place = std::make_unique<CheckedEndpoint>(**beneath, out, first_failure_);
    }
    return static_cast<Endpoint*>(place.get());
  }

  // After a failure, too: what was committed on other connections still leaves.
  Result<bool> poll() override {
    Result<bool> polled = inner_->poll();
    if (!first_failure_.ok()) [[unlikely]]
      return first_failure_;
    return polled;
  }

  void sleep(std::int64_t timeout_us) override { inner_->sleep(timeout_us); }
  void* allocate_shareable(std::size_t bytes) override { return inner_->allocate_shareable(bytes); }
  void release_shareable(void* memory) override { inner_->release_shareable(memory); }
  void give_up(const Status& why) override { inner_->give_up(why); }
  bool flushed() const override { return inner_->flushed(); }
  bool delivered() const override { return inner_->delivered(); }
  std::size_t memory_bytes() const override { return inner_->memory_bytes(); }

 private:
  std::unique_ptr<Transport> inner_;
  std::uint64_t context_;
  Status first_failure_;                                     // of any endpoint
  std::vector<std::unique_ptr<CheckedEndpoint>> endpoints_;  // by peer, then channel
};

}  // namespace
}  // namespace checked

std::unique_ptr<Transport> make_checked_transport(std::unique_ptr<Transport> inner,
                                                  std::uint64_t context) {
  return std::make_unique<checked::CheckedTransport>(std::move(inner), context);
}

}  // namespace tutti::transport
