// membership_test.cc: the questions of several ranks reach the one they wait for, each of them.
#include "runtime/membership/membership.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "transport/memory/transport.hpp"

namespace tutti::runtime {
namespace {

struct Ranks {
  explicit Ranks(int size) {
    transport::TransportOptions options;
    options.size = size;
    options.channel_count = 2;
    options.frame_bytes_max = 4096;
    options.queue_bytes = 8192;
    auto world = transport::MemoryWorld::make(options);
    for (Rank r = 0; r < size; ++r) {
      transports.push_back(transport::make_memory_transport(world, r));
      members.push_back(std::make_unique<Membership>(*transports.back(), 1));
    }
  }
  void move() {
    for (int round = 0; round < 8; ++round)
      for (std::size_t r = 0; r < members.size(); ++r) {
        ASSERT_TRUE(transports[r]->poll().ok());
        members[r]->advance();
      }
  }
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Membership>> members;
};

TEST(Membership, AnswersEveryRankThatAsks) {
  Ranks ranks(3);
  const std::vector<std::byte> early(32, std::byte{1});
  const std::vector<std::byte> late(32, std::byte{2});
  ranks.members[1]->inquire(0, early);
  ranks.members[2]->inquire(0, early);
  ranks.members[1]->inquire(0, late);
  ranks.move();
  auto first = ranks.members[0]->take_inquiry();
  auto second = ranks.members[0]->take_inquiry();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->first, 1);
  EXPECT_EQ(first->second, late) << "only the latest of a rank counts";
  EXPECT_EQ(second->first, 2);
  EXPECT_EQ(second->second, early);
  EXPECT_FALSE(ranks.members[0]->take_inquiry());
}

}  // namespace
}  // namespace tutti::runtime
