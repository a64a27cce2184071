// instruction_sets.hpp: runs tests of vector loops on every instruction set that they were compiled
// for and this processor has.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "training/ops/targets.hpp"
// After targets.hpp.
#include "hwy/highway.h"

namespace tutti::training::test {

inline std::vector<std::int64_t> instruction_sets() {
  std::vector<std::int64_t> sets;
  const std::int64_t here = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
  for (std::int64_t rest = here; rest != 0; rest &= rest - 1) sets.push_back(rest & -rest);
  return sets;
}

// A test that is run once for each of instruction_sets().
class OnEveryInstructionSet : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  // Highway's portable vectors convert elements to integers one by one, a NaN as well, which C++
  // leaves undefined: a sanitizer ends there, in Highway.
  static bool converts_nan() {
#if defined(TUTTI_SANITIZED)
    return GetParam() != HWY_EMU128;
#else
    return true;
#endif
  }
};

inline std::string instruction_set_name(const ::testing::TestParamInfo<std::int64_t>& info) {
  return hwy::TargetName(info.param);
}

}  // namespace tutti::training::test
