// The arithmetic of a slow link: never quicker than it may be, and never slower than it must be.
#include "kit/token_bucket.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tutti::kit {
namespace {

constexpr std::int64_t kBytesPerS = 20'000'000;
constexpr std::int64_t kBucketBytes = 5000;
constexpr double kBytesPerNs = kBytesPerS / 1e9;

TEST(TokenBucket, LetsABurstPassAtOnceAndThenPaces) {
  TokenBucket bucket(1000, 300);  // a byte in a millisecond
  EXPECT_EQ(bucket.pass(0, 100), 0);
  EXPECT_EQ(bucket.pass(0, 200), 0);
  EXPECT_EQ(bucket.pass(0, 0), 0);
  EXPECT_EQ(bucket.pass(0, 1), 1'000'000);
  EXPECT_EQ(bucket.free_at_ns(), 1'000'000);
  EXPECT_EQ(bucket.pass(0, 49), 50'000'000);
  // A pause fills it again, but not beyond what it holds.
  EXPECT_EQ(bucket.pass(10'000'000'000, 300), 10'000'000'000);
  EXPECT_EQ(bucket.pass(10'000'000'000, 10), 10'010'000'000);
}

TEST(TokenBucket, LetsPassWhatIsLongerThanItHolds) {
  TokenBucket bucket(1000, 300);
  EXPECT_EQ(bucket.pass(0, 1300), 1'000'000'000);
}

TEST(TokenBucket, KeepsTheOrderWhenATimeIsTooEarly) {
  TokenBucket bucket(1000, 300);
  EXPECT_EQ(bucket.pass(5'000'000, 10), 5'000'000);
  EXPECT_EQ(bucket.pass(4'000'000, 10), 5'000'000);
}

TEST(TokenBucket, NeverLetsMorePassThanItMay) {
  std::minstd_rand random(3);
  for (int round = 0; round < 50; ++round) {
    TokenBucket bucket(kBytesPerS, kBucketBytes);
    std::vector<std::int64_t> left_ns = {0};
    std::vector<double> bytes = {0};
    std::int64_t now_ns = 0;
    for (int frame = 0; frame < 200; ++frame) {
      now_ns += static_cast<std::int64_t>(random() % 300'000);
      const std::size_t length = random() % 9000;
      left_ns.push_back(bucket.pass(now_ns, length));
      bytes.push_back(bytes.back() + static_cast<double>(length));
      ASSERT_GE(left_ns.back(), left_ns[left_ns.size() - 2]);
    }
    for (std::size_t from = 0; from < left_ns.size(); ++from)
      for (std::size_t to = from + 1; to < left_ns.size(); ++to)
        ASSERT_LE(bytes[to] - bytes[from],
                  kBucketBytes + kBytesPerNs * static_cast<double>(left_ns[to] - left_ns[from]));
  }
}

TEST(TokenBucket, IsAsQuickAsItMayForWhoSendsAllTheTime) {
  constexpr int kFrames = 1000;
  TokenBucket bucket(kBytesPerS, kBucketBytes);
  std::int64_t now_ns = 0;
  for (int frame = 0; frame < kFrames; ++frame) now_ns = bucket.pass(now_ns, 1499);
  const double due_ns = (kFrames * 1499.0 - kBucketBytes) / kBytesPerNs;
  EXPECT_GE(static_cast<double>(now_ns), due_ns);
  EXPECT_LE(static_cast<double>(now_ns), due_ns + kFrames);  // each is rounded up to whole ns
}

}  // namespace
}  // namespace tutti::kit
