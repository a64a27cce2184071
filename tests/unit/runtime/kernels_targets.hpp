// kernels_targets.hpp: lets a test run once for every instruction set that the kernels are compiled
// for and this processor has.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/kernels/kernels.hpp"
#include "runtime/kernels/targets.hpp"
// After the targets.
#include "hwy/highway.h"

namespace tutti::runtime::kernels {

inline std::vector<std::int64_t> runnable_targets() {
  const std::int64_t here = hwy::SupportedTargets() | HWY_STATIC_TARGET;
  std::vector<std::int64_t> targets;
  for (std::int64_t rest = here & HWY_TARGETS; rest != 0; rest &= rest - 1)
    targets.push_back(rest & -rest);
  return targets;
}

inline std::string name_of(const testing::TestParamInfo<std::int64_t>& target) {
  return hwy::TargetName(target.param);
}

class OnTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    ASSERT_EQ(active_target(), hwy::TargetName(GetParam()));
  }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

}  // namespace tutti::runtime::kernels
