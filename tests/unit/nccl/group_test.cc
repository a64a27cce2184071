// Groups of the NCCL interface: what is called in one is done at its end, all of it or nothing.
#include <gtest/gtest.h>

#include "unit/nccl/world.hpp"

namespace tutti::nccl::test {
namespace {

TEST(NcclGroup, MakesCallsOfSeveralCommunicatorsTogether) {
  const std::vector<ncclComm_t> first = make_ranks(3);
  const std::vector<ncclComm_t> second = make_ranks(2);
  std::vector<int> a(3, 1);
  std::vector<int> b(2, 5);
  ASSERT_TRUE(worked(ncclGroupStart()));
  ASSERT_TRUE(worked(ncclGroupStart()));
  for (std::size_t i = 0; i < 3; ++i)
    ASSERT_TRUE(worked(ncclAllReduce(&a[i], &a[i], 1, ncclInt32, ncclSum, first[i], nullptr)));
  ASSERT_TRUE(worked(ncclGroupEnd()));
  EXPECT_EQ(a[0], 1);
  for (std::size_t i = 0; i < 2; ++i)
    ASSERT_TRUE(worked(ncclAllReduce(&b[i], &b[i], 1, ncclInt32, ncclProd, second[i], nullptr)));
  ASSERT_TRUE(worked(ncclGroupEnd()));
  EXPECT_EQ(a, std::vector<int>(3, 3));
  EXPECT_EQ(b, std::vector<int>(2, 25));
  destroy(first);
  destroy(second);
}

TEST(NcclGroup, SendsAndReceivesInAnyOrder) {
  constexpr std::size_t kRanks = 4;
  const std::vector<ncclComm_t> comms = make_ranks(kRanks);
  std::vector<int> sent(kRanks * kRanks);
  std::vector<int> got(kRanks * kRanks, -1);
  std::iota(sent.begin(), sent.end(), 0);
  ASSERT_TRUE(worked(ncclGroupStart()));
  for (std::size_t i = 0; i < kRanks; ++i)
    for (std::size_t j = 0; j < kRanks; ++j) {  // to itself, too
      const int peer = static_cast<int>(j);
      ASSERT_TRUE(worked(ncclRecv(&got[i * kRanks + j], 1, ncclInt32, peer, comms[i], nullptr)));
      ASSERT_TRUE(worked(ncclSend(&sent[i * kRanks + j], 1, ncclInt32, peer, comms[i], nullptr)));
    }
  ASSERT_TRUE(worked(ncclGroupEnd()));
  for (std::size_t i = 0; i < kRanks; ++i)
    for (std::size_t j = 0; j < kRanks; ++j)
      EXPECT_EQ(got[i * kRanks + j], static_cast<int>(j * kRanks + i));
  destroy(comms);
}

// A message may be in a group at one end and not at the other.
TEST(NcclGroup, OfOneEndMeetsACallOfTheOther) {
  const std::vector<ncclComm_t> comms = make_ranks(2);
  on_threads(2, [&](int rank) {
    int value = rank == 0 ? 42 : 0;
    if (rank == 0) {
      EXPECT_TRUE(worked(ncclSend(&value, 1, ncclInt32, 1, comms[0], nullptr)));
      return;
    }
    EXPECT_TRUE(worked(ncclGroupStart()));
    EXPECT_TRUE(worked(ncclRecv(&value, 1, ncclInt32, 0, comms[1], nullptr)));
    EXPECT_TRUE(worked(ncclGroupEnd()));
    EXPECT_EQ(value, 42);
  });
  destroy(comms);
}

TEST(NcclGroup, WithAWrongCallDoesNothing) {
  const std::vector<ncclComm_t> comms = make_ranks(2);
  int values[2] = {1, 2};
  ASSERT_TRUE(worked(ncclGroupStart()));
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(
        worked(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i], nullptr)));
  EXPECT_EQ(ncclBroadcast(values, values, 1, ncclInt32, 2, comms[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(last_text(),
            "ncclBroadcast: invalid_argument: rank 0: ncclBroadcast: root 2 is not one of the 2 "
            "ranks");
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(values[0], 1);
  // And the next one is as good as ever.
  expect_sum(comms);
  destroy(comms);
}

TEST(NcclGroup, ThatWasNotBegunCannotEnd) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidUsage);
}

TEST(NcclGroup, IsSimulatedWithoutBeingDone) {
  const std::vector<ncclComm_t> comms = make_ranks(2);
  std::vector<float> values(2 << 20, 1);
  double times_us[2] = {};
  for (int round = 0; round < 2; ++round) {
    const std::size_t count = round == 0 ? 1 : 1 << 20;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ASSERT_TRUE(worked(ncclGroupStart()));
    for (std::size_t i = 0; i < 2; ++i)
      ASSERT_TRUE(worked(ncclAllReduce(&values[i << 20], &values[i << 20], count, ncclFloat32,
                                       ncclSum, comms[i], nullptr)));
    ASSERT_TRUE(worked(ncclGroupSimulateEnd(&info)));
    times_us[round] = info.estimatedTime;
  }
  EXPECT_GT(times_us[0], 0);
  EXPECT_GT(times_us[1], times_us[0]);
  EXPECT_EQ(values[0], 1);
  expect_sum(comms);
  destroy(comms);
}

TEST(NcclGroup, OnAStreamNeedsADriver) {
  const std::vector<ncclComm_t> comms = make_ranks(1);
  int value = 1;
  const auto stream = reinterpret_cast<cudaStream_t>(0x1000);
  const ncclResult_t result =
      ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], stream);
  if (last_text().find("no CUDA driver") == std::string::npos)
    GTEST_SKIP() << "there is a CUDA driver here";
  EXPECT_EQ(result, ncclInvalidUsage);
  destroy(comms);
}

}  // namespace
}  // namespace tutti::nccl::test
