// data_parallel_test.cc: the ways to share a model among ranks with different data give the bits of
// one process, whatever they keep in parts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/training/layout_world.hpp"

namespace tutti::training::test {
namespace {

constexpr int kSteps = 20;

EngineOptions layout(int replicate, int shard, Zero zero) {
  EngineOptions options = small_options();
  options.model.layers = 2;
  options.mesh.dp_replicate = replicate;
  options.mesh.dp_shard = shard;
  options.data.zero = zero;
  options.data.bucket_bytes = 4 << 10;  // several buckets
  return options;
}

const Trained& serial() {
  static const Trained trained = train(layout(1, 1, Zero::replicate), kSteps);
  return trained;
}

struct Case {
  std::string name;
  int replicate, shard;
  Zero zero;
};

class DataParallelBits : public testing::TestWithParam<Case> {};

TEST_P(DataParallelBits, AreThoseOfOneProcess) {
  const Case& c = GetParam();
  const Trained trained = train(layout(c.replicate, c.shard, c.zero), kSteps);
  EXPECT_EQ(trained.losses, serial().losses);
  EXPECT_EQ(trained.norms, serial().norms);
  EXPECT_TRUE(trained.weights == serial().weights)
      << "weights differ by " << weight_difference(trained, serial());
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, DataParallelBits,
    testing::Values(Case{"ddp_2", 2, 1, Zero::replicate}, Case{"ddp_4", 4, 1, Zero::replicate},
                    Case{"ddp_8", 8, 1, Zero::replicate}, Case{"zero1_2", 1, 2, Zero::optimizer},
                    Case{"zero1_4", 1, 4, Zero::optimizer}, Case{"zero1_8", 1, 8, Zero::optimizer},
                    Case{"zero2_2", 1, 2, Zero::gradients}, Case{"zero2_4", 1, 4, Zero::gradients},
                    Case{"zero2_8", 1, 8, Zero::gradients}, Case{"fsdp_2", 1, 2, Zero::values},
                    Case{"fsdp_4", 1, 4, Zero::values}, Case{"fsdp_8", 1, 8, Zero::values},
                    Case{"hsdp_2x2", 2, 2, Zero::values}, Case{"hsdp_4x2", 4, 2, Zero::values},
                    Case{"hsdp_2x4", 2, 4, Zero::values}),
    [](const testing::TestParamInfo<Case>& c) { return c.param.name; });

TEST(DataParallel, TheSerialRunLearns) {
  const Trained& trained = serial();
  ASSERT_EQ(trained.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(trained.losses.back(), trained.losses.front() - 0.3);
}

}  // namespace
}  // namespace tutti::training::test
