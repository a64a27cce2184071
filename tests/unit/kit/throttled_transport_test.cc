// A throttled transport by a clock that the test moves: what is refused, until when, and who is
// told that the time has come. That it is a transport like any other is the business of
// tests/unit/transport/conformance_test.cc.
#include "kit/throttled_transport.hpp"

#include <gtest/gtest.h>

#include "transport/memory/transport.hpp"
#include "transport/options.hpp"
#include "unit/kit/ranks.hpp"
#include "unit/transport/forwarding.hpp"

namespace tutti::kit {
namespace {

using namespace testing;

constexpr std::int64_t kBytesPerS = 1'000'000;  // a byte in a microsecond
constexpr std::int64_t kBucketBytes = 2000;
constexpr std::int64_t kUs = 1000;

// What the transport beneath is asked for, and a failure of its own.
struct Beneath {
  std::vector<std::int64_t> sleeps_us;
  Status failure;
};

class WatchedTransport final : public transport::testing::ForwardingTransport {
 public:
  WatchedTransport(std::unique_ptr<Transport> inner, Beneath& beneath)
      : ForwardingTransport(std::move(inner)), beneath_(beneath) {}

  Result<bool> poll() override {
    const Result<bool> polled = ForwardingTransport::poll();
    return beneath_.failure.ok() ? polled : Result<bool>(beneath_.failure);
  }
  void sleep(std::int64_t timeout_us) override { beneath_.sleeps_us.push_back(timeout_us); }

 private:
  Beneath& beneath_;
};

class ThrottledTransport : public ::testing::Test {
 protected:
  void make(int ranks, ThrottleScope scope = ThrottleScope::link, std::int64_t latency_us = 0) {
    transport::TransportOptions options;
    options.size = ranks;
    options.channel_count = 2;
    options.frame_bytes_max = 4096 + kStampBytes;
    options.queue_bytes = 1 << 20;
    const auto world = transport::MemoryWorld::make(options);
    ThrottleOptions slow;
    slow.bytes_per_s = kBytesPerS;
    slow.bucket_bytes = kBucketBytes;
    slow.latency_us = latency_us;
    slow.scope = scope;
    slow.clock_ns = [this] { return now_ns_; };
    beneath_.resize(idx(ranks));
    for (Rank rank = 0; rank < ranks; ++rank)
      transports_.push_back(make_throttled_transport(
          std::make_unique<WatchedTransport>(transport::make_memory_transport(world, rank),
                                             beneath_[idx(rank)]),
          slow));
    for (Rank from = 0; from < ranks; ++from)
      for (Rank to = 0; to < ranks; ++to)
        if (from != to) end(from, to);
    for (int round = 0; round < 2; ++round)
      for (auto& transport : transports_) static_cast<void>(transport->poll());
  }

  Transport& transport(Rank rank) { return *transports_[idx(rank)]; }
  Endpoint& end(Rank from, Rank to, int channel = 0) {
    return **transport(from).endpoint(to, channel);
  }

  bool send(Rank from, Rank to, std::size_t bytes) {
    const std::span<std::byte> room = end(from, to).reserve(bytes);
    if (room.data() == nullptr) return false;
    std::fill(room.begin(), room.end(), std::byte{7});
    end(from, to).commit(1, bytes);
    return true;
  }

  // The bytes of the next frame, or -1.
  int receive(Rank to, Rank from) {
    Frame frame;
    if (!end(to, from).peek(frame)) return -1;
    for (const std::byte byte : frame.payload) EXPECT_EQ(byte, std::byte{7});
    const int bytes = static_cast<int>(frame.payload.size());
    end(to, from).release();
    return bytes;
  }

  std::int64_t now_ns_ = 0;
  std::vector<Beneath> beneath_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

TEST_F(ThrottledTransport, ShowsNoMoreThanTheLinkCarries) {
  make(2);
  std::int64_t shown = 0;
  std::size_t next = 1;
  for (; now_ns_ < 100'000 * kUs; now_ns_ += 10 * kUs) {
    while (send(0, 1, next)) next = next * 7 % 1999 + 1;
    for (int bytes = receive(1, 0); bytes >= 0; bytes = receive(1, 0)) shown += bytes;
    ASSERT_LE(shown, kBucketBytes + now_ns_ / kUs);
  }
  // And no less, but for the frame that is on its way.
  EXPECT_GE(shown, now_ns_ / kUs - 2000);
}

TEST_F(ThrottledTransport, HasNoRoomWhileAFrameWaitsToLeave) {
  make(2);
  EXPECT_TRUE(send(0, 1, 2000));
  EXPECT_TRUE(send(0, 1, 500));  // the bucket is empty: it leaves 500 us later
  EXPECT_FALSE(send(0, 1, 0));
  EXPECT_EQ(end(0, 1, 1).reserve(1).data(), nullptr);  // channels share the link
  EXPECT_EQ(receive(1, 0), 2000);
  now_ns_ = 500 * kUs - 1;
  EXPECT_FALSE(send(0, 1, 1));
  EXPECT_EQ(receive(1, 0), -1);
  now_ns_ = 500 * kUs;
  EXPECT_TRUE(send(0, 1, 1));
  EXPECT_EQ(receive(1, 0), 500);
  EXPECT_EQ(receive(1, 0), -1);
}

TEST_F(ThrottledTransport, HoldsEachFrameBackForTheLatency) {
  make(2, ThrottleScope::link, 300);
  now_ns_ = 1000 * kUs;
  EXPECT_TRUE(send(0, 1, 100));
  now_ns_ += 200 * kUs;
  EXPECT_TRUE(send(0, 1, 0));
  now_ns_ += 100 * kUs - 1;
  EXPECT_EQ(receive(1, 0), -1);
  now_ns_ += 1;
  EXPECT_EQ(receive(1, 0), 100);
  EXPECT_EQ(receive(1, 0), -1);
  now_ns_ += 200 * kUs;
  EXPECT_EQ(receive(1, 0), 0);
}

TEST_F(ThrottledTransport, LinksAreAsQuickAsTheirOwnBuckets) {
  make(3, ThrottleScope::link);
  EXPECT_TRUE(send(0, 1, 4000));
  EXPECT_FALSE(send(0, 1, 1));
  EXPECT_TRUE(send(0, 2, 2000));
  EXPECT_EQ(receive(2, 0), 2000);
}

TEST_F(ThrottledTransport, ARankSendsToAllThroughOneBucket) {
  make(3, ThrottleScope::rank);
  EXPECT_TRUE(send(0, 1, 2000));
  EXPECT_TRUE(send(0, 2, 1000));
  EXPECT_FALSE(send(0, 1, 1));
  EXPECT_EQ(receive(2, 0), -1);
  EXPECT_TRUE(send(1, 2, 2000));  // others have theirs
  now_ns_ = 1000 * kUs;
  EXPECT_EQ(receive(2, 0), 1000);
}

TEST_F(ThrottledTransport, ARankReceivesFromAllThroughOneBucket) {
  make(3, ThrottleScope::rank);
  EXPECT_TRUE(send(0, 2, 2000));
  EXPECT_TRUE(send(1, 2, 1500));
  EXPECT_EQ(receive(2, 0), 2000);
  EXPECT_EQ(receive(2, 1), -1);  // it has left rank 1, but all at once is too much for rank 2
  now_ns_ = 1500 * kUs - 1;
  EXPECT_EQ(receive(2, 1), -1);
  now_ns_ = 1500 * kUs;
  EXPECT_EQ(receive(2, 1), 1500);
}

TEST_F(ThrottledTransport, PollTellsOnceThatWhatWasWaitedForHasCome) {
  make(2);
  const auto news = [&](Rank rank) {
    const Result<bool> polled = transport(rank).poll();
    EXPECT_TRUE(polled.ok());
    return polled.ok() && *polled;
  };
  EXPECT_TRUE(send(0, 1, 3000));
  EXPECT_FALSE(send(0, 1, 1));
  static_cast<void>(news(1));
  EXPECT_EQ(receive(1, 0), -1);
  now_ns_ = 1000 * kUs - 1;
  EXPECT_FALSE(news(0));
  EXPECT_FALSE(news(1));
  now_ns_ = 1000 * kUs;
  EXPECT_TRUE(news(0));
  EXPECT_TRUE(news(1));
  EXPECT_FALSE(news(0));
  EXPECT_FALSE(news(1));
}

TEST_F(ThrottledTransport, SleepsNoLongerThanUntilThen) {
  make(2);
  transport(0).sleep(700);  // nothing is waited for: only the peer can end it
  EXPECT_TRUE(send(0, 1, 2500));
  EXPECT_FALSE(send(0, 1, 1));
  transport(0).sleep(1000);
  transport(0).sleep(200);
  now_ns_ = 499 * kUs + 1;
  transport(0).sleep(1000);
  now_ns_ = 500 * kUs;
  transport(0).sleep(1000);  // it has come: not at all
  EXPECT_EQ(beneath_[0].sleeps_us, (std::vector<std::int64_t>{700, 500, 200, 1}));
}

TEST_F(ThrottledTransport, IsNotFlushedUntilAllHasLeft) {
  make(2, ThrottleScope::link, 100);
  EXPECT_TRUE(transport(0).flushed());
  EXPECT_TRUE(send(0, 1, 2300));
  now_ns_ = 300 * kUs - 1;
  EXPECT_FALSE(transport(0).flushed());
  EXPECT_FALSE(*transport(0).poll());
  now_ns_ = 300 * kUs;
  EXPECT_TRUE(*transport(0).poll());
  EXPECT_TRUE(transport(0).flushed());
}

// Whoever is through with its calls leaves, and what it sent may be all that the others need.
TEST_F(ThrottledTransport, AFailureIsToldWhenAllThatWasSentHasCome) {
  make(2, ThrottleScope::link, 100);
  EXPECT_TRUE(send(0, 1, 10));
  EXPECT_TRUE(send(0, 1, 20));
  beneath_[1].failure = Status(StatusCode::peer_lost, "rank 0 is gone", 0);
  EXPECT_TRUE(transport(1).poll().ok());
  EXPECT_EQ(receive(1, 0), -1);
  now_ns_ = 100 * kUs;
  EXPECT_TRUE(*transport(1).poll());
  EXPECT_EQ(receive(1, 0), 10);
  EXPECT_TRUE(transport(1).poll().ok());  // there may be more
  EXPECT_EQ(receive(1, 0), 20);
  EXPECT_TRUE(transport(1).poll().ok());
  EXPECT_EQ(transport(1).poll().status().code(), StatusCode::peer_lost);
}

TEST_F(ThrottledTransport, AFrameWithoutATimeIsAnError) {
  transport::TransportOptions options;
  options.size = 2;
  options.channel_count = 1;
  options.frame_bytes_max = 4096;
  options.queue_bytes = 8192;
  const auto world = transport::MemoryWorld::make(options);
  const auto plain = transport::make_memory_transport(world, 0);
  ThrottleOptions slow;
  slow.bytes_per_s = kBytesPerS;
  const auto throttled = make_throttled_transport(transport::make_memory_transport(world, 1), slow);
  Endpoint& in = **throttled->endpoint(0, 0);
  Endpoint& out = **plain->endpoint(1, 0);
  ASSERT_NE(out.reserve(3).data(), nullptr);
  out.commit(1, 3);
  EXPECT_TRUE(throttled->poll().ok());
  Frame frame;
  EXPECT_FALSE(in.peek(frame));
  EXPECT_EQ(in.status().code(), StatusCode::corrupt_data);
  EXPECT_EQ(in.status().culprit(), 0);
  EXPECT_EQ(in.reserve(1).data(), nullptr);
  EXPECT_EQ(throttled->poll().status().code(), StatusCode::corrupt_data);
}

}  // namespace
}  // namespace tutti::kit
