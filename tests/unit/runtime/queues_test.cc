// queues_test.cc: how much ranks have under way: what they promise of memory, and what the user
// sets.
#include <gtest/gtest.h>

#include "runtime/arrival.hpp"
#include "runtime/world.hpp"
#include "transport/fifo/queue.hpp"

namespace tutti::runtime {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

std::size_t bytes_of_a_peer(const Queues& queues) {
  return static_cast<std::size_t>(queues.channels) *
         transport::fifo::Layout::of(queues.frame_bytes, queues.bytes).bytes();
}

TEST(Queues, APeerCostsLessThanAMebibyte) {
  for (const char* transport : {"memory", "shm"})
    for (const bool share_cores : {false, true})
      for (int ranks = 2; ranks <= 9; ++ranks) {
        // Two ranks have what plans and the recorder leave of the communicator's own mebibyte, too.
        const std::size_t most = ranks == 2 ? kMebibyte * 3 / 2 : kMebibyte;
        EXPECT_LE(bytes_of_a_peer(queues_of(transport, ranks, share_cores, {})), most)
            << transport << ", " << ranks << " ranks";
      }
}

// One ring at either end of each direction.
// A single peer's may take half of what is left for plans, too (memory_use_test.cc).
TEST(Queues, APeerOverSocketsCostsLessThanAMebibyte) {
  for (const QueueWishes wishes : {QueueWishes{}, QueueWishes{.channels = 2}})
    for (const int ranks : {2, 3, 9}) {
      const Queues queues = queues_of("tcp", ranks, false, wishes);
      EXPECT_EQ(queues.bytes, queues.frame_bytes);
      EXPECT_LT(static_cast<std::size_t>(queues.channels) * 2 * queues.bytes,
                ranks == 2 ? kMebibyte * 3 / 2 : kMebibyte);
    }
}

TEST(Queues, HalfAMebibyteGoesAtOnceBetweenTwoRanksOverSockets) {
  EXPECT_GT(queues_of("tcp", 2, false, {}).frame_bytes, kMebibyte / 2 + kMebibyte / 16);
}

TEST(Queues, OnlyTwoRanksWithACoreEachHaveALongOne) {
  const auto is_long = [](std::string_view transport, int ranks, bool share_cores) {
    const Queues queues = queues_of(transport, ranks, share_cores, {});
    EXPECT_EQ(queues.reuse_late, queues.bytes > 4 * queues.frame_bytes);
    EXPECT_EQ(queues.channels, queues.reuse_late || transport == "tcp" ? 1 : 2);
    return queues.reuse_late;
  };
  EXPECT_TRUE(is_long("shm", 2, false));
  EXPECT_FALSE(is_long("shm", 2, true));
  EXPECT_FALSE(is_long("shm", 3, false));
  EXPECT_FALSE(is_long("memory", 2, false));
  EXPECT_FALSE(is_long("tcp", 2, false));
}

// Leaders in turn send that much and the call's record at once; others cut by powers of two.
TEST(Queues, FourRanksOnTwoCoresSendHalfOfAQuarterMebibyteAtOnce) {
  for (const char* transport : {"memory", "shm"}) {
    const Queues queues = queues_of(transport, 4, true, {});
    EXPECT_GE(queues.frame_bytes, kMebibyte / 8 + kArrivalBytes);
    EXPECT_EQ(queues.slice_bytes, kMebibyte / 8);
    EXPECT_EQ(queues_of(transport, 4, false, {}).frame_bytes, kMebibyte / 8);
    EXPECT_EQ(queues_of(transport, 8, true, {}).frame_bytes, kMebibyte / 8);
  }
}

TEST(Queues, NothingIsCutToPieces) {
  for (const char* transport : {"memory", "shm", "tcp", "ucx"})
    for (const int ranks : {2, 4, 9})
      EXPECT_GE(queues_of(transport, ranks, ranks > 2, {}).slice_bytes_min, 16U * 1024);
}

TEST(Queues, CarryWhatTheUserAskedFor) {
  for (const char* transport : {"memory", "shm", "tcp"}) {
    EXPECT_EQ(queues_of(transport, 2, false, {.channels = 4}).channels, 4);
    EXPECT_EQ(queues_of(transport, 2, false, {.channels = 1}).channels,
              queues_of(transport, 2, false, {}).channels);
    const Queues queues = queues_of(transport, 2, false, {.slice_bytes = 2 * kMebibyte});
    EXPECT_EQ(queues.frame_bytes, 2 * kMebibyte);
    EXPECT_GE(queues.bytes, queues.frame_bytes);
    EXPECT_GT(queues_of(transport, 2, false, {.slice_bytes = 4096}).frame_bytes, 4096U);
  }
}

}  // namespace
}  // namespace tutti::runtime
