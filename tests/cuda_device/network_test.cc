// What a device by the CUDA driver says of network cards, on the stand-in for CUDA.
#include <gmock/gmock.h>

#include <cstdlib>

#include "cuda_device/cuda_devices.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tutti::testing::counts;

class CudaNetwork : public OnCudaDevices {
 protected:
  ~CudaNetwork() override { ::unsetenv("CUDA_STAND_IN_RDMA"); }
  static void let(const char* what) { ::setenv("CUDA_STAND_IN_RDMA", what, 1); }
};

TEST_F(CudaNetwork, MayDoNothingWithoutGpuDirect) {
  ::unsetenv("CUDA_STAND_IN_RDMA");
  const NetworkAccess access = device().network_access();
  EXPECT_EQ(access.kind, MemoryKind::cuda);
  EXPECT_THAT(access.why_no_reads, HasSubstr("CUDA stand-in 0"));
  EXPECT_THAT(access.why_no_reads, HasSubstr("does no GPUDirect RDMA"));
  EXPECT_EQ(access.why_no_writes, access.why_no_reads);
}

TEST_F(CudaNetwork, IsFlushedWhereTheDeviceDoesNotOrderIt) {
  let("flush");
  const NetworkAccess access = device().network_access();
  EXPECT_THAT(access.why_no_reads, IsEmpty());
  EXPECT_THAT(access.why_no_writes, IsEmpty());
  const std::size_t before = counts().flushes;
  EXPECT_TRUE(device().flush_network_writes().ok());
  EXPECT_EQ(counts().flushes, before + 1);
  fail_next("cuFlushGPUDirectRDMAWrites", 719);
  EXPECT_THAT(device().flush_network_writes().message(), HasSubstr("cuFlushGPUDirectRDMAWrites"));
}

TEST_F(CudaNetwork, NeedsNoFlushWhereTheDeviceOrdersIt) {
  let("ordered");
  EXPECT_THAT(device().network_access().why_no_writes, IsEmpty());
  const std::size_t before = counts().flushes;
  EXPECT_TRUE(device().flush_network_writes().ok());
  EXPECT_EQ(counts().flushes, before);
}

TEST_F(CudaNetwork, DoesNotWriteWhatCannotBeSeen) {
  let("unordered");
  const NetworkAccess access = device().network_access();
  EXPECT_THAT(access.why_no_reads, IsEmpty()) << "reading is another thing";
  EXPECT_THAT(access.why_no_writes, HasSubstr("neither orders what network cards write"));
}

TEST_F(CudaNetwork, WorksWithinTheDevicesContext) {
  const auto current = [&] { return *driver().current(); };
  const auto before = current();
  transport::cuda::Context inside = nullptr;
  const Status status = device(1).within([&] {
    inside = current();
    return Status(StatusCode::internal, "what it says");
  });
  EXPECT_EQ(status.message(), "what it says");
  EXPECT_EQ(inside, tutti::testing::context_of(driver(), 1));
  EXPECT_EQ(current(), before);
}

}  // namespace
}  // namespace tutti::runtime::gpu
