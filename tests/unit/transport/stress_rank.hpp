// stress_rank.hpp: what a rank does in the conformance suite's random exchanges.
//
// Does not know any transport, nor who drives it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "unit/transport/conformance.hpp"

namespace tutti::transport::conformance {

// One rank of a random exchange: sends a random stream to every peer on every channel, checks what
// it receives, and raises counters with it. A state machine, so that threads or turns drive it.
class StressRank {
 public:
  StressRank(Transport& transport, std::uint32_t seed, std::uint64_t frames)
      : transport_(transport),
        seed_(seed),
        frames_(frames),
        random_(seed * 1000 + static_cast<std::uint32_t>(transport.rank())) {
    for (Rank peer = 0; peer < transport.size(); ++peer)
      for (int channel = 0; channel < transport.channel_count(); ++channel)
        if (peer != transport.rank())
          streams_.push_back({transport.endpoint(peer, channel).value(), peer, channel});
  }

  // True when every frame was sent and received and every counter has reached its end.
  bool step() {
    const Result<bool> polled = transport_.poll();
    EXPECT_TRUE(polled.ok()) << polled.status().to_string();
    bool done = true;
    for (Stream& stream : streams_) {
      for (auto burst = random_() % 5; burst > 0; --burst) send(stream);
      for (auto burst = random_() % 5; burst > 0; --burst) receive(stream);
      done = done && stream.sent == frames_ && stream.received == frames_ &&
             stream.endpoint->signalled(Signal::produced) == frames_;
    }
    return done;
  }

 private:
  struct Stream {
    Endpoint* endpoint;
    Rank peer;
    int channel;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };

  std::uint64_t name(Rank from, Rank to, int channel) const {
    return (static_cast<std::uint64_t>(from) << 40) ^ (static_cast<std::uint64_t>(to) << 20) ^
           static_cast<std::uint64_t>(channel) ^ (static_cast<std::uint64_t>(seed_) << 50);
  }

  // The size is a function of stream and number, so that the receiver knows it too.
  std::size_t bytes_of(std::uint64_t stream, std::uint64_t number) const {
    const auto kind = std::to_integer<std::size_t>(expected_byte(stream, number, 1u << 20));
    const auto size = std::to_integer<std::size_t>(expected_byte(stream, number, 2u << 20));
    return kind % 3 == 0 ? size * transport_.frame_bytes_max() / 255 : size % 64;
  }

  void send(Stream& stream) {
    if (stream.sent == frames_) return;
    const std::uint64_t id = name(transport_.rank(), stream.peer, stream.channel);
    const std::size_t bytes = bytes_of(id, stream.sent);
    const std::span<std::byte> room = stream.endpoint->reserve(bytes);
    if (room.data() == nullptr) return;
    fill(room, id, stream.sent);
    stream.endpoint->commit(static_cast<std::uint32_t>(stream.sent), bytes);
    stream.sent += 1;
    stream.endpoint->signal(Signal::produced, stream.sent);
  }

  void receive(Stream& stream) {
    Frame frame;
    if (!stream.endpoint->peek(frame)) return;
    const std::uint64_t id = name(stream.peer, transport_.rank(), stream.channel);
    EXPECT_EQ(frame.tag, stream.received);
    EXPECT_EQ(frame.payload.size(), bytes_of(id, stream.received));
    EXPECT_TRUE(holds(frame.payload, id, stream.received));
    stream.endpoint->release();
    stream.received += 1;
  }

  Transport& transport_;
  std::uint32_t seed_;
  std::uint64_t frames_;
  std::minstd_rand random_;
  std::vector<Stream> streams_;
};

}  // namespace tutti::transport::conformance
