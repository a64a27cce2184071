// routing_test.cc: the choice of experts, their capacity and the arithmetic on routed rows against
// their formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "training/modules/dispatch.hpp"
#include "training/ops/routing.hpp"
#include "unit/training/gradient_check.hpp"
#include "unit/training/instruction_sets.hpp"

namespace tutti::training::test {
namespace {

Tensor matrix_of(Arena& arena, DataType type, const std::vector<std::vector<double>>& rows) {
  Tensor made(arena, MemoryKind::activation, type,
              {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  std::int64_t i = 0;
  for (const auto& row : rows)
    for (const double x : row) set_element(made, i++, x);
  return made;
}

TEST(Routing, ChoosesTheMostProbableAndTheLowerOfEquals) {
  Arena arena;
  const Tensor logits = matrix_of(arena, DataType::float64,
                                  {{1, 3, 2, 0}, {5, 5, 5, 5}, {0, 2, 1, 2}, {-9, -8, -7, -7}});
  const Routing routing = choose_experts(logits, 2, arena);
  EXPECT_EQ(routing.chosen, (std::vector<std::int32_t>{1, 2, 0, 1, 1, 3, 2, 3}));
  EXPECT_EQ(routing.load(), (std::vector<std::int64_t>{1, 3, 2, 2}));
  const double e = std::exp(1.0);
  EXPECT_NEAR(element(routing.weights, 0), e / (1 + e), 1e-15);
  EXPECT_NEAR(element(routing.weights, 1), 1 / (1 + e), 1e-15);
  EXPECT_EQ(element(routing.weights, 2), 0.5);
  const double sum = 1 + e + e * e + e * e * e;
  EXPECT_NEAR(element(routing.probabilities, 2), e * e / sum, 1e-15);
}

TEST(Routing, WeightsOfAllExpertsAreTheSoftmax) {
  Arena arena;
  Tensor logits(arena, MemoryKind::activation, DataType::float64, {6, 5});
  fill_normal(logits, "logits", 3);
  const Routing routing = choose_experts(logits, 5, arena);
  for (std::int64_t a = 0; a < 30; ++a)
    EXPECT_NEAR(
        element(routing.weights, a),
        element(routing.probabilities, a / 5 * 5 + routing.chosen[static_cast<std::size_t>(a)]),
        1e-15);
}

TEST(Routing, LogitsThatAreNoNumbersStillChooseExperts) {
  Arena arena;
  const Tensor logits = matrix_of(arena, DataType::float32, {{NAN, 1, NAN}});
  const Routing routing = choose_experts(logits, 2, arena);
  EXPECT_NE(routing.chosen[0], routing.chosen[1]);
  EXPECT_TRUE(std::isnan(element(routing.weights, 0)));
}

TEST(BalanceLoss, IsOneIfRowsAreSpreadEvenly) {
  Arena arena;
  std::vector<std::vector<double>> rows;
  for (std::size_t r = 0; r < 12; ++r) {
    rows.emplace_back(4, 0.0);
    rows.back()[r % 4] = 2;
  }
  const Routing even = choose_experts(matrix_of(arena, DataType::float64, rows), 1, arena);
  EXPECT_NEAR(balance_loss(even), 1, 1e-15);
  const Tensor equal = Tensor::zeros(arena, MemoryKind::activation, DataType::float32, {8, 4});
  EXPECT_EQ(balance_loss(choose_experts(equal, 2, arena)), 1);
}

TEST(BalanceLoss, IsTheNumberOfExpertsIfOneHasAll) {
  Arena arena;
  const std::vector<std::vector<double>> rows(7, {0, 0, 2000, 0, 0});
  const Tensor logits = matrix_of(arena, DataType::float64, rows);
  EXPECT_EQ(balance_loss(choose_experts(logits, 1, arena)), 5);
}

TEST(Capacity, IsTheFairShareRoundedUp) {
  Routing routing;
  routing.rows = 10;
  routing.experts = 4;
  routing.per_row = 2;
  EXPECT_EQ(expert_capacity(routing, 1), 5);
  EXPECT_EQ(expert_capacity(routing, 1.1), 6);
  EXPECT_EQ(expert_capacity(routing, 0.5), 3);
  EXPECT_EQ(expert_capacity(routing, 100), 10);
  EXPECT_GE(expert_capacity(routing, 0), 10);
}

TEST(Capacity, DropsTheLaterRowsOfAnExpert) {
  OneRank rank(DataType::float64, 1, 6);
  const Tensor logits =
      matrix_of(rank.arena, DataType::float64,
                {{9, 5, 0}, {9, 0, 5}, {5, 9, 0}, {9, 5, 0}, {0, 5, 9}, {9, 0, 5}});
  const Routing routing = choose_experts(logits, 2, rank.arena);
  ASSERT_EQ(routing.load(), (std::vector<std::int64_t>{5, 4, 3}));
  const DispatchHandle handle = plan_dispatch(rank.context, routing, 3);
  EXPECT_EQ(handle.dropped, 3);
  EXPECT_EQ(handle.arrived.counts, (std::vector<std::int64_t>{3, 3, 3}));
  constexpr std::int64_t kDropped = Placement::kDropped;
  EXPECT_EQ(handle.placement.positions,
            (std::vector<std::int64_t>{0, 3, 1, 6, 4, 2, kDropped, 5, 7, kDropped, kDropped, 8}));
}

class RowArithmetic : public OnEveryInstructionSet {};
INSTANTIATE_TEST_SUITE_P(InstructionSets, RowArithmetic, ::testing::ValuesIn(instruction_sets()),
                         instruction_set_name);

TEST_P(RowArithmetic, IsTheFormula) {
  struct Case {
    DataType type;
    double rounding;  // of what is stored in it, relative
  };
  constexpr std::int64_t kDropped = Placement::kDropped;
  const Placement placement = {2, {3, 0, kDropped, 1, 2, kDropped}};
  for (const Case& c : {Case{DataType::float64, 0}, Case{DataType::float32, 0},
                        Case{DataType::bfloat16, 0x1p-8}, Case{DataType::float16, 0x1p-11}})
    for (const std::int64_t size : {1, 7, 16, 37}) {
      SCOPED_TRACE(std::string(to_string(c.type)) + " " + std::to_string(size));
      Arena arena;
      const DataType wide = wide_type(c.type);
      const double exact = wide == DataType::float64 ? 1e-13 : 1e-5;  // of sums before they are
      const auto normal = [&](DataType type, const Shape& shape, std::string_view key) {
        Tensor made(arena, MemoryKind::activation, type, shape);
        fill_normal(made, key);
        return made;
      };
      const Tensor x = normal(c.type, {3, size}, "x"), weights = normal(wide, {3, 2}, "weights");
      const Tensor placed = normal(c.type, {4, size}, "placed"), y = normal(c.type, {3, size}, "y");
      const Tensor products = normal(wide, {3, 2}, "products");
      sum_slots(placed, placement, weights, y);
      slot_products(placed, placement, x, products);
      for (std::int64_t a = 0; a < 6; ++a) {
        const std::int64_t position = placement.positions[static_cast<std::size_t>(a)];
        double product = 0;
        for (std::int64_t i = 0; i < size && position != kDropped; ++i)
          product += element(x, a / 2 * size + i) * element(placed, position * size + i);
        EXPECT_NEAR(element(products, a), product, exact);
      }
      for (std::int64_t i = 0; i < 3 * size; ++i) {
        double sum = 0;
        for (std::int64_t a = i / size * 2; a < i / size * 2 + 2; ++a)
          if (const auto at = placement.positions[static_cast<std::size_t>(a)]; at != kDropped)
            sum += element(weights, a) * element(placed, at * size + i % size);
        EXPECT_NEAR(element(y, i), sum, exact + c.rounding * std::abs(sum));  // rounded once
      }
      place_rows(x, placement, weights, placed);
      for (std::int64_t a = 0; a < 6; ++a) {
        const std::int64_t at = placement.positions[static_cast<std::size_t>(a)];
        for (std::int64_t i = 0; i < size && at != kDropped; ++i) {
          const double product = element(weights, a) * element(x, a / 2 * size + i);
          EXPECT_NEAR(element(placed, at * size + i), product,
                      (wide == DataType::float64 ? 1e-15 : 1e-6) + c.rounding * std::abs(product));
        }
      }
    }
}

}  // namespace
}  // namespace tutti::training::test
