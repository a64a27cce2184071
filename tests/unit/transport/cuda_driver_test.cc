// That the CUDA driver is not there, and why.
#include "transport/cuda/driver.hpp"

#include <gmock/gmock.h>

namespace tutti::transport::cuda {
namespace {

using ::testing::HasSubstr;

TEST(CudaDriverAbsent, NamesTheLibrary) {
  const Found found = find_in("libtutti-has-no-such-library.so.1");
  EXPECT_EQ(found.driver, nullptr);
  EXPECT_THAT(found.reason, HasSubstr("no CUDA driver: libtutti-has-no-such-library.so.1"));
}

TEST(CudaDriverAbsent, NamesTheFunctionThatAnotherLibraryLacks) {
  const Found found = find_in("libm.so.6");
  EXPECT_EQ(found.driver, nullptr);
  EXPECT_THAT(found.reason, HasSubstr("it has no cuInit"));
}

TEST(CudaDriverAbsent, IsSaidOfThisMachine) {
  const Found& found = find();
  if (found.driver != nullptr) GTEST_SKIP() << "this machine has a CUDA driver";
  EXPECT_THAT(found.reason, HasSubstr("no CUDA driver: libcuda.so.1: "));
  EXPECT_EQ(&find(), &found);
}

}  // namespace
}  // namespace tutti::transport::cuda
