// Communicators of the NCCL interface: how they are made, parted, shrunk and ended.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "unit/nccl/world.hpp"

namespace tutti::nccl::test {
namespace {

class NcclWorlds : public ::testing::TestWithParam<int> {};

TEST_P(NcclWorlds, AreMadeByOneThread) {
  const std::vector<ncclComm_t> comms = make_ranks(GetParam());
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_EQ(rank_of(comms[static_cast<std::size_t>(rank)]), rank);
    EXPECT_EQ(size_of(comms[static_cast<std::size_t>(rank)]), GetParam());
  }
  expect_sum(comms);
  destroy(comms);
}

TEST_P(NcclWorlds, AreMadeByThreads) {
  const ncclUniqueId id = fresh_id();
  on_threads(GetParam(), [&](int rank) {
    ncclComm_t comm = nullptr;
    ASSERT_TRUE(worked(ncclCommInitRank(&comm, GetParam(), id, rank)));
    for (int round = 0; round < 3; ++round) {
      double value = rank + round;
      EXPECT_TRUE(worked(ncclAllReduce(&value, &value, 1, ncclFloat64, ncclMax, comm, nullptr)));
      EXPECT_EQ(value, GetParam() - 1 + round);
    }
    EXPECT_TRUE(worked(ncclCommFinalize(comm)));
    EXPECT_TRUE(worked(ncclCommDestroy(comm)));
  });
}

TEST_P(NcclWorlds, AreMadeAllAtOnce) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(GetParam()));
  ASSERT_TRUE(worked(ncclCommInitAll(comms.data(), GetParam(), nullptr)));
  expect_sum(comms);
  for (int rank = 0; rank < GetParam(); ++rank) {
    int device = -1;
    EXPECT_TRUE(worked(ncclCommCuDevice(comms[static_cast<std::size_t>(rank)], &device)));
    EXPECT_EQ(device, rank);
  }
  destroy(comms);
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclWorlds, ::testing::Values(1, 2, 3, 5, 9),
                         [](const auto& param) { return std::to_string(param.param) + "_ranks"; });

TEST(NcclCommunicator, OfOneIdCanBeMadeAgain) {
  const ncclUniqueId id = fresh_id();
  for (int round = 0; round < 3; ++round)
    on_threads(2, [&](int rank) {
      ncclComm_t comm = nullptr;
      ASSERT_TRUE(worked(ncclCommInitRank(&comm, 2, id, rank)));
      EXPECT_TRUE(worked(ncclCommDestroy(comm)));
    });
}

TEST(NcclCommunicator, IsMadeBehindTheCaller) {
  const ncclUniqueId id = fresh_id();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<ncclComm_t> comms(3);
  for (int rank = 0; rank < 3; ++rank) {
    ncclComm_t& comm = comms[static_cast<std::size_t>(rank)];
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 3, id, rank, &config), ncclInProgress);
    ASSERT_NE(comm, nullptr);
    if (rank < 2) {
      // The last rank has not come yet.
      ncclResult_t state = ncclSuccess;
      EXPECT_TRUE(worked(ncclCommGetAsyncError(comm, &state)));
      EXPECT_EQ(state, ncclInProgress);
      int value = 0;
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
                ncclInvalidUsage);
      EXPECT_NE(last_text().find("still being made"), std::string::npos) << last_text();
    }
  }
  for (const ncclComm_t comm : comms) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ASSERT_TRUE(worked(ncclCommGetAsyncError(comm, &state)));
    EXPECT_EQ(state, ncclSuccess);
  }
  expect_sum(comms);
  destroy(comms);
}

TEST(NcclCommunicator, ThatIsNotMadeYetCanBeAborted) {
  const ncclUniqueId id = fresh_id();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(worked(ncclCommAbort(comm)));
  // Of the 30 s for which rank 1 would have been waited for.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument);
}

TEST(NcclCommunicator, IsLeftByWhoWaitsWhenItIsAborted) {
  const std::vector<ncclComm_t> comms = make_ranks(2);
  std::atomic<bool> waits{false};
  std::thread waiter([&] {
    float value = 1;
    waits = true;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[0], nullptr),
              ncclInvalidUsage);
    EXPECT_NE(last_text().find("abort"), std::string::npos) << last_text();
  });
  while (!waits) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(worked(ncclCommAbort(comms[0])));
  waiter.join();
  // What rank 0 had sent by then may serve one call of rank 1, and no second one.
  float value = 1;
  static_cast<void>(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[1], nullptr));
  EXPECT_NE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[1], nullptr), ncclSuccess);
  ncclResult_t state = ncclSuccess;
  EXPECT_TRUE(worked(ncclCommGetAsyncError(comms[1], &state)));
  EXPECT_NE(state, ncclSuccess);
  EXPECT_TRUE(worked(ncclCommDestroy(comms[1])));
}

TEST(NcclCommunicator, ThatIsRevokedEndsCallsOfAll) {
  const std::vector<ncclComm_t> comms = make_ranks(3);
  std::thread waiter([&] {
    float value = 1;
    EXPECT_NE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[0], nullptr),
              ncclSuccess);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(worked(ncclCommRevoke(comms[2], NCCL_REVOKE_DEFAULT)));
  waiter.join();
  EXPECT_EQ(ncclCommRevoke(comms[1], 7), ncclInvalidArgument);
  destroy(comms);
}

TEST(NcclCommunicator, IsPartedByColors) {
  const std::vector<ncclComm_t> comms = make_ranks(5);
  std::vector<ncclComm_t> parts(5);
  ASSERT_TRUE(worked(ncclGroupStart()));
  for (int rank = 0; rank < 5; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    // Ranks 1 and 3 in reverse order, 0 and 2 in theirs, 4 in none.
    const int color = rank == 4 ? NCCL_SPLIT_NOCOLOR : rank % 2;
    ASSERT_TRUE(worked(ncclCommSplit(comms[i], color, -rank * (rank % 2), &parts[i], nullptr)));
  }
  ASSERT_TRUE(worked(ncclGroupEnd()));
  EXPECT_EQ(parts[4], nullptr);
  EXPECT_EQ(rank_of(parts[3]), 0);
  EXPECT_EQ(rank_of(parts[1]), 1);
  EXPECT_EQ(rank_of(parts[2]), 1);
  EXPECT_EQ(size_of(parts[0]), 2);
  expect_sum({parts[0], parts[2]});
  expect_sum({parts[3], parts[1]});
  expect_sum(comms);
  destroy(parts);
  destroy(comms);
}

class NcclShrunk : public ::testing::TestWithParam<int> {};

TEST_P(NcclShrunk, GoOnWithoutSome) {
  const std::vector<ncclComm_t> comms = make_ranks(5);
  int excluded[] = {3, 1, 3};
  std::vector<ncclComm_t> left(5);
  ASSERT_TRUE(worked(ncclGroupStart()));
  for (const int rank : {0, 2, 4}) {
    const auto i = static_cast<std::size_t>(rank);
    ASSERT_TRUE(worked(ncclCommShrink(comms[i], excluded, 3, &left[i], nullptr, GetParam())));
  }
  ASSERT_TRUE(worked(ncclGroupEnd()));
  EXPECT_EQ(rank_of(left[2]), 1);
  EXPECT_EQ(rank_of(left[4]), 2);
  EXPECT_EQ(size_of(left[4]), 3);
  expect_sum({left[0], left[2], left[4]});
  // Without an abort the parent is what it was.
  if (GetParam() == NCCL_SHRINK_DEFAULT) expect_sum(comms);
  destroy(left);
  destroy(comms);
}

INSTANTIATE_TEST_SUITE_P(Flags, NcclShrunk,
                         ::testing::Values(NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT),
                         [](const auto& param) {
                           return param.param == NCCL_SHRINK_ABORT ? "abort" : "planned";
                         });

TEST(NcclCommunicator, ShrinksWhileARankHangsInACall) {
  const std::vector<ncclComm_t> comms = make_ranks(3);
  std::thread waiter([&] {
    float value = 1;
    EXPECT_NE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[0], nullptr),
              ncclSuccess);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  int excluded[] = {2};
  ncclComm_t left[2] = {};
  ASSERT_TRUE(worked(ncclGroupStart()));
  for (std::size_t i = 0; i < 2; ++i)
    ASSERT_TRUE(
        worked(ncclCommShrink(comms[i], excluded, 1, &left[i], nullptr, NCCL_SHRINK_ABORT)));
  ASSERT_TRUE(worked(ncclGroupEnd()));
  waiter.join();
  expect_sum({left[0], left[1]});
  destroy({left[0], left[1]});
  destroy(comms);
}

TEST(NcclCommunicator, IsCalledByItsNameWhereItFails) {
  const ncclUniqueId id = fresh_id();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "experts";
  ncclComm_t comm = nullptr;
  ASSERT_TRUE(worked(ncclCommInitRankConfig(&comm, 1, id, 0, &config)));
  ASSERT_TRUE(worked(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT)));
  float value = 1;
  EXPECT_NE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess);
  EXPECT_NE(last_text().find("communicator 'experts'"), std::string::npos) << last_text();
  EXPECT_TRUE(worked(ncclCommDestroy(comm)));
}

TEST(NcclCommunicator, ThatCannotBeMadeIsNull) {
  const ncclUniqueId id = fresh_id();
  ncclComm_t comm = reinterpret_cast<ncclComm_t>(&comm);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(last_text(), "ncclCommInitRank: invalid_argument: there is no rank 2 of 2");
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  ncclUniqueId other = {};
  EXPECT_EQ(ncclCommInitRank(&comm, 1, other, 0), ncclInvalidArgument);
  EXPECT_NE(last_text().find("ncclGetUniqueId"), std::string::npos);
}

TEST(NcclCommunicator, ThatWasGivenBackIsAnError) {
  const std::vector<ncclComm_t> comms = make_ranks(1);
  destroy(comms);
  int count = 0;
  EXPECT_EQ(ncclCommCount(comms[0], &count), ncclInvalidArgument);
  EXPECT_NE(last_text().find("destroyed or aborted before"), std::string::npos);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(nullptr, &count), ncclInvalidArgument);
}

}  // namespace
}  // namespace tutti::nccl::test
