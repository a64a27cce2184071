// block_test.cc: a transformer layer against differences, on several ranks, and with less kept for
// backward, which must change no bit.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "training/modules/block.hpp"
#include "training/modules/moe.hpp"
#include "unit/training/gradient_check.hpp"
#include "unit/training/sharded_run.hpp"

namespace tutti::training::test {
namespace {

ModelConfig config_of(Architecture architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.hidden = 8;
  config.heads = 4;
  config.kv_heads = architecture == Architecture::gpt2 ? 4 : 2;
  config.head_size = 2;
  config.intermediate = 12;
  config.layers = 2;
  if (architecture == Architecture::mixtral) config.experts = 4;
  return config;
}

MakeModule make_block(Architecture architecture, Recompute recompute = Recompute::none) {
  return [=](Context& context) {
    return std::make_unique<Block>(config_of(architecture), 3, context, recompute);
  };
}

constexpr Recompute kEvery[] = {Recompute::none, Recompute::selective, Recompute::full};

class BlockOf : public ::testing::TestWithParam<Architecture> {};

TEST_P(BlockOf, GradientsAreSlopes) {
  OneRank rank(DataType::float64, 2, 4);
  rank.context.balance_scale = 0.6;
  Block block(config_of(GetParam()), 0, rank.context);
  rank.own(block);
  const bool no_positions = GetParam() == Architecture::gpt2;
  Without module(block, no_positions ? "model.layers.0.self_attn.k_proj.bias" : "");
  expect_gradients(module, rank.context, rank.normal({8, 8}, "x"));
}

TEST_P(BlockOf, WhatIsComputedAgainIsTheSameBits) {
  for (const DataType type : {DataType::float32, DataType::float64, DataType::bfloat16}) {
    const RunShape shape = {
        .batch = 2, .sequence = 9, .size = 8, .type = type, .balance_scale = 0.3};
    const RunResult kept = run_sharded(make_block(GetParam()), shape);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      const RunResult computed = run_sharded(make_block(GetParam(), recompute), shape);
      EXPECT_EQ(computed.y, kept.y);
      EXPECT_EQ(computed.dx, kept.dx);
      EXPECT_EQ(computed.gradients, kept.gradients);
      EXPECT_EQ(computed.balance_loss, kept.balance_loss) << "counted once";
    }
  }
}

TEST_P(BlockOf, IsTheSameOnSeveralRanks) {
  for (const Recompute recompute : kEvery)
    expect_same_when_sharded(make_block(GetParam(), recompute),
                             {.batch = 2, .sequence = 4, .size = 8, .balance_scale = 0.3});
}

// Bytes of activations that a micro-batch leaves between forward and backward.
std::size_t bytes_kept(Architecture architecture, Recompute recompute) {
  OneRank rank(DataType::float32, 2, 16);
  const std::unique_ptr<Module> block = make_block(architecture, recompute)(rank.context);
  rank.own(*block);
  Kept kept;
  Tensor x = rank.normal({32, 8}, "x");
  block->forward(x, kept);
  x = {};
  return rank.arena.bytes(MemoryKind::activation) + rank.arena.bytes(MemoryKind::communication);
}

TEST_P(BlockOf, KeepsLessTheMoreIsComputedAgain) {
  const std::size_t none = bytes_kept(GetParam(), Recompute::none);
  const std::size_t selective = bytes_kept(GetParam(), Recompute::selective);
  const std::size_t full = bytes_kept(GetParam(), Recompute::full);
  EXPECT_EQ(full, 32u * 8 * sizeof(float)) << "the input";
  EXPECT_LT(full, selective);
  // At least the first norm's output and the product inside of the mlp or the experts.
  const std::size_t products = GetParam() == Architecture::mixtral ? 2 : 1;
  EXPECT_LE(selective, none - (32u * 8 + products * 32u * 12) * sizeof(float));
}

TEST_P(BlockOf, CountsForwardCalls) {
  for (const Recompute recompute : kEvery) {
    OneRank rank(DataType::float32, 1, 4);
    Block block(config_of(GetParam()), 0, rank.context, recompute);
    rank.own(block);
    for (int i = 1; i <= 3; ++i) {
      Kept kept;
      block.forward(rank.normal({4, 8}, "x"), kept);
      block.backward_input(rank.normal({4, 8}, "dy"), kept);
      block.backward_weight(kept);
      EXPECT_EQ(block.forward_calls(), recompute == Recompute::full ? 2 * i : i);
    }
  }
}

// A pipeline has several micro-batches under way, and may put backward_weight off.
TEST_P(BlockOf, MicroBatchesMayBeInterleaved) {
  const auto gradients = [&](Recompute recompute, bool interleaved) {
    OneRank rank(DataType::float32, 1, 6);
    Block block(config_of(GetParam()), 0, rank.context, recompute);
    rank.own(block);
    Kept first, second;
    std::vector<std::vector<double>> all;
    const auto forward = [&](const char* key, Kept& kept) {
      all.push_back(elements(block.forward(rank.normal({6, 8}, key), kept)));
    };
    const auto backward = [&](const char* key, Kept& kept) {
      all.push_back(elements(block.backward_input(rank.normal({6, 8}, key), kept)));
    };
    if (interleaved) {
      forward("a", first);
      forward("b", second);
      backward("da", first);
      backward("db", second);
      std::swap(all[1], all[2]);
      block.backward_weight(first);
    } else {
      forward("a", first);
      backward("da", first);
      block.backward_weight(first);
      forward("b", second);
      backward("db", second);
    }
    block.backward_weight(second);
    block.visit([&](Parameter& parameter) { all.push_back(elements(parameter.gradient)); });
    return all;
  };
  for (const Recompute recompute : kEvery)
    EXPECT_EQ(gradients(recompute, true), gradients(recompute, false));
}

std::string architecture_name(const ::testing::TestParamInfo<Architecture>& info) {
  if (info.param == Architecture::llama) return "llama";
  return info.param == Architecture::gpt2 ? "gpt2" : "mixtral";
}

INSTANTIATE_TEST_SUITE_P(Architectures, BlockOf,
                         ::testing::Values(Architecture::llama, Architecture::gpt2,
                                           Architecture::mixtral),
                         architecture_name);

std::set<std::string> names(Architecture architecture) {
  OneRank rank;
  std::set<std::string> found;
  make_block(architecture)(rank.context)->visit([&](Parameter& p) { found.insert(p.name); });
  return found;
}

TEST(BlockNames, AreThoseOfHuggingFace) {
  const std::string layer = "model.layers.3.";
  const std::set<std::string> both = {
      layer + "input_layernorm.weight",  layer + "post_attention_layernorm.weight",
      layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
      layer + "self_attn.v_proj.weight", layer + "self_attn.o_proj.weight"};
  std::set<std::string> llama = both;
  for (const char* name : {"gate_proj", "up_proj", "down_proj"})
    llama.insert(layer + "mlp." + name + ".weight");
  EXPECT_EQ(names(Architecture::llama), llama);

  std::set<std::string> mixtral = both;
  mixtral.insert(layer + "block_sparse_moe.gate.weight");
  for (const char* e : {"0", "1", "2", "3"})
    for (const char* weight : {"w1", "w2", "w3"})
      mixtral.insert(layer + "block_sparse_moe.experts." + e + "." + weight + ".weight");
  EXPECT_EQ(names(Architecture::mixtral), mixtral);
}

// By the square root of the number of additions: two of each of the two layers.
TEST_P(BlockOf, BeginsSmallerWhereItAddsToTheResidualStream) {
  OneRank rank;
  int smaller = 0;
  make_block(GetParam())(rank.context)->visit([&](Parameter& p) {
    if (p.initial.kind != Initial::Kind::normal) return;
    const bool adds = p.name.find("o_proj") != std::string::npos ||
                      p.name.find("down_proj") != std::string::npos ||
                      p.name.find(".w2.") != std::string::npos;
    EXPECT_DOUBLE_EQ(p.initial.deviation, adds ? 0.02 / 2 : 0.02) << p.name;
    smaller += adds;
  });
  EXPECT_EQ(smaller, GetParam() == Architecture::mixtral ? 5 : 2);
}

TEST(BlockMixture, IsThereIfTheModelHasExperts) {
  OneRank rank(DataType::float32, 1, 4);
  EXPECT_EQ(Block(config_of(Architecture::llama), 0, rank.context).mixture(), nullptr);
  Block block(config_of(Architecture::mixtral), 0, rank.context);
  rank.own(block);
  Kept kept;
  block.forward(rank.normal({4, 8}, "x"), kept);
  ASSERT_NE(block.mixture(), nullptr);
  EXPECT_EQ(block.mixture()->load().size(), 4u);
}

}  // namespace
}  // namespace tutti::training::test
