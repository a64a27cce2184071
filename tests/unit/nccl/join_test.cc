// Which way the ranks of a new communicator talk: by memory where all are threads of one process,
// unless the environment says otherwise. Each case in a process of its own, because the environment
// is read once.
#include "nccl/join.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace tutti::nccl::test {
namespace {

// Joins two threads, and ends the process: well if both talk that way.
[[noreturn]] void end_if_joined_by(const char* variable, const char* value, const char* transport) {
  ::alarm(60);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  if (variable != nullptr) ::setenv(variable, value, 1);
  const auto id = make_unique_id("lo");
  bool well[2] = {};
  std::thread threads[2];
  for (Rank rank = 0; rank < 2; ++rank)
    threads[rank] = std::thread([&, rank] {
      auto joined = join({*id, rank, 2, {}});
      well[rank] = joined.ok() && joined->transport_name() == transport && joined->barrier().ok();
      if (!well[rank])
        std::fprintf(
            stderr, "%s\n",
            joined.ok() ? joined->transport_name().c_str() : joined.status().to_string().c_str());
    });
  for (std::thread& thread : threads) thread.join();
  std::_Exit(well[0] && well[1] ? 0 : 1);
}

class NcclJoinDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(NcclJoinDeathTest, ThreadsTalkThroughMemory) {
  EXPECT_EXIT(end_if_joined_by(nullptr, nullptr, "memory"), ::testing::ExitedWithCode(0), "");
}

TEST_F(NcclJoinDeathTest, SharedMemoryCanBeDisabled) {
  EXPECT_EXIT(end_if_joined_by("NCCL_SHM_DISABLE", "1", "tcp"), ::testing::ExitedWithCode(0), "");
}

TEST_F(NcclJoinDeathTest, TuttisOwnVariableIsHeeded) {
  EXPECT_EXIT(end_if_joined_by("TUTTI_TRANSPORT", "shm", "shm"), ::testing::ExitedWithCode(0), "");
}

TEST(NcclJoin, OfAllAtOnceIsThroughMemory) {
  const auto all = join_all(3);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(all->size(), 3U);
  EXPECT_EQ((*all)[2].rank(), 2);
  EXPECT_EQ((*all)[2].transport_name(), "memory");
}

}  // namespace
}  // namespace tutti::nccl::test
