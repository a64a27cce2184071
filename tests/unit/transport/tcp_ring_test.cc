// tcp_ring_test.cc: the ring is one piece at every position.
#include "transport/tcp/ring.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

namespace tutti::transport::tcp {
namespace {

TEST(TcpRing, HoldsAtLeastWhatWasAskedFor) {
  Ring ring = Ring::make(5000).value();
  EXPECT_GE(ring.capacity(), 5000U);
  EXPECT_EQ(ring.stored(), 0U);
  EXPECT_EQ(ring.room(), ring.capacity());
}

TEST(TcpRing, GivesBackWhatWasWrittenWhereverItLies) {
  Ring ring = Ring::make(4096).value();
  std::deque<std::byte> expected;
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    const std::size_t in = random() % (ring.room() + 1);
    for (std::size_t i = 0; i < in; ++i) {
      ring.back()[i] = static_cast<std::byte>(random());
      expected.push_back(ring.back()[i]);
    }
    ring.wrote(in);
    const std::size_t back = random() % (in + 1);
    ring.unwrite(back);
    expected.resize(expected.size() - back);
    ASSERT_EQ(ring.stored(), expected.size());
    const std::size_t out = random() % (ring.stored() + 1);
    ASSERT_TRUE(std::equal(ring.front(), ring.front() + out, expected.begin()));
    expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(out));
    ring.read(out);
    if (round % 7 == 0) ring.rewind();
  }
}

TEST(TcpRing, MovesWithItsContents) {
  Ring ring = Ring::make(10).value();
  std::memcpy(ring.back(), "abc", 3);
  ring.wrote(3);
  Ring other = std::move(ring);
  EXPECT_EQ(std::memcmp(other.front(), "abc", 3), 0);
  EXPECT_FALSE(ring.made());  // NOLINT: what is left of it is empty
}

}  // namespace
}  // namespace tutti::transport::tcp
