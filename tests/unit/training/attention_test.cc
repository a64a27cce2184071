// attention_test.cc: attention and rotary positions against their formulas, written down as plainly
// as possible, and the module around them against differences and against itself on several ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "training/modules/attention.hpp"
#include "training/ops/attention.hpp"
#include "training/ops/rope.hpp"
#include "unit/training/gradient_check.hpp"
#include "unit/training/instruction_sets.hpp"
#include "unit/training/sharded_run.hpp"

namespace tutti::training::test {
namespace {

using Matrix = std::vector<double>;

struct Problem {
  AttentionShape shape;
  AttentionInput input;
  Tensor dout;
};

Problem problem(Arena& arena, const AttentionShape& shape, DataType type, double deviation = 1) {
  const std::int64_t rows = shape.batch * shape.sequence;
  const auto normal = [&](std::int64_t heads, std::string_view key) {
    Tensor made(arena, MemoryKind::activation, type, {rows, heads * shape.head_size});
    fill_normal(made, key, deviation);
    return made;
  };
  return {shape,
          {normal(shape.heads, "q"), normal(shape.kv_heads, "k"), normal(shape.kv_heads, "v")},
          normal(shape.heads, "dout")};
}

struct Reference {
  Matrix out, dq, dk, dv;
};

// What one head's formulas need: element (row, column) of a head of an activation.
struct HeadAt {
  std::size_t first, stride;
  std::size_t operator()(std::int64_t row, std::int64_t column) const {
    return first + static_cast<std::size_t>(row) * stride + static_cast<std::size_t>(column);
  }
};

HeadAt head_at(const AttentionShape& s, std::int64_t b, std::int64_t head, std::int64_t heads) {
  return {static_cast<std::size_t>(b * s.sequence * heads * s.head_size + head * s.head_size),
          static_cast<std::size_t>(heads * s.head_size)};
}

// The probabilities of one head's row t over rows [0, t].
std::vector<double> probabilities(const AttentionShape& s, const Matrix& q, const HeadAt& at_q,
                                  const Matrix& k, const HeadAt& at_k, std::int64_t t) {
  std::vector<double> p;
  double largest = -INFINITY, sum = 0;
  for (std::int64_t u = 0; u <= t; ++u) {
    double score = 0;
    for (std::int64_t c = 0; c < s.head_size; ++c) score += q[at_q(t, c)] * k[at_k(u, c)];
    p.push_back(score / std::sqrt(static_cast<double>(s.head_size)));
    largest = std::max(largest, p.back());
  }
  for (double& x : p) sum += x = std::exp(x - largest);
  for (double& x : p) x /= sum;
  return p;
}

Reference reference(const Problem& problem) {
  const AttentionShape& s = problem.shape;
  const Matrix q = elements(problem.input.q), k = elements(problem.input.k);
  const Matrix v = elements(problem.input.v), dout = elements(problem.dout);
  Reference r = {Matrix(q.size()), Matrix(q.size()), Matrix(k.size()), Matrix(v.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const HeadAt at_q = head_at(s, b, h, s.heads);
      const HeadAt at_k = head_at(s, b, h / (s.heads / s.kv_heads), s.kv_heads);
      for (std::int64_t t = 0; t < s.sequence; ++t) {
        const std::vector<double> p = probabilities(s, q, at_q, k, at_k, t);
        std::vector<double> dp(p.size());
        double mean = 0;
        for (std::int64_t u = 0; u <= t; ++u) {
          const auto at = static_cast<std::size_t>(u);
          for (std::int64_t c = 0; c < s.head_size; ++c) {
            r.out[at_q(t, c)] += p[at] * v[at_k(u, c)];
            r.dv[at_k(u, c)] += p[at] * dout[at_q(t, c)];
            dp[at] += dout[at_q(t, c)] * v[at_k(u, c)];
          }
          mean += p[at] * dp[at];
        }
        for (std::int64_t u = 0; u <= t; ++u) {
          const auto at = static_cast<std::size_t>(u);
          const double slope = p[at] * (dp[at] - mean) * scale;
          for (std::int64_t c = 0; c < s.head_size; ++c) {
            r.dq[at_q(t, c)] += slope * k[at_k(u, c)];
            r.dk[at_k(u, c)] += slope * q[at_q(t, c)];
          }
        }
      }
    }
  return r;
}

void expect_as_reference(const AttentionShape& shape, DataType type, double tolerance,
                         double deviation = 1) {
  SCOPED_TRACE("batch " + std::to_string(shape.batch) + " sequence " +
               std::to_string(shape.sequence) + " heads " + std::to_string(shape.heads) + "/" +
               std::to_string(shape.kv_heads) + " size " + std::to_string(shape.head_size));
  Arena arena;
  const Problem p = problem(arena, shape, type, deviation);
  const Reference expected = reference(p);
  const AttentionOutput output = attention_forward(shape, p.input, arena);
  const AttentionInput gradients = attention_backward(shape, p.input, output, p.dout, arena);
  const auto expect = [&](const Tensor& got, const Matrix& want, const char* what) {
    // A sequence of one row has probabilities of 1, whose gradients are 0.
    if (shape.sequence == 1 && (what == std::string("dq") || what == std::string("dk"))) {
      for (const double x : elements(got)) EXPECT_NEAR(x, 0, tolerance) << what;
    } else {
      EXPECT_LE(relative_difference(elements(got), want), tolerance) << what;
    }
  };
  expect(output.out, expected.out, "out");
  expect(gradients.q, expected.dq, "dq");
  expect(gradients.k, expected.dk, "dk");
  expect(gradients.v, expected.dv, "dv");
}

class AttentionOp : public OnEveryInstructionSet {};
INSTANTIATE_TEST_SUITE_P(InstructionSets, AttentionOp, ::testing::ValuesIn(instruction_sets()),
                         instruction_set_name);

TEST_P(AttentionOp, IsTheFormulaAtEverySequenceLength) {
  for (const std::int64_t sequence : {1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 97, 128, 131, 200})
    expect_as_reference({1, sequence, 2, 1, 8}, DataType::float64, 1e-12);
}

TEST_P(AttentionOp, IsTheFormulaAtEveryHeadSize) {
  for (const std::int64_t size : {1, 2, 3, 5, 8, 15, 16, 17, 32, 33, 64, 80, 128})
    expect_as_reference({1, 67, 2, 2, size}, DataType::float64, 1e-12);
}

TEST_P(AttentionOp, IsTheFormulaForEveryGroupingOfHeads) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int, int>>{{1, 1}, {3, 3}, {3, 1}, {4, 2}, {6, 2}, {8, 1}, {8, 8}})
    expect_as_reference({3, 70, heads, kv_heads, 12}, DataType::float64, 1e-12);
}

// Inputs are rounded to the type before the formula sees them; sums are of float.
TEST_P(AttentionOp, KeepsTheDigitsOfEachType) {
  const AttentionShape shape = {2, 130, 4, 2, 24};
  expect_as_reference(shape, DataType::float32, 3e-6);
  expect_as_reference(shape, DataType::bfloat16, 1e-2);
  expect_as_reference(shape, DataType::float16, 2e-3);
}

TEST_P(AttentionOp, LargeScoresDoNotOverflow) {
  const AttentionShape shape = {1, 100, 2, 1, 16};
  expect_as_reference(shape, DataType::float64, 1e-10, 40);  // scores of thousands
  expect_as_reference(shape, DataType::float32, 1e-2, 40);
}

std::vector<std::byte> bytes_of(const Tensor& t) { return {t.data(), t.data() + t.bytes()}; }

// Columns [first, first + count) of rows [first_row, first_row + rows).
Tensor cut(Arena& arena, const Tensor& from, std::int64_t first_row, std::int64_t rows,
           std::int64_t first, std::int64_t count) {
  Tensor made(arena, MemoryKind::activation, from.type(), {rows, count});
  const std::size_t size = size_of(from.type());
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(
        made.data() + static_cast<std::size_t>(r * count) * size,
        from.data() + static_cast<std::size_t>((first_row + r) * from.columns() + first) * size,
        static_cast<std::size_t>(count) * size);
  return made;
}

class AttentionBits : public ::testing::TestWithParam<DataType> {};

TEST_P(AttentionBits, OfAHeadDoNotDependOnOthers) {
  Arena arena;
  const AttentionShape all = {2, 90, 6, 3, 20};
  const Problem p = problem(arena, all, GetParam());
  const AttentionOutput output = attention_forward(all, p.input, arena);
  const AttentionInput gradients = attention_backward(all, p.input, output, p.dout, arena);

  // The second sequence's heads 2 and 3, which share key-value head 1.
  const AttentionShape some = {1, 90, 2, 1, 20};
  const auto queries = [&](const Tensor& t) { return cut(arena, t, 90, 90, 40, 40); };
  const auto keys = [&](const Tensor& t) { return cut(arena, t, 90, 90, 20, 20); };
  const AttentionInput input = {queries(p.input.q), keys(p.input.k), keys(p.input.v)};
  const AttentionOutput part = attention_forward(some, input, arena);
  const AttentionInput part_gradients =
      attention_backward(some, input, part, queries(p.dout), arena);
  EXPECT_EQ(bytes_of(part.out), bytes_of(queries(output.out)));
  EXPECT_EQ(bytes_of(part_gradients.q), bytes_of(queries(gradients.q)));
  EXPECT_EQ(bytes_of(part_gradients.k), bytes_of(keys(gradients.k)));
  EXPECT_EQ(bytes_of(part_gradients.v), bytes_of(keys(gradients.v)));
}

TEST_P(AttentionBits, OfARowDoNotDependOnLaterRows) {
  Arena arena;
  const Problem p = problem(arena, {1, 150, 2, 2, 16}, GetParam());
  const AttentionOutput whole = attention_forward(p.shape, p.input, arena);
  for (const std::int64_t rows : {1, 40, 64, 100}) {
    const auto first = [&](const Tensor& t) { return cut(arena, t, 0, rows, 0, 32); };
    const AttentionInput input = {first(p.input.q), first(p.input.k), first(p.input.v)};
    const AttentionOutput part = attention_forward({1, rows, 2, 2, 16}, input, arena);
    EXPECT_EQ(elements(part.out), elements(first(whole.out))) << rows;
  }
}

TEST_P(AttentionBits, AreTheSameAgain) {
  Arena arena;
  const Problem p = problem(arena, {2, 70, 4, 2, 16}, GetParam());
  const AttentionOutput a = attention_forward(p.shape, p.input, arena);
  const AttentionOutput b = attention_forward(p.shape, p.input, arena);
  EXPECT_EQ(bytes_of(a.out), bytes_of(b.out));
  EXPECT_EQ(bytes_of(a.logarithms), bytes_of(b.logarithms));
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionBits,
                         ::testing::Values(DataType::float32, DataType::float64, DataType::bfloat16,
                                           DataType::float16));

TEST_P(AttentionOp, ANaNIsSeenByTheRowsThatLookAtIt) {
  if (!converts_nan()) GTEST_SKIP() << "a sanitizer, and vectors that are loops";
  Arena arena;
  const Problem p = problem(arena, {1, 80, 1, 1, 16}, DataType::float32);
  set_element(p.input.k, 70 * 16 + 3, NAN);
  const AttentionOutput output = attention_forward(p.shape, p.input, arena);
  EXPECT_FALSE(std::isnan(element(output.out, 69 * 16)));
  EXPECT_TRUE(std::isnan(element(output.out, 70 * 16)));
  EXPECT_TRUE(std::isnan(element(output.out, 79 * 16)));
}

TEST(AttentionMemory, IsNotOfTheSquareOfTheSequence) {
  const auto peak = [](std::int64_t sequence) {
    Arena arena;
    const Problem p = problem(arena, {1, sequence, 1, 1, 16}, DataType::float32);
    arena.reset_peaks();
    const AttentionOutput output = attention_forward(p.shape, p.input, arena);
    attention_backward(p.shape, p.input, output, p.dout, arena);
    return arena.total_peak();
  };
  EXPECT_LE(peak(2048), 2 * peak(1024));
}

// ---- Rotary positions ----

class Rotary : public OnEveryInstructionSet {};
INSTANTIATE_TEST_SUITE_P(InstructionSets, Rotary, ::testing::ValuesIn(instruction_sets()),
                         instruction_set_name);

TEST_P(Rotary, TurnsPairsAsComplexNumbers) {
  const std::vector<std::pair<DataType, double>> tolerances = {{DataType::float64, 1e-14},
                                                               {DataType::float32, 2e-6},
                                                               {DataType::bfloat16, 2e-2},
                                                               {DataType::float16, 3e-3}};
  for (const auto& [type, tolerance] : tolerances)
    for (const std::int64_t size : {2, 6, 16, 40, 64}) {
      Arena arena;
      const std::int64_t batch = 2, sequence = 9, heads = 3;
      Tensor x(arena, MemoryKind::activation, type, {batch * sequence, heads * size});
      fill_normal(x, "x");
      const Matrix before = elements(x);
      RotaryPositions(size, 500, type).rotate(x, sequence);
      const Matrix after = elements(x);
      for (std::int64_t row = 0; row < batch * sequence; ++row)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t i = 0; i < size / 2; ++i) {
            const auto a = static_cast<std::size_t>((row * heads + h) * size + i);
            const std::size_t b = a + static_cast<std::size_t>(size / 2);
            const double angle =
                static_cast<double>(row % sequence) *
                std::pow(500.0, -2.0 * static_cast<double>(i) / static_cast<double>(size));
            const auto turned = std::complex(before[a], before[b]) * std::polar(1.0, angle);
            EXPECT_NEAR(after[a], turned.real(), tolerance) << to_string(type);
            EXPECT_NEAR(after[b], turned.imag(), tolerance) << to_string(type);
          }
    }
}

TEST_P(Rotary, BackwardTurnsBack) {
  const std::vector<std::pair<DataType, double>> tolerances = {{DataType::float64, 1e-15},
                                                               {DataType::float32, 3e-7},
                                                               {DataType::bfloat16, 1e-2},
                                                               {DataType::float16, 2e-3}};
  for (const auto& [type, tolerance] : tolerances) {
    Arena arena;
    Tensor x(arena, MemoryKind::activation, type, {50, 2 * 34});
    fill_normal(x, "x");
    const Matrix before = elements(x);
    RotaryPositions positions(34, 10000, type);
    positions.rotate(x, 25);
    EXPECT_GT(relative_difference(elements(x), before), 0.1);
    positions.rotate_backward(x, 25);
    EXPECT_LE(relative_difference(elements(x), before), tolerance);
  }
}

TEST(RotaryProducts, DependOnTheDistanceOnly) {
  Arena arena;
  Tensor rows(arena, MemoryKind::activation, DataType::float64, {12, 16});
  Tensor one(arena, MemoryKind::activation, DataType::float64, {16});
  fill_normal(one, "one");
  for (std::int64_t r = 0; r < 12; ++r)
    std::memcpy(rows.part(r, 1).data(), one.data(), one.bytes());
  RotaryPositions(16, 10000, DataType::float64).rotate(rows, 12);
  const auto product = [&](std::int64_t a, std::int64_t b) {
    double sum = 0;
    for (std::int64_t i = 0; i < 16; ++i)
      sum += element(rows, a * 16 + i) * element(rows, b * 16 + i);
    return sum;
  };
  EXPECT_NEAR(product(2, 5), product(8, 11), 1e-12);
  EXPECT_GT(std::abs(product(2, 5) - product(2, 4)), 1e-3);
}

// ---- The module ----

ModelConfig small_config(Architecture architecture, std::int64_t heads, std::int64_t kv_heads) {
  ModelConfig config;
  config.architecture = architecture;
  config.hidden = 12;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_size = 4;
  config.layers = 2;
  return config;
}

void expect_module_gradients(const ModelConfig& config, std::int64_t batch, std::int64_t sequence) {
  OneRank rank(DataType::float64, batch, sequence);
  Attention attention("a", config, rank.context);
  rank.own(attention);
  Without module(attention, "a.k_proj.bias");
  expect_gradients(module, rank.context, rank.normal({batch * sequence, config.hidden}, "x"));
}

TEST(AttentionModule, GradientsAreSlopes) {
  expect_module_gradients(small_config(Architecture::llama, 4, 4), 2, 5);
  expect_module_gradients(small_config(Architecture::llama, 4, 2), 1, 7);
  expect_module_gradients(small_config(Architecture::llama, 3, 1), 3, 1);
  expect_module_gradients(small_config(Architecture::gpt2, 3, 3), 2, 5);
}

TEST(AttentionModule, GradientsAreSlopesBeyondOneTile) {
  ModelConfig config = small_config(Architecture::llama, 2, 1);
  config.hidden = 3;
  config.head_size = 2;
  expect_module_gradients(config, 1, 67);
}

TEST(AttentionModule, NamesItsParametersAsHuggingFaceDoes) {
  OneRank rank;
  std::map<std::string, std::string> names;
  Attention llama("m", small_config(Architecture::llama, 4, 2), rank.context);
  llama.visit([&](Parameter& p) { names[p.name] = p.whole_shape.to_string(); });
  EXPECT_EQ(names, (std::map<std::string, std::string>{{"m.q_proj.weight", "[16, 12]"},
                                                       {"m.k_proj.weight", "[8, 12]"},
                                                       {"m.v_proj.weight", "[8, 12]"},
                                                       {"m.o_proj.weight", "[12, 16]"}}));
  int biases = 0;
  Attention gpt2("m", small_config(Architecture::gpt2, 3, 3), rank.context);
  gpt2.visit([&](Parameter& p) { biases += p.whole_shape.rank() == 1; });
  EXPECT_EQ(biases, 4);
}

MakeModule make_attention(const ModelConfig& config) {
  return [config](Context& context) { return std::make_unique<Attention>("a", config, context); };
}

TEST(AttentionModule, IsTheSameOnSeveralRanks) {
  const RunShape shape = {.batch = 2, .sequence = 6, .size = 12};
  expect_same_when_sharded(make_attention(small_config(Architecture::llama, 4, 4)), shape);
  expect_same_when_sharded(make_attention(small_config(Architecture::llama, 8, 4)), shape);
  expect_same_when_sharded(make_attention(small_config(Architecture::gpt2, 4, 4)), shape);
}

TEST(AttentionModule, IsTheSameWhereRanksShareKeyValueHeads) {
  const RunShape shape = {.batch = 2, .sequence = 6, .size = 12};
  expect_same_when_sharded(make_attention(small_config(Architecture::llama, 8, 2)), shape);
  expect_same_when_sharded(make_attention(small_config(Architecture::llama, 4, 1)), shape);
}

TEST(AttentionModule, SaysWhichRanksShareAKeyValueHead) {
  AxisWorld tp(4);
  for (int r = 0; r < 4; ++r) {
    Alone ep;
    TestRank rank(DataType::float32, tp.axis(r), ep);
    Attention attention("a", small_config(Architecture::llama, 8, 2), rank.context);
    attention.visit([&](Parameter& p) {
      const bool of_head = p.name.find("k_proj") == 2 || p.name.find("v_proj") == 2;
      EXPECT_EQ(p.copies, of_head ? 2 : 1) << p.name;
      EXPECT_EQ(p.sharing, Sharing::split);
      if (!of_head) return;
      EXPECT_EQ(p.part.begin, r / 2 * 4);
      EXPECT_EQ(p.part.length, 4);
    });
  }
}

TEST(AttentionModule, InputCanBeGivenBackInBackward) {
  const ModelConfig config = small_config(Architecture::llama, 4, 2);
  const auto gradients = [&](bool give_back) {
    OneRank rank(DataType::float32, 2, 5);
    Attention attention("a", config, rank.context);
    rank.own(attention);
    const Tensor x = rank.normal({10, 12}, "x");
    Kept kept;
    attention.forward(x, kept);
    if (give_back) attention.drop_input(kept);
    attention.backward_input(rank.normal({10, 12}, "dy"), kept);
    if (give_back) attention.give_input(kept, x);
    attention.backward_weight(kept);
    std::vector<std::vector<double>> all;
    attention.visit([&](Parameter& p) { all.push_back(elements(p.gradient)); });
    return all;
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

}  // namespace
}  // namespace tutti::training::test
