// throttled_transport.cc: see throttled_transport.hpp.
#include "kit/throttled_transport.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kit/token_bucket.hpp"
#include "unit/transport/forwarding.hpp"

namespace tutti::kit {
namespace {

using transport::testing::ForwardingEndpoint;
using transport::testing::ForwardingTransport;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What the endpoints of a transport share: the clock, the buckets, and when it is worth to look
// again.
class Pace {
 public:
  Pace(const ThrottleOptions& options, int size)
      : options_(options),
        outgoing_(options.scope == ThrottleScope::link ? static_cast<std::size_t>(size) : 1,
                  TokenBucket(options.bytes_per_s, options.bucket_bytes)),
        incoming_(options.bytes_per_s, options.bucket_bytes) {}

  std::int64_t now_ns() const { return options_.clock_ns ? options_.clock_ns() : monotonic_ns(); }

  // One frame may wait to leave, so that the link is not idle until its sender looks again.
  bool has_room(Rank to) { return is_over(outgoing(to).free_at_ns()); }

  // A frame leaves. Returns when it arrives.
  std::int64_t send(Rank to, std::size_t bytes) {
    const std::int64_t leaves_ns = outgoing(to).pass(now_ns(), bytes);
    all_left_ns_ = std::max(all_left_ns_, leaves_ns);
    if (options_.on_send) options_.on_send(to, bytes, leaves_ns);
    return leaves_ns + options_.latency_us * 1000;
  }

  // A frame has arrived. Returns when the receiver has it.
  std::int64_t receive(std::int64_t arrived_ns, std::size_t bytes) {
    return options_.scope == ThrottleScope::link ? arrived_ns : incoming_.pass(arrived_ns, bytes);
  }

  bool all_left() { return is_over(all_left_ns_); }

  // Whether the time has come; if not, it is worth to look again when it has.
  bool is_over(std::int64_t time_ns) {
    if (time_ns <= now_ns()) return true;
    look_again_ns_ = std::min(look_again_ns_, time_ns);
    return false;
  }

  // Once when what was waited for has come.
  bool take_news() {
    if (look_again_ns_ == kNever || look_again_ns_ > now_ns()) return false;
    look_again_ns_ = kNever;
    return true;
  }

  // How long there will be none; of the peers' doings this says nothing.
  std::int64_t quiet_us() const {
    if (look_again_ns_ == kNever) return kNever;
    return std::max<std::int64_t>(0, (look_again_ns_ - now_ns() + 999) / 1000);
  }

 private:
  TokenBucket& outgoing(Rank to) {
    return outgoing_[options_.scope == ThrottleScope::link ? static_cast<std::size_t>(to) : 0];
  }

  ThrottleOptions options_;
  std::vector<TokenBucket> outgoing_;
  TokenBucket incoming_;
  std::int64_t all_left_ns_ = 0;
  std::int64_t look_again_ns_ = kNever;
};

class ThrottledEndpoint final : public ForwardingEndpoint {
 public:
  ThrottledEndpoint(Endpoint& inner, Rank peer, Pace& pace)
      : ForwardingEndpoint(inner), peer_(peer), pace_(pace) {}

  std::span<std::byte> reserve(std::size_t bytes) override {
    room_ = {};
    if (!status_.ok() || !pace_.has_room(peer_)) return {};
    room_ = inner().reserve(bytes + kStampBytes);
    if (room_.data() == nullptr) return {};
    return room_.first(bytes);
  }

  void commit(std::uint32_t tag, std::size_t bytes) override {
    if (room_.size() < bytes + kStampBytes) return;  // nothing was reserved: it has failed
    const std::int64_t arrives_ns = pace_.send(peer_, bytes);
    std::memcpy(room_.data() + bytes, &arrives_ns, kStampBytes);
    room_ = {};
    inner().commit(tag, bytes + kStampBytes);
  }

  bool peek(Frame& frame) override {
    Frame arrived;
    if (!status_.ok() || !inner().peek(arrived) || !has_come(arrived)) return false;
    frame = {arrived.tag, arrived.payload.first(arrived.payload.size() - kStampBytes)};
    return true;
  }

  void release() override {
    inner().release();
    admitted_ = false;
    released_ = true;
  }

  MemoryReference export_memory(const void*, std::size_t) override { return {}; }
  std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }
  Status status() const override { return status_.ok() ? ForwardingEndpoint::status() : status_; }

  const Status& failure() const { return status_; }

  // There is, or there may be, more to come of what has been sent: a frame is held back, or one was
  // taken since this was asked last.
  bool expects_more() {
    Frame frame;
    const bool held_back = status_.ok() && inner().peek(frame) && !has_come(frame);
    return std::exchange(released_, false) || held_back;
  }

 private:
  // Of the frame at the head of the queue.
  bool has_come(const Frame& frame) {
    if (!admitted_ && !admit(frame)) return false;
    return pace_.is_over(comes_ns_);
  }

  bool admit(const Frame& frame) {
    if (frame.payload.size() < kStampBytes) {
      status_ = Status(StatusCode::corrupt_data,
                       "a frame from rank " + std::to_string(peer_) +
                           " is too short to say when it arrives; does it throttle, too?",
                       peer_);
      return false;
    }
    const std::size_t bytes = frame.payload.size() - kStampBytes;
    std::int64_t arrives_ns = 0;
    std::memcpy(&arrives_ns, frame.payload.data() + bytes, kStampBytes);
    if (!pace_.is_over(arrives_ns)) return false;
    comes_ns_ = pace_.receive(arrives_ns, bytes);
    admitted_ = true;
    return true;
  }

  Rank peer_;
  Pace& pace_;
  std::span<std::byte> room_;  // what was reserved last, with room for the stamp
  bool admitted_ = false;      // comes_ns_ is that of the frame at the head of the queue
  bool released_ = false;      // see expects_more()
  std::int64_t comes_ns_ = 0;
  Status status_;
};

class ThrottledTransport final : public ForwardingTransport {
 public:
  ThrottledTransport(std::unique_ptr<Transport> inner, const ThrottleOptions& options)
      : ForwardingTransport(std::move(inner)),
        name_("throttled_" + std::string(ForwardingTransport::traits().name)),
        pace_(options, size()),
        endpoints_(static_cast<std::size_t>(size()) * static_cast<std::size_t>(channel_count())) {}

  // What shows depends on the time: who waits shall poll for it.
  TransportTraits traits() const override { return {.name = name_}; }
  std::size_t frame_bytes_max() const override {
    return ForwardingTransport::frame_bytes_max() - kStampBytes;
  }

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    Result<Endpoint*> inner = ForwardingTransport::endpoint(peer, channel);
    if (!inner.ok()) return inner;
    auto& mine =
        endpoints_[static_cast<std::size_t>(peer) * static_cast<std::size_t>(channel_count()) +
                   static_cast<std::size_t>(channel)];
    if (!mine) mine = std::make_unique<ThrottledEndpoint>(**inner, peer, pace_);
    return static_cast<Endpoint*>(mine.get());
  }

  // A peer that is through with its calls may leave while what it sent is still on its way.
  Result<bool> poll() override {
    const Result<bool> polled = ForwardingTransport::poll();
    for (const auto& endpoint : endpoints_)
      if (endpoint && !endpoint->failure().ok()) [[unlikely]]
        return endpoint->failure();
    const bool news = pace_.take_news();
    if (polled.ok()) return *polled || news;
    return expects_more() || news ? Result<bool>(news) : polled;
  }

  void sleep(std::int64_t timeout_us) override {
    const std::int64_t longest_us = std::min(timeout_us, pace_.quiet_us());
    if (longest_us > 0) ForwardingTransport::sleep(longest_us);
  }

  // What waits to leave is still the sender's.
  bool flushed() const override { return ForwardingTransport::flushed() && pace_.all_left(); }
  bool delivered() const override { return ForwardingTransport::delivered() && pace_.all_left(); }

 private:
  bool expects_more() {
    bool any = false;
    for (const auto& endpoint : endpoints_)
      if (endpoint && endpoint->expects_more()) any = true;
    return any;
  }

  std::string name_;
  mutable Pace pace_;  // notes when it is worth to look again, whoever asks
  std::vector<std::unique_ptr<ThrottledEndpoint>> endpoints_;  // by peer, then channel
};

}  // namespace

std::unique_ptr<Transport> make_throttled_transport(std::unique_ptr<Transport> inner,
                                                    const ThrottleOptions& options) {
  return std::make_unique<ThrottledTransport>(std::move(inner), options);
}

std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> throttle(
    const ThrottleOptions& options) {
  return [options](std::unique_ptr<Transport> inner) {
    return make_throttled_transport(std::move(inner), options);
  };
}

}  // namespace tutti::kit
