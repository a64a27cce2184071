// mailbox_test.cc: every rank that calls gets an answer, whatever became of those before it.
#include "runtime/membership/mailbox.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "transport/memory/transport.hpp"
#include "unit/transport/forwarding.hpp"

namespace tutti::runtime {
namespace {

constexpr int kChannel = 1;

// A transport on which one peer cannot be reached any more. What it did before it died, such as
// opening its side of a channel, stays to be seen.
class WithoutOne final : public transport::testing::ForwardingTransport {
 public:
  WithoutOne(std::unique_ptr<Transport> inner, Rank dead)
      : ForwardingTransport(std::move(inner)), dead_(dead) {}

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    if (peer == dead_) return Status(StatusCode::peer_lost, "died", peer);
    return ForwardingTransport::endpoint(peer, channel);
  }

 private:
  Rank dead_;
};

class MailboxTest : public testing::Test {
 protected:
  // Rank 0 cannot reach rank 1; all others reach each other.
  explicit MailboxTest(int size = 4) {
    transport::TransportOptions options;
    options.size = size;
    options.channel_count = kChannel + 1;
    options.frame_bytes_max = 4096;
    options.queue_bytes = 8192;
    const auto world = transport::MemoryWorld::make(options);
    for (Rank r = 0; r < size; ++r) {
      auto transport = transport::make_memory_transport(world, r);
      if (r == 0) transport = std::make_unique<WithoutOne>(std::move(transport), 1);
      transports_.push_back(std::move(transport));
      boxes_.push_back(std::make_unique<Mailbox>(*transports_.back(), kChannel));
    }
  }

  void move() {
    for (int round = 0; round < 8; ++round)
      for (std::size_t r = 0; r < boxes_.size(); ++r) {
        ASSERT_TRUE(transports_[r]->poll().ok());
        boxes_[r]->answer_callers();
        boxes_[r]->advance(true);
      }
  }

  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Mailbox>> boxes_;
};

TEST_F(MailboxTest, ADeadCallerKeepsNobodyFromAnAnswer) {
  boxes_[1]->send(0, "of the dead");
  boxes_[2]->send(0, "second");
  boxes_[3]->send(0, "third");
  move();
  const auto first = boxes_[0]->take();
  const auto second = boxes_[0]->take();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, std::pair(Rank{2}, std::string("second")));
  EXPECT_EQ(*second, std::pair(Rank{3}, std::string("third")));
  EXPECT_FALSE(boxes_[0]->take());
  EXPECT_EQ(boxes_[0]->take_lost(), std::vector<Rank>{1});
}

TEST_F(MailboxTest, CallersComeInTheOrderOfTheirRanks) {
  EXPECT_EQ(transports_[0]->caller(kChannel), -1);
  boxes_[3]->send(0, "x");
  boxes_[1]->send(0, "y");
  boxes_[3]->advance(true);
  boxes_[1]->advance(true);
  EXPECT_EQ(transports_[0]->caller(kChannel), 1);
  EXPECT_EQ(transports_[0]->caller(kChannel, 1), 3);
  EXPECT_EQ(transports_[0]->caller(kChannel, 3), -1);
  EXPECT_EQ(transports_[0]->caller(0), -1) << "channels are asked one by one";
}

}  // namespace
}  // namespace tutti::runtime
