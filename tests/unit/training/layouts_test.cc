// layouts_test.cc: tensor, pipeline and expert parallelism, alone and composed with sharded data
// parallelism, train what one process trains.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "unit/training/layout_world.hpp"

namespace tutti::training::test {
namespace {

constexpr int kSteps = 20;

// Rounding in another order: of float64 1e-10, of float32 1e-5 over these steps.
double loss_tolerance(DataType type) { return type == DataType::float64 ? 1e-10 : 1e-5; }

struct Case {
  std::string name;
  Mesh mesh;
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  int chunks = 1;
  Zero zero = Zero::replicate;
  bool experts = false;
  bool bits = false;  // equal to one process to the bit
  bool gpt2 = false, tied = false;
};

EngineOptions options_of(const Case& c, DataType type) {
  EngineOptions options = small_options(type);
  options.mesh = c.mesh;
  options.sequence_parallel = c.sequence_parallel;
  options.schedule = c.schedule;
  options.chunks_per_rank = c.chunks;
  options.data.zero = c.zero;
  options.data.bucket_bytes = 16 << 10;
  options.micro_batches = 4;
  if (c.gpt2) {
    options.model.architecture = Architecture::gpt2;
    options.model.kv_heads = options.model.heads;
  }
  options.model.tied = c.tied;
  if (c.experts) {
    options.model.architecture = Architecture::mixtral;
    options.model.experts = 4;
    options.model.experts_per_token = 2;
    options.model.balance_coefficient = 0.02;
  }
  return options;
}

Trained serial(const Case& c, DataType type) {
  Case alone = c;
  alone.mesh = Mesh();
  alone.sequence_parallel = false;
  alone.chunks = 1;
  alone.zero = Zero::replicate;
  return train(options_of(alone, type), kSteps);
}

class Layouts : public testing::TestWithParam<Case> {};

void expect_equal(const Case& c, DataType type) {
  const Trained expected = serial(c, type);
  const Trained trained = train(options_of(c, type), kSteps);
  EXPECT_LE(difference(trained.losses, expected.losses), loss_tolerance(type));
  EXPECT_LE(difference(trained.norms, expected.norms), 100 * loss_tolerance(type));
  EXPECT_LE(difference(trained.balance, expected.balance), 100 * loss_tolerance(type));
  EXPECT_LE(weight_difference(trained, expected), 100 * loss_tolerance(type));
  if (!c.bits) return;
  EXPECT_EQ(trained.losses, expected.losses);
  EXPECT_TRUE(trained.weights == expected.weights);
}

TEST_P(Layouts, TrainWhatOneProcessTrainsInDouble) { expect_equal(GetParam(), DataType::float64); }

TEST_P(Layouts, TrainWhatOneProcessTrainsInFloat) { expect_equal(GetParam(), DataType::float32); }

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, Mesh with) -> Case& {
    all.push_back({std::move(name), with});
    return all.back();
  };
  add("tp2", mesh_of(1, 1, 1, 2));
  add("tp4", mesh_of(1, 1, 1, 4));
  add("tp2_sp", mesh_of(1, 1, 1, 2)).sequence_parallel = true;
  add("tp4_sp", mesh_of(1, 1, 1, 4)).sequence_parallel = true;
  add("pp2", mesh_of(2, 1, 1, 1)).bits = true;
  add("pp4", mesh_of(4, 1, 1, 1)).bits = true;
  add("pp4_gpipe", mesh_of(4, 1, 1, 1)).schedule = "gpipe";
  add("pp4_zb", mesh_of(4, 1, 1, 1)).schedule = "zb-h1";
  Case& interleaved = add("pp2_interleaved", mesh_of(2, 1, 1, 1));
  interleaved.schedule = "interleaved";
  interleaved.chunks = 2;
  interleaved.bits = true;
  add("pp2_tied", mesh_of(2, 1, 1, 1)).tied = true;
  all.back().bits = true;
  add("gpt2_tp2_pp2_sp", mesh_of(2, 1, 1, 2)).gpt2 = true;
  all.back().tied = true;
  all.back().sequence_parallel = true;
  add("tp2_pp2_dp2", mesh_of(2, 2, 1, 2));
  add("fsdp2_tp2_pp2", mesh_of(2, 1, 2, 2)).zero = Zero::values;
  add("hsdp2x2_tp2", mesh_of(1, 2, 2, 2)).zero = Zero::values;
  add("ep2", mesh_of(1, 2, 1, 1, 2)).experts = true;
  // With one micro-batch on each rank, experts add those of all ranks as one process adds its own.
  add("ep4_bits", mesh_of(1, 1, 4, 1, 4)).experts = true;
  all.back().bits = true;
  add("ep2_bits", mesh_of(1, 1, 4, 1, 2)).experts = true;
  all.back().bits = true;
  add("ep2_dp2", mesh_of(1, 4, 1, 1, 2)).experts = true;
  add("ep2_fsdp4", mesh_of(1, 1, 4, 1, 2)).experts = true;
  all.back().zero = Zero::values;
  add("ep2_tp2_pp2", mesh_of(2, 1, 2, 2, 2)).experts = true;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Meshes, Layouts, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& c) { return c.param.name; });

}  // namespace
}  // namespace tutti::training::test
