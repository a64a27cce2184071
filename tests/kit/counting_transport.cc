// counting_transport.cc: tells data from the rest by the tags and records that the runtime puts on
// frames, and by nothing else of it.
#include "kit/counting_transport.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/arrival.hpp"
#include "runtime/frame_tag.hpp"
#include "unit/transport/forwarding.hpp"

namespace tutti::kit {

using runtime::FrameTag;
using runtime::kArrivalBytes;
using runtime::kRecordRoomMax;
using runtime::record_room;
using transport::testing::ForwardingEndpoint;
using transport::testing::ForwardingTransport;

namespace {

constexpr std::size_t kCollectives = std::size(kAllCollectives);

void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

// Where in a frame of so many bytes the data begins: behind the record, or nowhere.
std::size_t data_offset(FrameTag tag, std::size_t bytes) {
  if (tag == FrameTag::data) return 0;
  const bool is_long =
      bytes > kRecordRoomMax && record_room(bytes - kRecordRoomMax) == kRecordRoomMax;
  if (tag == FrameTag::arrival_with_data)
    return std::min(bytes, is_long ? kRecordRoomMax : kArrivalBytes);
  return bytes;
}

bool holds_record(FrameTag tag) {
  return tag == FrameTag::arrival || tag == FrameTag::arrival_with_data;
}

}  // namespace

// One connection; several of them, one for each channel, count for the same peer.
class CountingEndpoint final : public ForwardingEndpoint {
 public:
  CountingEndpoint(Endpoint& inner, TrafficCounter& counter, Rank peer)
      : ForwardingEndpoint(inner), peer_(counter.peer(peer)) {}

  std::span<std::byte> reserve(std::size_t bytes) override {
    room_ = inner().reserve(bytes);
    return room_;
  }

  void commit(std::uint32_t tag, std::size_t bytes) override {
    note_call(tag, room_.first(std::min(bytes, room_.size())));  // before the room is the peer's
    inner().commit(tag, bytes);
    count_sent(tag, bytes);
    room_ = {};
  }

  bool send(std::uint32_t tag, std::span<const std::byte> head,
            std::span<const std::byte> body) override {
    if (!inner().send(tag, head, body)) return false;
    note_call(tag, head);
    count_sent(tag, head.size() + body.size());
    return true;
  }

  bool peek(Frame& frame) override {
    if (!inner().peek(frame)) return false;
    head_ = frame;
    return true;
  }

  void release() override {
    const std::size_t bytes = head_.payload.size();
    inner().release();
    count(peer_.received, head_.tag, bytes);
  }

  bool peek_head(std::size_t bytes, Frame& frame) override {
    return inner().peek_head(bytes, frame);
  }

  Taken take(std::uint32_t tag, std::size_t head, std::span<std::byte> place) override {
    const Taken taken = inner().take(tag, head, place);
    if (taken == Taken::frame) count(peer_.received, tag, head + place.size());
    return taken;
  }

  MemoryReference export_memory(const void*, std::size_t) override { return {}; }
  std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }

 private:
  // Each call's first frame to a peer, on whichever channel, begins with the call's record.
  void note_call(std::uint32_t tag, std::span<const std::byte> begin) {
    if (!holds_record(static_cast<FrameTag>(tag)) || begin.size() < kArrivalBytes) return;
    peer_.calls = std::to_integer<std::size_t>(begin[runtime::kCollectiveOffset]);
  }

  void count_sent(std::uint32_t tag, std::size_t bytes) {
    const std::size_t payload = count(peer_.sent, tag, bytes);
    if (peer_.calls < kCollectives) add(peer_.sent.payload_bytes_by[peer_.calls], payload);
  }

  static std::size_t count(TrafficCounter::Direction& direction, std::uint32_t tag,
                           std::size_t bytes) {
    const std::size_t offset = data_offset(static_cast<FrameTag>(tag), bytes);
    const bool has_data = offset < bytes;
    add(direction.payload_bytes, bytes - offset);
    add(direction.frames, has_data ? 1 : 0);
    add(direction.other_bytes, offset);
    return bytes - offset;
  }

  TrafficCounter::Peer& peer_;
  std::span<std::byte> room_;  // what was reserved last
  Frame head_;                 // what was shown last
};

namespace {

class CountingTransport final : public ForwardingTransport {
 public:
  CountingTransport(std::unique_ptr<Transport> inner, std::shared_ptr<TrafficCounter> counter)
      : ForwardingTransport(std::move(inner)),
        counter_(std::move(counter)),
        endpoints_(static_cast<std::size_t>(size()) * static_cast<std::size_t>(channel_count())) {}

  TransportTraits traits() const override {
    TransportTraits traits = ForwardingTransport::traits();
    traits.direct = traits.any_memory = false;
    return traits;
  }

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    Result<Endpoint*> inner = ForwardingTransport::endpoint(peer, channel);
    if (!inner.ok()) return inner;
    auto& mine =
        endpoints_[static_cast<std::size_t>(peer) * static_cast<std::size_t>(channel_count()) +
                   static_cast<std::size_t>(channel)];
    if (!mine) mine = std::make_unique<CountingEndpoint>(**inner, *counter_, peer);
    return static_cast<Endpoint*>(mine.get());
  }

  const TrafficCounter& counter() const { return *counter_; }

 private:
  std::shared_ptr<TrafficCounter> counter_;
  std::vector<std::unique_ptr<CountingEndpoint>> endpoints_;  // by peer, then channel
};

}  // namespace

Traffic& Traffic::operator+=(const Traffic& more) {
  payload_bytes += more.payload_bytes;
  frames += more.frames;
  other_bytes += more.other_bytes;
  for (std::size_t c = 0; c < kCollectives; ++c) sent_by[c] += more.sent_by[c];
  return *this;
}

Traffic operator-(const Traffic& later, const Traffic& earlier) {
  Traffic between = later;
  between.payload_bytes -= earlier.payload_bytes;
  between.frames -= earlier.frames;
  between.other_bytes -= earlier.other_bytes;
  for (std::size_t c = 0; c < kCollectives; ++c) between.sent_by[c] -= earlier.sent_by[c];
  return between;
}

Traffic TrafficCounter::Direction::look() const {
  Traffic traffic;
  traffic.payload_bytes = payload_bytes.load(std::memory_order_relaxed);
  traffic.frames = frames.load(std::memory_order_relaxed);
  traffic.other_bytes = other_bytes.load(std::memory_order_relaxed);
  for (std::size_t c = 0; c < kCollectives; ++c)
    traffic.sent_by[c] = payload_bytes_by[c].load(std::memory_order_relaxed);
  return traffic;
}

TrafficCounter::TrafficCounter(Rank rank, int size)
    : rank_(rank), peers_(static_cast<std::size_t>(size)) {}

Traffic TrafficCounter::sent(Rank to) const { return peer(to).sent.look(); }
Traffic TrafficCounter::received(Rank from) const { return peer(from).received.look(); }

Traffic TrafficCounter::sent() const {
  Traffic all;
  for (const Peer& each : peers_) all += each.sent.look();
  return all;
}

Traffic TrafficCounter::received() const {
  Traffic all;
  for (const Peer& each : peers_) all += each.received.look();
  return all;
}

std::unique_ptr<Transport> make_counting_transport(std::unique_ptr<Transport> inner,
                                                   std::shared_ptr<TrafficCounter> counter) {
  return std::make_unique<CountingTransport>(std::move(inner), std::move(counter));
}

const TrafficCounter* traffic_of(const Transport* transport) {
  const auto* counting = dynamic_cast<const CountingTransport*>(transport);
  return counting == nullptr ? nullptr : &counting->counter();
}

WrapTransport TrafficBook::wrapper(WrapTransport beneath) const {
  return [pages = pages_, beneath = std::move(beneath)](std::unique_ptr<Transport> transport) {
    if (beneath) transport = beneath(std::move(transport));
    if (!transport) return transport;  // whoever wrapped it is told
    auto counter = std::make_shared<TrafficCounter>(transport->rank(), transport->size());
    const std::lock_guard lock(pages->mutex);
    pages->counters.push_back(counter);
    return make_counting_transport(std::move(transport), std::move(counter));
  };
}

std::vector<std::shared_ptr<const TrafficCounter>> TrafficBook::counters() const {
  const std::lock_guard lock(pages_->mutex);
  return pages_->counters;
}

Traffic TrafficBook::sent() const {
  Traffic all;
  for (const auto& counter : counters()) all += counter->sent();
  return all;
}

}  // namespace tutti::kit
