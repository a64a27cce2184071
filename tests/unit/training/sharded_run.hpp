// sharded_run.hpp: runs a module on one rank or on the threads of a tensor-parallel axis, and puts
// what the ranks have together again, so that one can be compared with the other.
//
// Knows nothing of what the module computes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "training/modules/module.hpp"
#include "unit/training/axis_world.hpp"
#include "unit/training/gradient_check.hpp"

namespace tutti::training::test {

// A module without one of its parameters. Without positions, a bias of keys adds the same to all
// scores of a row: its gradient is 0, and differences find nothing but roundings.
class Without final : public Module {
 public:
  Without(Module& module, std::string hidden) : module_(module), hidden_(std::move(hidden)) {}

  Tensor forward(const Tensor& x, Kept& kept) override { return module_.forward(x, kept); }
  Tensor backward_input(const Tensor& dy, Kept& kept) override {
    return module_.backward_input(dy, kept);
  }
  void backward_weight(Kept& kept) override { module_.backward_weight(kept); }
  void visit(const ParameterVisitor& visitor) override {
    module_.visit([&](Parameter& parameter) {
      if (parameter.name != hidden_) return visitor(parameter);
      for (const double slope : elements(parameter.gradient)) EXPECT_NEAR(slope, 0, 1e-12);
    });
  }

 private:
  Module& module_;
  std::string hidden_;
};

using MakeModule = std::function<std::unique_ptr<Module>(Context&)>;

struct RunShape {
  std::int64_t batch = 2, sequence = 8, size = 16;
  DataType type = DataType::float64;
  double balance_scale = 0;
  std::string key = {};  // of the random numbers that x and dy are
  int tp = 1;
  bool sequence_parallel = false;
};

// Of the whole: each rank's part at its place.
struct RunResult {
  std::vector<double> y, dx;
  std::map<std::string, std::vector<double>> gradients;
  double balance_loss = 0;
};

// Adds a rank's gradient to the whole one at the place of its part: what several ranks hold a part
// of the sum of is thereby summed. What all have computed alike counts once.
inline void add_part(RunResult& result, const Parameter& parameter, int rank) {
  std::vector<double>& whole = result.gradients[parameter.name];
  whole.resize(static_cast<std::size_t>(parameter.whole_shape.count()));
  const Shape here = parameter.shape();
  const bool by_columns = parameter.part.dimension == 1;
  const std::int64_t columns = here.rank() == 2 ? here[1] : 1;
  const std::int64_t whole_columns = here.rank() == 2 ? parameter.whole_shape[1] : 1;
  for (std::int64_t i = 0; i < parameter.gradient.count(); ++i) {
    const std::int64_t row = i / columns + (by_columns ? 0 : parameter.part.begin);
    const std::int64_t column = i % columns + (by_columns ? parameter.part.begin : 0);
    double& at = whole[static_cast<std::size_t>(row * whole_columns + column)];
    const double value = element(parameter.gradient, i);
    if (parameter.sharing != Sharing::same || rank == 0)
      at += value;
    else
      EXPECT_EQ(at, value) << parameter.name << " is computed alike by all ranks";
  }
}

// Rows [first, first + rows) of a matrix of normal numbers.
inline Tensor normal_rows(TestRank& rank, std::string_view key, std::int64_t all,
                          std::int64_t first, std::int64_t rows, std::int64_t size) {
  const Tensor made = rank.context.activation({rows, size});
  const Tensor whole = rank.normal({all, size}, key);
  std::memcpy(made.data(), whole.part(first, rows).data(), made.bytes());
  return made;
}

// One forward and backward of random numbers that do not depend on how they are shared.
inline void run_rank(TestRank& rank, const MakeModule& make, const RunShape& shape,
                     const std::function<void(Module&, const Tensor& y, const Tensor& dx)>& done) {
  Context& context = rank.context;
  context.batch = shape.batch;
  context.sequence = shape.sequence;
  context.sequence_parallel = shape.sequence_parallel;
  context.balance_scale = shape.balance_scale;
  const std::int64_t rows = context.local_rows();
  const std::int64_t first = shape.sequence_parallel ? context.tp.rank() * rows : 0;
  const std::unique_ptr<Module> module = make(context);
  rank.own(*module);
  Kept kept;
  const Tensor y = module->forward(
      normal_rows(rank, "x" + shape.key, context.rows(), first, rows, shape.size), kept);
  const Tensor dx = module->backward_input(
      normal_rows(rank, "dy" + shape.key, context.rows(), first, rows, shape.size), kept);
  module->backward_weight(kept);
  EXPECT_TRUE(kept.empty());
  done(*module, y, dx);
}

// Adds what a rank has to the result, after the ranks before it on the tensor-parallel axis.
inline void collect(TestRank& rank, Module& module, const Tensor& y, const Tensor& dx,
                    RunResult& result) {
  const Context& context = rank.context;
  for (int turn = 0; turn < context.tp.size(); ++turn) {
    if (turn == context.tp.rank()) {
      module.visit([&](Parameter& parameter) { add_part(result, parameter, turn); });
      const std::vector<double> ys = elements(y), dxs = elements(dx);
      if (context.sequence_parallel || turn == 0) {
        result.y.insert(result.y.end(), ys.begin(), ys.end());
        result.dx.insert(result.dx.end(), dxs.begin(), dxs.end());
      } else {
        EXPECT_EQ(ys, result.y) << "all ranks have the same output";
        EXPECT_EQ(dxs, result.dx) << "all ranks have the same gradient";
      }
      result.balance_loss = context.balance_loss;
    }
    context.tp.all_reduce_sum(
        Tensor::zeros(rank.arena, MemoryKind::activation, context.type, {1}));  // turns wait
  }
}

inline RunResult run_sharded(const MakeModule& make, const RunShape& shape) {
  AxisWorld tp(shape.tp);
  RunResult result;
  run_ranks(shape.tp, [&](int r) {
    Alone ep;
    TestRank rank(shape.type, tp.axis(r), ep);
    run_rank(rank, make, shape, [&](Module& module, const Tensor& y, const Tensor& dx) {
      collect(rank, module, y, dx, result);
    });
  });
  return result;
}

// Whether numbers are 0 but for roundings, which have no relative difference: see Without.
inline bool is_nothing(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::abs(x) <= 1e-14; });
}

inline void expect_close(const RunResult& a, const RunResult& b, double tolerance) {
  EXPECT_LE(relative_difference(a.y, b.y), tolerance);
  EXPECT_LE(relative_difference(a.dx, b.dx), tolerance);
  EXPECT_NEAR(a.balance_loss, b.balance_loss, tolerance);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    if (is_nothing(gradient) && is_nothing(b.gradients.at(name))) continue;
    EXPECT_LE(relative_difference(gradient, b.gradients.at(name)), tolerance) << name;
  }
}

// Whether a module computes the same on one rank as on two and four, with and without sequence
// parallelism.
inline void expect_same_when_sharded(const MakeModule& make, RunShape shape,
                                     double tolerance = 1e-12) {
  const RunResult alone = run_sharded(make, shape);
  for (const int tp : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE("tp " + std::to_string(tp) + (sequence_parallel ? " with" : " without") +
                   " sequence parallelism");
      shape.tp = tp;
      shape.sequence_parallel = sequence_parallel;
      expect_close(run_sharded(make, shape), alone, tolerance);
    }
  }
}

}  // namespace tutti::training::test
