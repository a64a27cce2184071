// dense_modules_test.cc: Linear, Bias, Norm, Embedding and Mlp: gradients against differences, one
// rank against several, narrow types against float64, and what their parameters are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "training/modules/embedding.hpp"
#include "training/modules/linear.hpp"
#include "training/modules/mlp.hpp"
#include "training/modules/norm.hpp"
#include "unit/training/gradient_check.hpp"
#include "unit/training/parallel_outcome.hpp"

namespace tutti::training {
namespace {

using test::Layout;
using test::OneRank;
using test::Outcome;

ModelConfig config(Architecture architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocabulary = 29;
  config.hidden = 12;
  config.intermediate = 24;
  config.layers = 8;
  config.positions = 7;
  return config;
}

constexpr Architecture kBoth[] = {Architecture::llama, Architecture::gpt2};

// Gradients against central differences.

TEST(DenseGradients, OfLinear) {
  for (const bool bias : {false, true}) {
    OneRank rank;
    Linear linear({.name = "l", .in = 5, .out = 7, .bias = bias}, rank.context);
    rank.own(linear);
    test::expect_gradients(linear, rank.context, rank.normal({3, 5}, "x"));
  }
}

TEST(DenseGradients, OfBias) {
  OneRank rank;
  Bias bias("b", 5, rank.context);
  rank.own(bias);
  test::expect_gradients(bias, rank.context, rank.normal({3, 5}, "x"));
}

TEST(DenseGradients, OfNorm) {
  for (const Architecture architecture : kBoth) {
    OneRank rank;
    Norm norm("n", config(architecture), rank.context);
    rank.own(norm);
    test::expect_gradients(norm, rank.context, rank.normal({5, 12}, "x"));
  }
}

TEST(DenseGradients, OfMlp) {
  for (const Architecture architecture : kBoth)
    for (const bool recompute : {false, true}) {
      OneRank rank;
      Mlp mlp("m", config(architecture), rank.context);
      mlp.set_recompute(recompute);
      rank.own(mlp);
      test::expect_gradients(mlp, rank.context, rank.normal({3, 12}, "x"));
    }
}

TEST(DenseGradients, OfEmbedding) {
  for (const Architecture architecture : kBoth) {
    OneRank rank(DataType::float64, 2, 4);
    Embedding embedding(config(architecture), rank.context);
    rank.own(embedding);
    const std::int32_t tokens[] = {3, 28, 3, 0, 11, 3, 3, 28};  // several times the same
    const Tensor dy = rank.normal({8, 12}, "dy");
    const auto functional = [&] {
      Kept kept;
      const Tensor y = embedding.forward(tokens, kept);
      double sum = 0;
      for (std::int64_t i = 0; i < y.count(); ++i)
        sum += test::element(y, i) * test::element(dy, i);
      return sum;
    };
    Kept kept;
    embedding.forward(tokens, kept);
    embedding.backward(dy, kept);
    EXPECT_TRUE(kept.empty());
    embedding.visit([&](Parameter& p) {
      EXPECT_LE(test::gradient_error(functional, p.value, p.gradient), 1e-7) << p.name;
    });
  }
}

// A second micro-batch's gradients are added to those of the first one.
TEST(DenseGradients, AreAdded) {
  for (const Architecture architecture : kBoth) {
    OneRank rank;
    Mlp mlp("m", config(architecture), rank.context);
    rank.own(mlp);
    const auto run = [&](std::string_view key) {
      Kept kept;
      mlp.forward(rank.normal({3, 12}, key), kept);
      mlp.backward_input(rank.normal({3, 12}, "dy"), kept);
      mlp.backward_weight(kept);
    };
    const auto gradients = [&] {
      std::vector<double> all;
      mlp.visit([&](Parameter& p) {
        for (const double g : test::elements(p.gradient)) all.push_back(g);
      });
      return all;
    };
    run("first");
    const std::vector<double> first = gradients();
    run("second");
    const std::vector<double> both = gradients();
    mlp.visit([](Parameter& p) { p.gradient.clear(); });
    run("second");
    std::vector<double> sum = gradients();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += first[i];
    EXPECT_LE(test::relative_difference(both, sum), 1e-14);
  }
}

// Values by their formulas.

TEST(DenseValues, OfNorms) {
  for (const Architecture architecture : kBoth) {
    OneRank rank;
    Norm norm("n", config(architecture), rank.context);
    rank.own(norm);
    std::vector<std::vector<double>> weights;
    norm.visit([&](Parameter& p) { weights.push_back(test::elements(p.value)); });
    const std::vector<double> x = test::elements(rank.normal({1, 12}, "x"));
    Kept kept;
    const Tensor y = norm.forward(rank.normal({1, 12}, "x"), kept);
    const bool centred = architecture == Architecture::gpt2;
    double mean = 0, square = 0;
    for (const double v : x) mean += centred ? v / 12 : 0;
    for (const double v : x) square += (v - mean) * (v - mean) / 12;
    for (std::size_t i = 0; i < 12; ++i) {
      const double bias = centred ? weights[1][i] : 0;
      EXPECT_NEAR(test::element(y, static_cast<std::int64_t>(i)),
                  (x[i] - mean) / std::sqrt(square + 1e-5) * weights[0][i] + bias, 1e-13);
    }
  }
}

// down(silu(gate) * up) and down(gelu(up + b)) + b with matrices of one element.
TEST(DenseValues, OfMlp) {
  for (const Architecture architecture : kBoth) {
    OneRank rank;
    ModelConfig tiny = config(architecture);
    tiny.hidden = tiny.intermediate = 1;
    Mlp mlp("m", tiny, rank.context);
    rank.own(mlp);
    std::map<std::string, double> w;
    mlp.visit([&](Parameter& p) { w[p.name] = test::element(p.value, 0); });
    const Tensor x = rank.normal({1, 1}, "x");
    const double v = test::element(x, 0);
    Kept kept;
    const double y = test::element(mlp.forward(x, kept), 0);
    if (architecture == Architecture::llama) {
      const double gate = v * w.at("m.gate_proj.weight");
      const double product = gate / (1 + std::exp(-gate)) * v * w.at("m.up_proj.weight");
      EXPECT_NEAR(y, product * w.at("m.down_proj.weight"), 1e-15);
      EXPECT_EQ(w.size(), 3u);
    } else {
      const double up = v * w.at("m.up_proj.weight") + w.at("m.up_proj.bias");
      const double inner = std::sqrt(2 / M_PI) * (up + 0.044715 * up * up * up);
      const double gelu = up * (1 + std::tanh(inner)) / 2;
      EXPECT_NEAR(y, gelu * w.at("m.down_proj.weight") + w.at("m.down_proj.bias"), 1e-15);
      EXPECT_EQ(w.size(), 4u);
    }
  }
}

TEST(DenseValues, OfEmbedding) {
  OneRank rank(DataType::float32, 2, 2);
  Embedding embedding(config(Architecture::gpt2), rank.context);
  rank.own(embedding);
  std::map<std::string, Tensor> tables;
  embedding.visit([&](Parameter& p) { tables[p.name] = p.value; });
  const std::int32_t tokens[] = {5, 28, 0, 5};
  Kept kept;
  const Tensor y = embedding.forward(tokens, kept);
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t i = 0; i < 12; ++i)
      EXPECT_EQ(y.as<float>()[r * 12 + i],
                tables.at("model.embed_tokens.weight").as<float>()[tokens[r] * 12 + i] +
                    tables.at("model.embed_positions.weight").as<float>()[r % 2 * 12 + i]);
}

// What is computed again is what would have been kept, and less is kept.
TEST(MlpRecompute, IsTheSameBitsInLessMemory) {
  for (const Architecture architecture : kBoth) {
    std::vector<std::vector<double>> results;
    std::vector<std::size_t> kept_bytes;
    for (const bool recompute : {false, true}) {
      OneRank rank(DataType::float32);
      Mlp mlp("m", config(architecture), rank.context);
      mlp.set_recompute(recompute);
      rank.own(mlp);
      const Tensor x = rank.normal({9, 12}, "x"), dy = rank.normal({9, 12}, "dy");
      const std::size_t before = rank.arena.bytes(MemoryKind::activation);
      Kept kept;
      mlp.forward(x, kept);
      kept_bytes.push_back(rank.arena.bytes(MemoryKind::activation) - before);
      std::vector<double> all = test::elements(mlp.backward_input(dy, kept));
      mlp.backward_weight(kept);
      EXPECT_EQ(rank.arena.bytes(MemoryKind::activation), before) << "nothing is left";
      mlp.visit([&](Parameter& p) {
        for (const double g : test::elements(p.gradient)) all.push_back(g);
      });
      results.push_back(all);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(kept_bytes[0] - kept_bytes[1], 9 * 24 * sizeof(float));
  }
}

// Several tensor-parallel ranks.

test::MakeModule mlp_of(Architecture architecture) {
  return [architecture](Context& context) {
    return std::make_unique<Mlp>("m", config(architecture), context);
  };
}

TEST(DenseParallel, MlpIsThatOfOneRank) {
  for (const Architecture architecture : kBoth) {
    const Outcome serial = test::outcome_of({}, 12, mlp_of(architecture));
    for (const Layout& layout : test::parallel_layouts()) {
      SCOPED_TRACE(std::to_string(layout.tp) + (layout.sequence_parallel ? " sp" : ""));
      test::expect_close(test::outcome_of(layout, 12, mlp_of(architecture)), serial, 1e-12);
    }
  }
}

TEST(DenseParallel, NormIsThatOfOneRank) {
  for (const Architecture architecture : kBoth) {
    const auto make = [architecture](Context& context) {
      return std::make_unique<Norm>("n", config(architecture), context);
    };
    const Outcome serial = test::outcome_of({}, 12, make);
    for (const Layout& layout : test::parallel_layouts()) {
      SCOPED_TRACE(std::to_string(layout.tp) + (layout.sequence_parallel ? " sp" : ""));
      const Outcome parallel = test::outcome_of(layout, 12, make);
      test::expect_close(parallel, serial, 1e-12);
      EXPECT_EQ(parallel.y, serial.y);  // rows are nobody's business but their own
      EXPECT_EQ(parallel.dx, serial.dx);
    }
  }
}

TEST(DenseParallel, EmbeddingIsThatOfOneRank) {
  const std::int32_t tokens[] = {3, 28, 3, 0, 11, 7, 8, 15, 22, 24, 3, 27};
  const auto run = [&](const Layout& layout, Architecture architecture) {
    return test::on_ranks(layout, [&](test::TestRank& rank, test::OutcomeOfRanks& collected) {
      Embedding embedding(config(architecture), rank.context);
      rank.own(embedding);
      Kept kept;
      collected.add(&Outcome::y, rank.context.tp.rank(), embedding.forward(tokens, kept));
      embedding.backward(test::local_rows(rank, 12, "dy"), kept);
      embedding.visit([&](Parameter& parameter) { collected.add(parameter); });
    });
  };
  for (const Architecture architecture : kBoth) {
    const Outcome serial = run({}, architecture);
    for (const Layout& layout : test::parallel_layouts()) {
      SCOPED_TRACE(std::to_string(layout.tp) + (layout.sequence_parallel ? " sp" : ""));
      const Outcome parallel = run(layout, architecture);
      EXPECT_EQ(parallel.y, serial.y);
      test::expect_close(parallel, serial, 1e-12);
      EXPECT_EQ(parallel.gradients.at("model.embed_tokens.weight"),
                serial.gradients.at("model.embed_tokens.weight"));
    }
  }
}

// Each rank's outputs of a layer that is split by columns are bit for bit those of the whole.
TEST(DenseParallel, ColumnsOfALinearLayerAreExact) {
  for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float64}) {
    const LinearOptions options = {
        .name = "l", .in = 19, .out = 84, .split = Split::columns, .bias = true};
    OneRank one(type);
    Linear whole(options, one.context);
    one.own(whole);
    Kept kept;
    const Tensor y = whole.forward(one.normal({13, 19}, "x"), kept);
    for (const int size : {2, 3, 4}) {
      test::AxisWorld world(size);
      test::run_ranks(size, [&](int number) {
        Alone ep;
        test::TestRank rank(type, world.axis(number), ep);
        Linear part(options, rank.context);
        rank.own(part);
        Kept own_kept;
        const Tensor mine = part.forward(rank.normal({13, 19}, "x"), own_kept);
        const std::int64_t columns = 84 / size;
        for (std::int64_t i = 0; i < mine.count(); ++i) {
          const std::int64_t there = i / columns * 84 + number * columns + i % columns;
          EXPECT_EQ(test::element(mine, i), test::element(y, there));
        }
      });
    }
  }
}

// Narrow types compute what float64 does, of the same (rounded) numbers, but for rounding.
TEST(DenseTypes, AreFloat64Rounded) {
  struct Case {
    DataType type;
    double tolerance;
  };
  // Activations are rounded three or four times on the way: some units of 2^-8, 2^-11 and 2^-24.
  const Case cases[] = {
      {DataType::bfloat16, 3e-2}, {DataType::float16, 4e-3}, {DataType::float32, 2e-6}};
  for (const Architecture architecture : kBoth) {
    const Outcome exact = test::outcome_of({}, 12, mlp_of(architecture));
    for (const Case& c : cases) {
      SCOPED_TRACE(to_string(c.type));
      test::expect_close(test::outcome_of({.type = c.type}, 12, mlp_of(architecture)), exact,
                         c.tolerance);
    }
  }
}

// What the parameters are.

TEST(DenseParameters, TellHowTheyBeginAndWhoHasThem) {
  OneRank rank;
  rank.context.sequence_parallel = true;
  Mlp mlp("m", config(Architecture::gpt2), rank.context);
  std::map<std::string, Parameter> parameters;
  mlp.visit([&](Parameter& p) { parameters[p.name] = p; });
  EXPECT_DOUBLE_EQ(parameters.at("m.up_proj.weight").initial.deviation, 0.02);
  EXPECT_DOUBLE_EQ(parameters.at("m.down_proj.weight").initial.deviation, 0.02 / 4);  // 8 layers
  EXPECT_EQ(parameters.at("m.up_proj.bias").initial.kind, Initial::Kind::zeros);
  EXPECT_EQ(parameters.at("m.up_proj.bias").sharing, Sharing::split);
  EXPECT_EQ(parameters.at("m.down_proj.bias").sharing, Sharing::partial);
  EXPECT_FALSE(parameters.at("m.down_proj.bias").decays);
  EXPECT_TRUE(parameters.at("m.down_proj.weight").decays);

  Norm norm("n", config(Architecture::llama), rank.context);
  norm.visit([](Parameter& p) {
    EXPECT_EQ(p.name, "n.weight");
    EXPECT_EQ(p.initial.kind, Initial::Kind::ones);
    EXPECT_EQ(p.sharing, Sharing::partial);
    EXPECT_FALSE(p.decays);
  });
}

TEST(DenseParameters, VocabularyPartsCoverIt) {
  for (const std::int64_t vocabulary : {1, 2, 5, 29, 256})
    for (const int size : {1, 2, 3, 4, 7}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < size; ++rank) {
        const VocabularyPart part = vocabulary_part(vocabulary, rank, size);
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.end, part.begin);
        end = part.end;
      }
      EXPECT_EQ(end, vocabulary);
    }
}

TEST(DenseParametersDeathTest, ASplitMustBeEven) {
  test::AxisWorld world(2);
  Alone ep;
  test::TestRank rank(DataType::float32, world.axis(0), ep);
  EXPECT_DEATH(Linear({.name = "l", .in = 4, .out = 3, .split = Split::columns}, rank.context),
               "divides what it splits");
}

}  // namespace
}  // namespace tutti::training
