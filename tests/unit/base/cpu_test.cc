// cpu_test.cc: core lists and binding, on whatever machine the test runs.
#include "base/cpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace tutti::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CpuList, ReadsWhatTheKernelWrites) {
  EXPECT_THAT(parse_cpu_list("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(parse_cpu_list("5"), ElementsAre(5));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_THAT(parse_cpu_list("1,x,3"), ElementsAre(1));
}

TEST(CpuList, AscendsSoThatNoTextGrowsWithoutBound) {
  EXPECT_THAT(parse_cpu_list("0-3,2-5"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(parse_cpu_list("4,4"), ElementsAre(4));
  std::string often = "0-1048576";
  for (int i = 0; i < 20; ++i) often += ",0-1048576";
  EXPECT_EQ(parse_cpu_list(often).size(), 1048577U);
}

TEST(Cores, EachHardwareThreadStandsOnce) {
  const auto cores = allowed_cores();
  ASSERT_FALSE(cores.empty());
  std::vector<int> cpus;
  for (const Core& core : cores) {
    EXPECT_FALSE(core.empty());
    cpus.insert(cpus.end(), core.begin(), core.end());
  }
  std::sort(cpus.begin(), cpus.end());
  EXPECT_EQ(std::adjacent_find(cpus.begin(), cpus.end()), cpus.end());
  EXPECT_GE(usable_cpu_count(), 1);
  EXPECT_LE(static_cast<std::size_t>(usable_cpu_count()), cpus.size());
}

TEST(Bind, RestrictsTheThreadThatAsks) {
  const Core last = allowed_cores().back();
  std::vector<Core> seen;
  Status status;
  std::thread([&] {
    status = bind_to(last);
    seen = allowed_cores();
  }).join();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(seen, ElementsAre(last));
}

TEST(Bind, RefusesCoresThatAreNotThere) {
  EXPECT_EQ(bind_to(std::vector<int>{(1 << 16) - 1}).code(), StatusCode::system_error);
  EXPECT_EQ(bind_to({}).code(), StatusCode::system_error);
}

}  // namespace
}  // namespace tutti::base
