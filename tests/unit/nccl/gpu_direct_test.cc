// What settings and the machine say of network cards and the memory of GPUs.
#include "nccl/gpu_direct.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/topology/files.hpp"

namespace tutti::nccl::test {
namespace {

using base::GpuDirectChoice;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(NcclGpuDirect, LooksForCards) {
  const tutti::testing::TempDir dir;
  EXPECT_FALSE(has_rdma_card(dir.path()));
  std::filesystem::create_directories(dir.path() + "/sys/class/infiniband");
  EXPECT_FALSE(has_rdma_card(dir.path())) << "a driver without a card";
  std::filesystem::create_directories(dir.path() + "/sys/class/infiniband/mlx5_0");
  EXPECT_TRUE(has_rdma_card(dir.path()));
}

TEST(NcclGpuDirect, WantsACardUnlessItIsAskedFor) {
  const auto with = network_wishes(GpuDirectChoice::automatic, GpuDirectChoice::automatic, true);
  EXPECT_THAT(with.why_no_reads, IsEmpty());
  EXPECT_THAT(with.why_no_writes, IsEmpty());
  const auto without =
      network_wishes(GpuDirectChoice::automatic, GpuDirectChoice::automatic, false);
  EXPECT_THAT(without.why_no_reads, HasSubstr("no InfiniBand or RoCE card"));
  EXPECT_EQ(without.why_no_reads, without.why_no_writes);
  const auto asked = network_wishes(GpuDirectChoice::on, GpuDirectChoice::automatic, false);
  EXPECT_THAT(asked.why_no_reads, IsEmpty());
  EXPECT_THAT(asked.why_no_writes, IsEmpty());
}

TEST(NcclGpuDirect, ForbidsWhatIsForbiddenAndSaysByWhom) {
  const auto off = network_wishes(GpuDirectChoice::off, GpuDirectChoice::automatic, true);
  EXPECT_EQ(off.why_no_reads, "TUTTI_GPU_DIRECT=off");
  EXPECT_EQ(off.why_no_writes, "TUTTI_GPU_DIRECT=off");
  const auto receive = network_wishes(GpuDirectChoice::receive, GpuDirectChoice::automatic, false);
  EXPECT_EQ(receive.why_no_reads, "TUTTI_GPU_DIRECT=receive");
  EXPECT_THAT(receive.why_no_writes, IsEmpty());
  const auto level = network_wishes(GpuDirectChoice::automatic, GpuDirectChoice::off, false);
  EXPECT_EQ(level.why_no_writes, "NCCL_NET_GDR_LEVEL=LOC");
  const auto read = network_wishes(GpuDirectChoice::automatic, GpuDirectChoice::receive, true);
  EXPECT_EQ(read.why_no_reads, "NCCL_NET_GDR_READ=0");
  EXPECT_THAT(read.why_no_writes, IsEmpty());
  EXPECT_THAT(
      network_wishes(GpuDirectChoice::automatic, GpuDirectChoice::receive, false).why_no_writes,
      HasSubstr("no InfiniBand"));
}

// What Tutti's own variable says counts for more.
TEST(NcclGpuDirect, IsWhatTuttisVariableSays) {
  const auto on = network_wishes(GpuDirectChoice::on, GpuDirectChoice::off, false);
  EXPECT_THAT(on.why_no_reads, IsEmpty());
  EXPECT_THAT(on.why_no_writes, IsEmpty());
}

}  // namespace
}  // namespace tutti::nccl::test
