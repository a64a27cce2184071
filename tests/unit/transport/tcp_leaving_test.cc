// tcp_leaving_test.cc: what a rank that leaves owes to those who still read, over real connections.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "conformance.hpp"
#include "transport/bootstrap/socket.hpp"
#include "transport/tcp/calls.hpp"
#include "transport/tcp/transport.hpp"

namespace tutti::transport {
namespace {

// Two ranks whose frames share one connection, of which one leaves and the other goes on.
class Leaving : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 32 << 10;

  void SetUp() override {
    TransportOptions options;
    options.size = 2;
    options.frame_bytes_max = kBytes;
    options.queue_bytes = 2 * kBytes;
    options.job_secret = "s3cret";
    world_ = conformance::make_by_exchange(options, make_tcp_transport);
    for (const Rank rank : {0, 1})
      ends_[static_cast<std::size_t>(rank)] =
          world_.transports[static_cast<std::size_t>(rank)]->endpoint(1 - rank, 0).value();
    for (int round = 0; round < 4; ++round) {
      ASSERT_TRUE(eventually([&] { return send(0, 8) && send(1, 8); }));
      ASSERT_TRUE(eventually([&] { return receive(0, 8) && receive(1, 8); }));
    }
  }

  // Only now: who leaves waits for half a second, in which a reader that looks at every byte under
  // a sanitizer may not have read all.
  void TearDown() override {
    for (std::size_t rank = 0; rank < kept_.size(); ++rank)
      for (std::size_t frame = 0; frame < kept_[rank].size(); ++frame)
        EXPECT_TRUE(conformance::holds(kept_[rank][frame], 1 - rank, frame)) << frame;
  }

  template <typename Done>
  bool eventually(const Done& done) {
    for (int i = 0; i < 20'000; ++i) {
      if (done()) return true;
      for (const auto& transport : world_.transports)
        if (transport && !transport->poll().ok()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return false;
  }
  // One frame of this rank, unless the one that is waited for is there or went already.
  bool send(std::size_t rank, std::size_t bytes) {
    if (sent_[rank] > received_[1 - rank] && bytes == 8) return true;
    const std::span<std::byte> room = ends_[rank]->reserve(bytes);
    if (room.data() == nullptr) return false;
    conformance::fill(room, rank, sent_[rank]);
    ends_[rank]->commit(static_cast<std::uint32_t>(sent_[rank]++), bytes);
    return true;
  }
  bool receive(std::size_t rank, std::size_t bytes) {
    if (received_[rank] == sent_[1 - rank]) return true;
    Frame frame;
    if (!ends_[rank]->peek(frame)) return false;
    EXPECT_EQ(frame.tag, received_[rank]);
    EXPECT_EQ(frame.payload.size(), bytes);
    kept_[rank].emplace_back(frame.payload.begin(), frame.payload.end());
    ends_[rank]->release();
    received_[rank] += 1;
    return true;
  }
  // All that the system takes of rank 0 while rank 1 does not look.
  void fill_the_way() {
    const auto left = [&] { return world_.transports[0]->flushed(); };
    bool all_left = true;
    for (int i = 0; i < 4096 && all_left; ++i) {
      ASSERT_TRUE(send(0, kBytes));
      all_left = false;
      for (int look = 0; look < 200 && !all_left; ++look) {
        ASSERT_TRUE(world_.transports[0]->poll().ok());
        all_left = left();
        if (!all_left) std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
    ASSERT_TRUE(eventually([&] { return left() || (receive(1, kBytes), false); }));
  }

  conformance::World world_;
  std::array<Endpoint*, 2> ends_ = {};
  std::array<std::uint64_t, 2> sent_ = {};
  std::array<std::uint64_t, 2> received_ = {};
  std::array<std::vector<std::vector<std::byte>>, 2> kept_;
};

// What rank 1 says to a closed socket makes the system forget what it still had for rank 1.
TEST_F(Leaving, LosesNothingToALateWordOfTheReader) {
  fill_the_way();
  ASSERT_GT(sent_[0], received_[1] + 2);
  std::thread leaver([&] { world_.transports[0].reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Transport& reader = *world_.transports[1];
  EXPECT_TRUE(send(1, 8));
  bool well = true;
  for (int i = 0; i < 20'000 && well && received_[1] < sent_[0]; ++i) {
    while (received_[1] < sent_[0] && receive(1, kBytes)) {
    }
    well = reader.poll().ok();
    if (received_[1] < sent_[0]) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  leaver.join();
  EXPECT_EQ(received_[1], sent_[0]) << reader.poll().status().to_string();
}

// Nothing becomes of what is said to one who has gone: nobody is to wait for it.
TEST(TcpCalls, NothingIsUnderWayOnAConnectionThatHasEnded) {
  const Socket listener = listen_on(parse_address("127.0.0.1", 0).value()).value();
  const Socket mine = start_connecting(*local_address(listener)).value();
  const int theirs = ::accept(listener.number(), nullptr, nullptr);
  ASSERT_GE(theirs, 0);
  ASSERT_TRUE(tcp::arrived(mine.number())) << "nothing was said";
  ::close(theirs);
  ASSERT_EQ(::send(mine.number(), "words", 5, MSG_NOSIGNAL), 5);
  for (int i = 0; i < 2000 && !tcp::arrived(mine.number()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(tcp::arrived(mine.number()));
}

}  // namespace
}  // namespace tutti::transport
