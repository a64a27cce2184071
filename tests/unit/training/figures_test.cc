// figures_test.cc: that the planner's formulas give the numbers that papers and makers published,
// and that its estimate of a real model adds up.
#include "training/plan/figures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "training/plan/memory.hpp"
#include "training/plan/pipeline_generators.hpp"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;

constexpr double kBillion = 1e9;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kDay = 86400;

Recipe recipe_of(std::string_view name) {
  const Result<Recipe> found = find_recipe(name);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? *found : Recipe{};
}

// ---- Memory ----

TEST(MemoryTest, RecipesAreNamed) {
  EXPECT_EQ(recipe_of("f32").total(), 16);
  EXPECT_EQ(recipe_of("bf16").total(), 18);
  EXPECT_EQ(recipe_of("zero-fp16").total(), 16);  // ZeRO (2020), section 3.1
  EXPECT_EQ(recipe_of("bf16-only").total(), 8);
  EXPECT_EQ(recipe_of("no-master").total(), 12);
  const Result<Recipe> unknown = find_recipe("fp4");
  EXPECT_THAT(unknown.status().message(), HasSubstr("'fp4'; there are f32, bf16, zero-fp16"));
}

// Megatron-LM's documentation of the distributed optimizer: bytes of a parameter without it and
// with it on d ranks: 20 | 4 + 16/d, 18 | 6 + 12/d, 16 | 8 + 8/d.
TEST(MemoryTest, MegatronsDistributedOptimizer) {
  for (const int d : {1, 2, 8, 64}) {
    EXPECT_DOUBLE_EQ(state_bytes(recipe_of("megatron-fp16"), 1, 1, d).total(), 4 + 16.0 / d);
    EXPECT_DOUBLE_EQ(state_bytes(recipe_of("megatron-bf16"), 1, 1, d).total(), 6 + 12.0 / d);
    EXPECT_DOUBLE_EQ(state_bytes(recipe_of("megatron-fp32"), 1, 1, d).total(), 8 + 8.0 / d);
  }
}

// ZeRO (2020), table 1: GB of a device by the number of devices, for each of three models with
// stages 1, 2 and 3. The table gives some cells rounded and some cut off.
TEST(MemoryTest, TheTableOfZero) {
  struct Row {
    int devices;
    double cells[9];
  };
  const Row rows[] = {
      {1, {120, 120, 120, 2048, 2048, 2048, 16000, 16000, 16000}},
      {4, {52.5, 41.3, 30, 896, 704, 512, 7000, 5500, 4000}},
      {16, {35.6, 21.6, 7.5, 608, 368, 128, 4750, 2875, 1000}},
      {64, {31.4, 16.6, 1.88, 536, 284, 32, 4187, 2218, 250}},
      {256, {30.4, 15.4, 0.47, 518, 263, 8, 4046, 2054, 62.5}},
      {1024, {30.1, 15.1, 0.12, 513, 257, 2, 4011, 2013, 15.6}},
  };
  const double models[] = {7.5, 128, 1000};
  for (const Row& row : rows) {
    for (int cell = 0; cell < 9; ++cell) {
      const double published = row.cells[cell];
      const double ours = state_bytes(recipe_of("zero-fp16"), models[cell / 3] * kBillion,
                                      cell % 3 + 1, row.devices)
                              .total() /
                          kBillion;
      const double last_digit = published > 120 ? 1 : published < 2 ? 0.0051 : 0.051;
      EXPECT_NEAR(ours, published, last_digit)
          << row.devices << " devices, model " << models[cell / 3] << ", stage " << cell % 3 + 1;
    }
  }
}

TEST(MemoryTest, ZeroDividesEachStateFromItsStageOn) {
  const Recipe recipe = recipe_of("zero-fp16");
  const double p = 1e6;
  EXPECT_DOUBLE_EQ(state_bytes(recipe, p, 0, 8).total(), 16 * p);
  EXPECT_DOUBLE_EQ(state_bytes(recipe, p, 1, 8).total(), 4 * p + 12 * p / 8);
  EXPECT_DOUBLE_EQ(state_bytes(recipe, p, 2, 8).total(), 2 * p + 14 * p / 8);
  EXPECT_DOUBLE_EQ(state_bytes(recipe, p, 3, 8).total(), 16 * p / 8);
  // ZeRO, section 7: no more traffic than data parallelism, or half as much again.
  EXPECT_EQ(zero_volume(1), zero_volume(0));
  EXPECT_EQ(zero_volume(2), zero_volume(0));
  EXPECT_EQ(zero_volume(3), 1.5 * zero_volume(0));
}

// Numbers that introductions to the subject quote. Each is right by some recipe, and they are not
// by the same.
TEST(MemoryTest, QuotedSizes) {
  const StateBytes seven = state_bytes(recipe_of("no-master"), 7 * kBillion, 0, 1);
  EXPECT_DOUBLE_EQ(seven.value, 14 * kBillion);
  EXPECT_DOUBLE_EQ(seven.optimizer, 56 * kBillion);
  EXPECT_DOUBLE_EQ(seven.gradient, 14 * kBillion);
  EXPECT_DOUBLE_EQ(seven.total(), 84 * kBillion);
  EXPECT_DOUBLE_EQ(state_bytes(recipe_of("no-master"), 175 * kBillion, 0, 1).total(), 2.1e12);
  EXPECT_DOUBLE_EQ(state_bytes(recipe_of("f32"), 175 * kBillion, 0, 1).value, 700 * kBillion);
  EXPECT_DOUBLE_EQ(state_bytes(recipe_of("bf16-only"), kBillion, 0, 1).total(), 8 * kBillion);
  EXPECT_DOUBLE_EQ(state_bytes(recipe_of("bf16-only"), 100 * kBillion, 3, 80).total(),
                   10 * kBillion);
}

// Korthikanti et al. (2022), table 2 and section 5: scores are 5 a s / h = 80 for GPT-3 and 64 for
// MT-NLG, so that selective recomputation saves 70 % and 65 %.
TEST(MemoryTest, ActivationsOfGpt) {
  const LayerShape gpt3{2048, 1, 12288, 96};
  const LayerShape mt_nlg{2048, 1, 20480, 128};
  const auto by_unit = [](const LayerShape& shape, int tp, bool split, Recompute what) {
    return gpt_activation_bytes(shape, tp, split, what) /
           (shape.sequence * shape.batch * shape.hidden);
  };
  EXPECT_DOUBLE_EQ(by_unit(gpt3, 1, false, Recompute::none), 34 + 80);
  EXPECT_DOUBLE_EQ(by_unit(mt_nlg, 1, false, Recompute::none), 34 + 64);
  EXPECT_DOUBLE_EQ(by_unit(gpt3, 8, false, Recompute::none), 10 + 24.0 / 8 + 80.0 / 8);
  EXPECT_DOUBLE_EQ(by_unit(gpt3, 8, true, Recompute::none), (34 + 80) / 8.0);
  EXPECT_DOUBLE_EQ(by_unit(gpt3, 8, false, Recompute::selective), 10 + 24.0 / 8);
  EXPECT_DOUBLE_EQ(by_unit(gpt3, 8, true, Recompute::selective), 34.0 / 8);
  EXPECT_DOUBLE_EQ(by_unit(gpt3, 8, false, Recompute::full), 2);
  const auto saved = [&](const LayerShape& shape) {
    return 1 -
           by_unit(shape, 8, true, Recompute::selective) / by_unit(shape, 8, true, Recompute::none);
  };
  EXPECT_EQ(std::lround(100 * saved(gpt3)), 70);
  EXPECT_EQ(std::lround(100 * saved(mt_nlg)), 65);
}

// Llama-3-405B with 126 layers and sequences of 4096: 63 GiB, if the mlp is four times as wide as
// the model, as is often assumed; its real width is 53,248 (Llama 3, table 3).
TEST(MemoryTest, ActivationsOfLlama405b) {
  EXPECT_EQ(mlp_activation_bytes(126, 4 * 16384, 4096, 2), 63 * kGiB);
  EXPECT_EQ(mlp_activation_bytes(126, 53248, 4096, 2), 51.1875 * kGiB);
}

// ---- Models ----

ModelConfig llama(std::int64_t hidden, std::int64_t layers, std::int64_t heads,
                  std::int64_t intermediate) {
  ModelConfig made;
  made.vocabulary = 128256;
  made.hidden = hidden;
  made.layers = layers;
  made.heads = heads;
  made.kv_heads = 8;
  made.head_size = 128;
  made.intermediate = intermediate;
  return made;
}

ModelConfig llama_8b() { return llama(4096, 32, 32, 14336); }
ModelConfig llama_405b() { return llama(16384, 126, 128, 53248); }

ModelConfig mixtral_8x7b() {
  ModelConfig made = llama_8b();
  made.architecture = Architecture::mixtral;
  made.vocabulary = 32000;
  made.experts = 8;
  made.experts_per_token = 2;
  return made;
}

ModelConfig gpt2() {
  ModelConfig made;
  made.architecture = Architecture::gpt2;
  made.vocabulary = 50257;
  made.hidden = 768;
  made.layers = 12;
  made.heads = made.kv_heads = 12;
  made.head_size = 64;
  made.intermediate = 3072;
  made.positions = 1024;
  made.tied = true;
  return made;
}

Mesh mesh_of(const MeshOptions& options, int world) {
  const Result<Mesh> made = make_mesh(options, world);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : Mesh{};
}

// The sums of the shapes in the models' published weights.
TEST(MemoryTest, ParametersOfPublishedModels) {
  const auto all = [](const ModelConfig& config) {
    return count_parameters(config, {config.layers, true, true}).total();
  };
  EXPECT_EQ(all(llama_8b()), 8'030'261'248);
  EXPECT_EQ(all(llama(8192, 80, 64, 28672)), 70'553'706'496);
  EXPECT_EQ(all(llama_405b()), 405'853'388'800);
  EXPECT_EQ(all(mixtral_8x7b()), 46'702'792'704);
  EXPECT_EQ(all(gpt2()), 124'439'808);
}

TEST(MemoryTest, PartsAddUpToTheModel) {
  const ModelConfig config = llama_8b();
  const std::int64_t h = config.hidden, layers = config.layers;
  const ParameterCount first = count_parameters(config, {20, true, false}, 8);
  const ParameterCount last = count_parameters(config, {12, false, true}, 8);
  // Norms are whole on all eight ranks, all else is split.
  const std::int64_t norms = (2 * layers + 1) * h;
  EXPECT_EQ(8 * (first.total() + last.total() - norms) + norms, 8'030'261'248);

  const ParameterCount expert_rank = count_parameters(mixtral_8x7b(), {32, true, true}, 1, 4);
  EXPECT_EQ(expert_rank.dense + 4 * expert_rank.experts, 46'702'792'704);
  // More ranks than heads of keys and values: two ranks have each.
  EXPECT_EQ(count_parameters(config, {1, false, false}, 16).total(),
            2 * h * 2 * 128 + 2 * h * 128 + 3 * h * 14336 / 16 + 2 * h);
  EXPECT_EQ(count_parameters(gpt2(), {12, true, true}).tied, 50257 * 768);
  EXPECT_EQ(count_parameters(gpt2(), {6, false, true}).tied, 0);
}

// ---- Formulas ----

// Narayanan et al. (2021), table 1: billions of parameters of ten models.
TEST(FiguresTest, ParametersOfMegatronsTable) {
  struct Row {
    double hidden, layers, billions;
  };
  const Row rows[] = {{2304, 24, 1.7},     {3072, 30, 3.6},    {4096, 36, 7.5},
                      {6144, 40, 18.4},    {8192, 48, 39.1},   {10240, 60, 76.1},
                      {12288, 80, 145.6},  {16384, 96, 310.1}, {20480, 105, 529.6},
                      {25600, 128, 1008.0}};
  for (const Row& row : rows) {
    const double ours = gpt_parameters({row.layers, row.hidden, 51200, 2048}) / kBillion;
    EXPECT_NEAR(ours, row.billions, 0.051) << row.billions;
  }
}

// The same, section 5: with recomputation, 8 operations for each token and parameter, but for
// scores and logits; 34 days for GPT-3 on 1024 GPUs at 140 TFLOP/s, 84 for a model of 10^12
// parameters on 3072 at 163.
TEST(FiguresTest, MegatronsOperationsAndDays) {
  const GptShape trillion{128, 25600, 51200, 2048};
  const double approximate = 8 * 3072 * trillion.sequence * gpt_parameters(trillion);
  EXPECT_NEAR(gpt_step_flops(trillion, 3072) / approximate, 1, 0.02);
  EXPECT_DOUBLE_EQ(gpt_step_flops({96, 12288, 0, 0.0}, 1), 0);
  const double scores =
      gpt_step_flops({96, 12288, 0, 2048}, 1) / (96.0 * 2048 * 96 * 12288 * 12288);
  EXPECT_NEAR(scores, 1 + 2048.0 / (6 * 12288), 1e-12);
  EXPECT_EQ(std::lround(training_seconds(300e9, 175e9, 1024, 140e12) / kDay), 34);
  EXPECT_NEAR(training_seconds(450e9, 1e12, 3072, 163e12) / kDay, 84, 1);
}

// Korthikanti et al., section 5: computing scores again costs GPT-3 2.7 % of the step and MT-NLG
// 1.6 %: the term s / (6 h) once more, which is what a token of twice as long a sequence adds.
TEST(FiguresTest, ScoresCostFewOperations) {
  const auto overhead = [](double layers, double hidden) {
    const double once = gpt_step_flops({layers, hidden, 51200, 2048}, 2);
    return gpt_step_flops({layers, hidden, 51200, 4096}, 1) / once - 1;
  };
  EXPECT_NEAR(100 * overhead(96, 12288), 2.7, 0.05);
  EXPECT_NEAR(100 * overhead(105, 20480), 1.6, 0.05);
}

// Eight layers of 8192 x 8192 on 8192 rows, on an H100: what a measured time is compared with.
TEST(FiguresTest, TimeOfAnMlpInTheory) {
  const Result<Device> h100 = find_device("h100");
  ASSERT_TRUE(h100.ok());
  const double flops = mlp_training_flops(8, 8192, 8192);
  EXPECT_EQ(flops, 26'388'279'066'624);
  EXPECT_NEAR(flops / h100->flops * 1e3, 26.67, 0.005);
}

// PaLM (2022), table 3 and appendix B: 238.3 thousand tokens a second on 6144 TPU v4 are 46.2 %.
TEST(FiguresTest, UtilisationOfPalm) {
  const Result<Device> tpu = find_device("tpu-v4");
  ASSERT_TRUE(tpu.ok());
  const double of_token = flops_per_token(540.35e9, 118, 48, 256, 2048);
  EXPECT_NEAR(100 * utilisation(of_token, 238.3e3, 6144, tpu->flops), 46.2, 0.05);
}

// Llama 3 (2024): 15.6 T tokens are 3.8e25 FLOP (section 3.2); 430 TFLOP/s are 43 % (table 4).
TEST(FiguresTest, OperationsOfLlama405b) {
  EXPECT_NEAR(flops_per_token(405e9, 0, 0, 0, 0) * 15.6e12, 3.8e25, 0.05e25);
  EXPECT_EQ(static_cast<int>(100 * 430e12 / find_device("h100")->flops), 43);
}

// NVIDIA's H100 (SXM): 989.4 TFLOP/s of dense bfloat16; 24,576 of them as Meta's clusters (2024).
TEST(FiguresTest, Devices) {
  const Result<Device> h100 = find_device("h100");
  ASSERT_TRUE(h100.ok());
  EXPECT_NEAR(h100->flops, 989.4e12, 0.05e12);
  EXPECT_NEAR(24576 * h100->flops, 24.3e18, 0.05e18);
  EXPECT_EQ(find_device("a100")->flops, 312e12);
  EXPECT_EQ(find_device("tpu-v5p")->flops, 459e12);
  EXPECT_EQ(find_device("mi325x")->memory_bytes, 256e9);
  EXPECT_EQ(find_device("trainium2")->flops, 667e12);
  EXPECT_THAT(find_device("abacus").status().message(), HasSubstr("there are v100, a100, h100"));
}

TEST(FiguresTest, Bubbles) {
  EXPECT_DOUBLE_EQ(bubble_overhead(4, 4), 3.0 / 4);
  EXPECT_DOUBLE_EQ(bubble_overhead(4, 8, 2), 3.0 / 16);
  EXPECT_DOUBLE_EQ(1 / (1 + bubble_overhead(4, 4)), 16.0 / 28);
}

// ---- The estimate ----

PlanEstimate estimated(const ModelConfig& config, const Mesh& mesh, const PlanOptions& options) {
  Result<PlanEstimate> made = estimate(config, mesh, options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *std::move(made) : PlanEstimate{};
}

double bytes_of(const RankEstimate& rank, MemoryKind kind) {
  return rank.bytes[static_cast<std::size_t>(kind)];
}

// The row of a rank's traffic; of 0 calls if there is none.
Traffic traffic_of(const RankEstimate& rank, MeshAxis axis, std::string_view what) {
  for (const Traffic& each : rank.traffic)
    if (each.axis == axis && each.what.find(what) != std::string::npos) return each;
  return {};
}

TEST(PlanTest, DataParallelSendsEachGradientTwice) {
  const double p = 8'030'261'248;
  const PlanEstimate plan = estimated(llama_8b(), mesh_of({}, 8), {.recipe = "bf16"});
  EXPECT_EQ(plan.parameters, 8'030'261'248);
  EXPECT_DOUBLE_EQ(bytes_of(plan.ranks[0], MemoryKind::parameter), 2 * p);
  EXPECT_DOUBLE_EQ(bytes_of(plan.ranks[0], MemoryKind::gradient), 4 * p);
  EXPECT_DOUBLE_EQ(bytes_of(plan.ranks[0], MemoryKind::optimizer), 12 * p);
  const Traffic sum = traffic_of(plan.ranks[0], MeshAxis::dp, "all_reduce");
  EXPECT_DOUBLE_EQ(sum.bytes, 2 * 7.0 / 8 * p * 4);
  EXPECT_EQ(plan.ranks[0].traffic.size(), 1u);
  EXPECT_EQ(plan.bubble_fraction, 0);
}

// Groups are 32 blocks, and the embedding with the head: all are gathered before forward, all but
// the latter again, and reduced once.
TEST(PlanTest, FsdpGathersTwiceAndReducesOnce) {
  const double p = 8'030'261'248;
  const double root = 2 * 128256.0 * 4096 + 4096;
  const PlanEstimate plan = estimated(llama_8b(), mesh_of({}, 8), {.zero_stage = 3});
  const RankEstimate& rank = plan.ranks[0];
  const Traffic forward = traffic_of(rank, MeshAxis::dp_shard, "values, forward");
  const Traffic backward = traffic_of(rank, MeshAxis::dp_shard, "values, backward");
  const Traffic scatter = traffic_of(rank, MeshAxis::dp_shard, "reduce_scatter");
  EXPECT_EQ(forward.calls, 33);
  EXPECT_EQ(backward.calls, 32);
  EXPECT_EQ(scatter.calls, 33);
  EXPECT_DOUBLE_EQ(forward.bytes, 7.0 / 8 * p * 2);
  EXPECT_DOUBLE_EQ(backward.bytes, 7.0 / 8 * (p - root) * 2);
  EXPECT_DOUBLE_EQ(scatter.bytes, 7.0 / 8 * p * 4);
  EXPECT_DOUBLE_EQ(rank.total_bytes() - bytes_of(rank, MemoryKind::activation), 18 * p / 8);
}

// With 4 shards and 2 replicas, three times through the inner axis and once, a fourth of it,
// through the outer one.
TEST(PlanTest, HsdpSendsLittleAcross) {
  const double p = 8'030'261'248;
  const PlanEstimate plan = estimated(llama_8b(), mesh_of({.dp_replicate = 2}, 8),
                                      {.micro_batches = 3, .zero_stage = 3, .recipe = "f32"});
  const RankEstimate& rank = plan.ranks[0];
  EXPECT_EQ(traffic_of(rank, MeshAxis::dp_shard, "values, forward").calls, 3 * 33);
  EXPECT_EQ(traffic_of(rank, MeshAxis::dp_shard, "values, backward").calls, 3 * 32);
  EXPECT_DOUBLE_EQ(traffic_of(rank, MeshAxis::dp_shard, "reduce_scatter").bytes,
                   3 * 3.0 / 4 * p * 4);
  EXPECT_DOUBLE_EQ(traffic_of(rank, MeshAxis::dp_replicate, "all_reduce").bytes,
                   2 * 1.0 / 2 * p / 4 * 4);
  const PlanEstimate kept =
      estimated(llama_8b(), mesh_of({.dp_replicate = 2}, 8),
                {.micro_batches = 3, .zero_stage = 3, .keep_values = true, .recipe = "f32"});
  EXPECT_EQ(traffic_of(kept.ranks[0], MeshAxis::dp_shard, "values, forward").calls, 33);
  EXPECT_EQ(traffic_of(kept.ranks[0], MeshAxis::dp_shard, "values, backward").calls, 0);
}

// Megatron-LM (2019): four all-reduces of [b s, h] for a layer; the embedding's and the head's are
// two more. With sequence parallelism (Korthikanti et al.) the same bytes in twice as many calls.
TEST(PlanTest, TensorParallelismReducesFourTimesALayer) {
  const Mesh mesh = mesh_of({.tp = 8}, 8);
  const PlanOptions options{.sequence = 4096, .micro_batch = 2, .micro_batches = 3};
  const PlanEstimate plan = estimated(llama_8b(), mesh, options);
  const Traffic sums = traffic_of(plan.ranks[0], MeshAxis::tp, "all_reduce activations");
  EXPECT_EQ(sums.calls, 3 * (4 * 32 + 2));
  EXPECT_DOUBLE_EQ(sums.bytes, 3.0 * (4 * 32 + 2) * 2 * 7 / 8 * (2 * 4096) * 4096 * 2);
  EXPECT_EQ(traffic_of(plan.ranks[0], MeshAxis::tp, "loss").calls, 9);

  PlanOptions split = options;
  split.sequence_parallel = true;
  const PlanEstimate other = estimated(llama_8b(), mesh, split);
  const Traffic gathers = traffic_of(other.ranks[0], MeshAxis::tp, "all_gather");
  const Traffic scatters = traffic_of(other.ranks[0], MeshAxis::tp, "reduce_scatter");
  EXPECT_EQ(gathers.calls, sums.calls);
  EXPECT_DOUBLE_EQ(gathers.bytes + scatters.bytes, sums.bytes);
  EXPECT_LT(bytes_of(other.ranks[0], MemoryKind::activation),
            bytes_of(plan.ranks[0], MemoryKind::activation));
}

TEST(PlanTest, PipelineRanksDifferAndSendToTheirNeighbours) {
  const Mesh mesh = mesh_of({.pp = 4, .dp_shard = 1}, 4);
  const PlanEstimate plan =
      estimated(llama(4096, 30, 32, 14336), mesh, {.sequence = 512, .micro_batches = 8});
  EXPECT_EQ(plan.ranks[0].layers, 8);
  EXPECT_EQ(plan.ranks[1].layers, 8);
  EXPECT_EQ(plan.ranks[3].layers, 7);
  std::int64_t parameters = 0;
  for (const RankEstimate& rank : plan.ranks) parameters += rank.parameters;
  EXPECT_EQ(parameters, plan.parameters);
  EXPECT_DOUBLE_EQ(plan.bubble_fraction, 3.0 / 11);
  const double message = 512.0 * 4096 * 2;
  EXPECT_DOUBLE_EQ(traffic_of(plan.ranks[0], MeshAxis::pp, "send activations").bytes, 8 * message);
  EXPECT_EQ(traffic_of(plan.ranks[0], MeshAxis::pp, "send gradients").calls, 0);
  EXPECT_DOUBLE_EQ(traffic_of(plan.ranks[3], MeshAxis::pp, "send gradients").bytes, 8 * message);
  EXPECT_EQ(traffic_of(plan.ranks[3], MeshAxis::pp, "send activations").calls, 0);
  // 1F1B: four micro-batches live on the first rank, three on the second, of as many layers.
  EXPECT_DOUBLE_EQ(bytes_of(plan.ranks[0], MemoryKind::activation) / 4,
                   bytes_of(plan.ranks[1], MemoryKind::activation) / 3);
}

TEST(PlanTest, TiedWeightsHaveASecondGradient) {
  const double table = 50257.0 * 768;
  const PlanEstimate one = estimated(gpt2(), mesh_of({}, 1), {.recipe = "f32"});
  EXPECT_DOUBLE_EQ(bytes_of(one.ranks[0], MemoryKind::parameter), 4 * 124439808.0);
  EXPECT_DOUBLE_EQ(bytes_of(one.ranks[0], MemoryKind::gradient), 4 * (124439808.0 + table));
  const PlanEstimate two =
      estimated(gpt2(), mesh_of({.pp = 2}, 2), {.micro_batches = 2, .recipe = "f32"});
  EXPECT_EQ(two.ranks[0].parameters + two.ranks[1].parameters, 124439808 + 50257 * 768);
  EXPECT_DOUBLE_EQ(traffic_of(two.ranks[1], MeshAxis::embedding, "tied").bytes, 4 * table);
}

TEST(PlanTest, ExpertsAreSharedByFewerRanks) {
  const Mesh mesh = mesh_of({.ep = 4, .experts = 8}, 8);
  const PlanEstimate plan =
      estimated(mixtral_8x7b(), mesh, {.sequence = 2048, .zero_stage = 1, .recipe = "bf16"});
  const ParameterCount count = count_parameters(mixtral_8x7b(), {32, true, true}, 1, 4);
  EXPECT_DOUBLE_EQ(
      bytes_of(plan.ranks[0], MemoryKind::optimizer),
      12.0 * static_cast<double>(count.dense) / 8 + 12.0 * static_cast<double>(count.experts) / 2);
  EXPECT_DOUBLE_EQ(traffic_of(plan.ranks[0], MeshAxis::edp, "reduce_scatter").bytes,
                   4.0 * static_cast<double>(count.experts) / 2);
  const Traffic routed = traffic_of(plan.ranks[0], MeshAxis::ep, "all_to_all");
  EXPECT_EQ(routed.calls, 4 * 32);
  EXPECT_DOUBLE_EQ(routed.bytes, 4.0 * 32 * 3 / 4 * 2048 * 2 * 4096 * 2);
  // Jiang et al.: Mixtral of experts (2024): 47 billion parameters, 13 billion of them active.
  EXPECT_EQ(std::llround(static_cast<double>(plan.parameters) / kBillion), 47);
  EXPECT_EQ(std::llround(static_cast<double>(plan.active_parameters) / kBillion), 13);
}

TEST(PlanTest, RecomputationTradesOperationsForMemory) {
  const auto with = [](Recompute what) {
    return estimated(llama_8b(), mesh_of({}, 8), {.sequence = 4096, .recompute = what});
  };
  const PlanEstimate none = with(Recompute::none), some = with(Recompute::selective),
                     full = with(Recompute::full);
  const auto kept = [](const PlanEstimate& plan) {
    return bytes_of(plan.ranks[0], MemoryKind::activation);
  };
  EXPECT_GT(kept(none), kept(some));
  EXPECT_GT(kept(some), kept(full));
  // Full: the inputs of 32 blocks, one block as a whole, and the head.
  const ActivationPlace place{4096, 4096, 1, 2};
  EXPECT_DOUBLE_EQ(kept(full), 32 * 4096.0 * 4096 * 2 +
                                   block_activation_bytes(llama_8b(), place, Recompute::none) +
                                   head_activation_bytes(llama_8b(), place));
  EXPECT_EQ(none.flops_per_step, none.flops_per_token * 8 * 4096);
  EXPECT_EQ(some.flops_per_step, none.flops_per_step);
  EXPECT_NEAR(full.flops_per_step / none.flops_per_step, 4.0 / 3, 0.03);
  EXPECT_LT(full.flops_per_step / none.flops_per_step, 4.0 / 3);  // not the head's
}

TEST(PlanTest, WhatDoesNotDivideIsRefused) {
  const auto error = [](const Mesh& mesh, const PlanOptions& options) {
    const Result<PlanEstimate> made = estimate(llama_8b(), mesh, options);
    EXPECT_EQ(made.status().code(), StatusCode::invalid_argument);
    return made.status().message();
  };
  const Mesh one = mesh_of({}, 1);
  EXPECT_THAT(error(mesh_of({.tp = 3}, 3), {}), HasSubstr("tp 3 does not divide the 32 heads"));
  EXPECT_THAT(error(mesh_of({.pp = 64}, 64), {}), HasSubstr("64 stages, but the model has 32"));
  EXPECT_THAT(error(mesh_of({.ep = 2, .experts = 8}, 2), {}), HasSubstr("no experts"));
  EXPECT_THAT(error(one, {.zero_stage = 4}), HasSubstr("zero_stage is 4"));
  EXPECT_THAT(error(one, {.sequence = 0}), HasSubstr("sequences of 0"));
  EXPECT_THAT(error(one, {.recipe = "none"}), HasSubstr("'none'"));
  EXPECT_THAT(error(one, {.schedule = "dualpipe"}), HasSubstr("'dualpipe'"));
  EXPECT_THAT(error(mesh_of({.pp = 4}, 4), {.micro_batches = 6, .schedule = "interleaved"}),
              HasSubstr("6 micro-batches % 4 ranks"));
  EXPECT_THAT(error(mesh_of({.tp = 8}, 8), {.sequence = 9, .sequence_parallel = true}),
              HasSubstr("9 rows"));
}

TEST(PlanTest, AScheduleOfOneselfMustFitTheMesh) {
  const auto error = [](const PipelineSchedule& schedule) {
    const Result<PlanEstimate> made =
        estimate(llama_8b(), mesh_of({.pp = 4}, 4), {.micro_batches = 8, .own_schedule = schedule});
    EXPECT_EQ(made.status().code(), StatusCode::invalid_argument);
    return made.status().message();
  };
  EXPECT_THAT(error(gpipe_schedule(2, 8)), HasSubstr("2 ranks and 8 micro-batches for pp 4"));
  EXPECT_THAT(error(gpipe_schedule(4, 3)), HasSubstr("4 ranks and 3 micro-batches for pp 4"));
  EXPECT_THAT(error(interleaved_schedule(4, 8, 9)), HasSubstr("36 stages, but the model has 32"));
}

// What no machine has is still told: more bytes than an int64 holds.
TEST(PlanTest, ActivationsMayBeManyBytes) {
  const std::int64_t most = std::int64_t{1} << 30;
  const PlanEstimate plan =
      estimated(llama_8b(), mesh_of({}, 1), {.sequence = most, .micro_batch = most});
  EXPECT_GT(bytes_of(plan.ranks[0], MemoryKind::activation), std::ldexp(1.0, 63));
}

// Llama 3's first stage of pre-training (table 4) of a plan: 8 x 16 x 128 on 16,384 GPUs.
TEST(PlanTest, TheTableTellsWhatMatters) {
  const Mesh mesh = mesh_of({.pp = 16, .tp = 8}, 16384);
  const PlanEstimate plan = estimated(
      llama_405b(), mesh,
      {.sequence = 8192, .micro_batches = 16, .zero_stage = 2, .sequence_parallel = true});
  EXPECT_EQ(plan.tokens_per_step, 16.0 * 1024 * 1024);  // 16 M tokens a batch, as published
  const std::string text = plan_table(plan);
  for (const char* part :
       {"16384 ranks: pp 16 x dp_replicate 1 x dp_shard 128 x tp 8 = 16384", "405853388800",
        "bubble 48.4 %", "optimizer", "dp_shard      reduce_scatter gradients", "send activations"})
    EXPECT_THAT(text, HasSubstr(part));
}

}  // namespace
}  // namespace tutti::training
