// moe_test.cc: mixtures of experts against differences, and against themselves with experts on
// other ranks: bit by bit where only rows travel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "training/modules/mlp.hpp"
#include "training/modules/moe.hpp"
#include "training/modules/router.hpp"
#include "unit/training/gradient_check.hpp"
#include "unit/training/sharded_run.hpp"

namespace tutti::training::test {
namespace {

// ---- Modules, on one rank ----

ModelConfig mixtral(std::int64_t experts, double capacity_factor = 0) {
  ModelConfig config;
  config.architecture = Architecture::mixtral;
  config.hidden = 6;
  config.intermediate = 8;
  config.layers = 2;
  config.experts = experts;
  config.experts_per_token = 2;
  config.capacity_factor = capacity_factor;
  return config;
}

MakeModule make_mixture(const ModelConfig& config) {
  return [config](Context& context) {
    return std::make_unique<MixtureOfExperts>("m", config, context);
  };
}

// The weights as the output of a module.
class RouterAlone final : public Module {
 public:
  RouterAlone(const ModelConfig& config, Context& context) : router_("r", config, context) {}
  Tensor forward(const Tensor& x, Kept& kept) override { return router_.forward(x, kept).weights; }
  Tensor backward_input(const Tensor& dy, Kept& kept) override {
    return router_.backward_input(dy, kept);
  }
  void backward_weight(Kept& kept) override { router_.backward_weight(kept); }
  void visit(const ParameterVisitor& visitor) override { router_.visit(visitor); }

 private:
  Router router_;
};

TEST(RouterModule, GradientsAreSlopes) {
  for (const double balance_scale : {0.0, 0.7}) {
    OneRank rank(DataType::float64, 1, 9);
    rank.context.balance_scale = balance_scale;
    RouterAlone router(mixtral(5), rank.context);
    rank.own(router);
    expect_gradients(router, rank.context, rank.normal({9, 6}, "x"));
  }
}

TEST(Mixture, GradientsAreSlopes) {
  for (const bool recompute : {false, true}) {
    OneRank rank(DataType::float64, 1, 9);
    rank.context.balance_scale = 0.7;
    MixtureOfExperts mixture("m", mixtral(4), rank.context);
    mixture.set_recompute(recompute);
    rank.own(mixture);
    expect_gradients(mixture, rank.context, rank.normal({9, 6}, "x"));
    EXPECT_EQ(mixture.dropped(), 0);
  }
}

TEST(Mixture, GradientsAreSlopesWhereRowsAreDropped) {
  OneRank rank(DataType::float64, 1, 9);
  rank.context.balance_scale = 0.3;
  MixtureOfExperts mixture("m", mixtral(4, 0.7), rank.context);
  rank.own(mixture);
  expect_gradients(mixture, rank.context, rank.normal({9, 6}, "x"));
  EXPECT_GT(mixture.dropped(), 0);
}

TEST(Mixture, DropsWhatIsBeyondTheCapacity) {
  OneRank rank(DataType::float32, 4, 25);
  MixtureOfExperts mixture("m", mixtral(8, 0.75), rank.context);
  rank.own(mixture);
  Kept kept;
  mixture.forward(rank.normal({100, 6}, "x"), kept);
  std::int64_t beyond = 0;
  for (const std::int64_t load : mixture.load()) beyond += std::max<std::int64_t>(load - 19, 0);
  EXPECT_EQ(std::accumulate(mixture.load().begin(), mixture.load().end(), std::int64_t{0}), 200);
  EXPECT_GT(beyond, 0);
  EXPECT_EQ(mixture.dropped(), beyond);  // 0.75 * 100 * 2 / 8, rounded up, is 19
}

// Both of two experts are chosen, so that roundings move no row to another one.
TEST(Mixture, OfNarrowTypesIsFloat64Rounded) {
  struct Case {
    DataType type;
    double tolerance;
  };
  RunShape shape = {.batch = 2, .sequence = 6, .size = 6, .balance_scale = 0.4};
  const RunResult exact = run_sharded(make_mixture(mixtral(2)), shape);
  for (const Case& c : {Case{DataType::bfloat16, 3e-2}, Case{DataType::float16, 4e-3},
                        Case{DataType::float32, 2e-6}}) {
    SCOPED_TRACE(to_string(c.type));
    shape.type = c.type;
    expect_close(run_sharded(make_mixture(mixtral(2)), shape), exact, c.tolerance);
  }
}

// With all experts alike, it matters not which are chosen.
TEST(Mixture, OfEqualExpertsIsAnMlp) {
  const ModelConfig config = mixtral(4);
  OneRank rank(DataType::float64, 1, 11);
  MixtureOfExperts mixture("m", config, rank.context);
  Mlp mlp("mlp", config, rank.context);
  rank.own(mixture);
  rank.own(mlp);
  const std::map<std::string, std::string> same = {
      {"w1", "mlp.gate_proj.weight"}, {"w2", "mlp.down_proj.weight"}, {"w3", "mlp.up_proj.weight"}};
  mixture.visit([&](Parameter& parameter) {
    for (const auto& [weight, name] : same)
      if (parameter.name.find("." + weight + ".") != std::string::npos)
        fill_normal(parameter.value, name, 0.3);
  });
  Kept kept, mlp_kept;
  const Tensor x = rank.normal({11, 6}, "x");
  const std::vector<double> y = elements(mixture.forward(x, kept));
  EXPECT_LE(relative_difference(y, elements(mlp.forward(x, mlp_kept))), 1e-14);
}

TEST(Mixture, NamesItsParametersAsMixtralDoes) {
  AxisWorld ep(2);
  for (int r = 0; r < 2; ++r) {
    Alone tp;
    TestRank rank(DataType::float32, tp, ep.axis(r));
    MixtureOfExperts mixture("m", mixtral(4), rank.context);
    std::vector<std::string> names;
    mixture.visit([&](Parameter& p) {
      names.push_back(p.name);
      EXPECT_EQ(p.expert, p.name != "m.gate.weight");
      EXPECT_EQ(p.whole_shape, p.name == "m.gate.weight"                  ? Shape({4, 6})
                               : p.name.find(".w2.") != std::string::npos ? Shape({6, 8})
                                                                          : Shape({8, 6}));
    });
    std::vector<std::string> expected = {"m.gate.weight"};
    for (int e = 2 * r; e < 2 * r + 2; ++e)
      for (const char* weight : {"w1", "w2", "w3"})
        expected.push_back("m.experts." + std::to_string(e) + "." + weight + ".weight");
    EXPECT_EQ(names, expected);
  }
}

// ---- Experts on several ranks ----

// Counts what goes over an expert-parallel axis. Units: rows.
class CountingAxis final : public Axis {
 public:
  explicit CountingAxis(Axis& axis) : axis_(axis) {}
  int size() const override { return axis_.size(); }
  int rank() const override { return axis_.rank(); }
  void all_reduce_sum(const Tensor& data) override { axis_.all_reduce_sum(data); }
  void all_reduce_max(const Tensor& data) override { axis_.all_reduce_max(data); }
  void all_gather(const Tensor& part, const Tensor& whole) override {
    axis_.all_gather(part, whole);
  }
  void reduce_scatter(const Tensor& whole, const Tensor& part) override {
    axis_.reduce_scatter(whole, part);
  }
  void all_to_all_rows(const Tensor& sent, std::span<const std::int64_t> sent_rows,
                       const Tensor& received,
                       std::span<const std::int64_t> received_rows) override {
    std::int64_t to_others = 0;
    for (int p = 0; p < size(); ++p)
      if (p != rank()) to_others += sent_rows[static_cast<std::size_t>(p)];
    rows.push_back(to_others);
    axis_.all_to_all_rows(sent, sent_rows, received, received_rows);
  }
  void exchange_counts(std::span<const std::int64_t> sent,
                       std::span<std::int64_t> received) override {
    axis_.exchange_counts(sent, received);
  }
  Status status() const override { return axis_.status(); }

  std::vector<std::int64_t> rows;  // to other ranks, of each call

 private:
  Axis& axis_;
};

// What expert-parallel rank r computes: its micro-batch has other numbers, and may be shorter.
RunShape micro_batch(DataType type, int r, std::int64_t sequence) {
  return {.batch = 1,
          .sequence = sequence,
          .size = 6,
          .type = type,
          .balance_scale = 0.4,
          .key = std::to_string(r)};
}

struct ExpertParallelRun {
  std::vector<RunResult> ranks;
  std::vector<std::vector<std::int64_t>> rows;   // see CountingAxis
  std::vector<std::vector<std::int64_t>> loads;  // of each expert, by rank
  std::vector<std::int64_t> dropped;
};

ExpertParallelRun run_expert_parallel(const ModelConfig& config, DataType type,
                                      const std::vector<std::int64_t>& sequences, int tp_size = 1,
                                      bool sequence_parallel = false) {
  const auto ep_size = static_cast<int>(sequences.size());
  ExpertParallelRun run;
  run.ranks.resize(sequences.size());
  run.rows.resize(sequences.size());
  run.loads.resize(sequences.size());
  run.dropped.resize(sequences.size());
  std::vector<std::unique_ptr<AxisWorld>> tps, eps;
  for (int r = 0; r < ep_size; ++r) tps.push_back(std::make_unique<AxisWorld>(tp_size));
  for (int r = 0; r < tp_size; ++r) eps.push_back(std::make_unique<AxisWorld>(ep_size));
  run_ranks(ep_size * tp_size, [&](int r) {
    const auto e = static_cast<std::size_t>(r / tp_size), t = static_cast<std::size_t>(r % tp_size);
    CountingAxis ep(eps[t]->axis(r / tp_size));
    TestRank rank(type, tps[e]->axis(r % tp_size), ep);
    RunShape shape = micro_batch(type, r / tp_size, sequences[e]);
    shape.sequence_parallel = sequence_parallel;
    run_rank(rank, make_mixture(config), shape,
             [&](Module& module, const Tensor& y, const Tensor& dx) {
               collect(rank, module, y, dx, run.ranks[e]);
               if (t > 0) return;
               const auto& mixture = dynamic_cast<const MixtureOfExperts&>(module);
               run.rows[e] = ep.rows;
               run.loads[e] = mixture.load();
               run.dropped[e] = mixture.dropped();
             });
  });
  return run;
}

// Each micro-batch by itself, on one rank that has all experts.
std::vector<RunResult> run_alone(const ModelConfig& config, DataType type,
                                 const std::vector<std::int64_t>& sequences) {
  std::vector<RunResult> results;
  for (std::size_t r = 0; r < sequences.size(); ++r)
    results.push_back(
        run_sharded(make_mixture(config), micro_batch(type, static_cast<int>(r), sequences[r])));
  return results;
}

// The sum of micro-batches' gradients as the balanced tree over them.
template <typename W>
std::vector<double> tree_sum(const std::vector<RunResult>& results, const std::string& name,
                             std::size_t first, std::size_t count) {
  if (count == 1) return results[first].gradients.at(name);
  std::size_t left = 1;
  while (2 * left < count) left *= 2;
  std::vector<double> sum = tree_sum<W>(results, name, first, left);
  const std::vector<double> right = tree_sum<W>(results, name, first + left, count - left);
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] = static_cast<W>(static_cast<W>(sum[i]) + static_cast<W>(right[i]));
  return sum;
}

template <typename W>
void expect_same_bits(const ModelConfig& config, DataType type,
                      const std::vector<std::int64_t>& sequences) {
  SCOPED_TRACE(std::to_string(sequences.size()) + " ranks, " + std::string(to_string(type)));
  const std::vector<RunResult> alone = run_alone(config, type, sequences);
  const ExpertParallelRun shared = run_expert_parallel(config, type, sequences);
  std::size_t weights = 0;
  for (std::size_t r = 0; r < sequences.size(); ++r) {
    EXPECT_EQ(shared.ranks[r].y, alone[r].y);
    EXPECT_EQ(shared.ranks[r].dx, alone[r].dx);
    EXPECT_EQ(shared.ranks[r].balance_loss, alone[r].balance_loss);
    for (const auto& [name, gradient] : shared.ranks[r].gradients) {
      if (name == "m.gate.weight") {
        EXPECT_EQ(gradient, alone[r].gradients.at(name));
      } else {
        EXPECT_EQ(gradient, tree_sum<W>(alone, name, 0, alone.size())) << name;
        ++weights;
      }
    }
  }
  EXPECT_EQ(weights, static_cast<std::size_t>(3 * config.experts));
}

TEST(ExpertParallel, ChangesNoBit) {
  const ModelConfig config = mixtral(12);
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 6u}) {
    const std::vector<std::int64_t> sequences(ranks, 13);
    expect_same_bits<float>(config, DataType::float32, sequences);
    expect_same_bits<double>(config, DataType::float64, sequences);
    expect_same_bits<float>(config, DataType::bfloat16, sequences);
  }
}

TEST(ExpertParallel, ChangesNoBitWhereRowsAreDropped) {
  const ModelConfig config = mixtral(4, 0.8);
  expect_same_bits<float>(config, DataType::float32, {21, 21, 21, 21});
  const ExpertParallelRun run = run_expert_parallel(config, DataType::float32, {21, 21, 21, 21});
  std::int64_t dropped = 0;
  for (std::size_t r = 0; r < 4; ++r) {
    std::int64_t beyond = 0;  // 0.8 * 21 * 2 / 4, rounded up, is 9
    for (const std::int64_t load : run.loads[r]) beyond += std::max<std::int64_t>(load - 9, 0);
    EXPECT_EQ(run.dropped[r], beyond);
    dropped += beyond;
  }
  EXPECT_GT(dropped, 0);
}

TEST(ExpertParallel, WorksWithRanksAndExpertsThatHaveNoRows) {
  expect_same_bits<float>(mixtral(8), DataType::float32, {5, 0, 1, 0});
  expect_same_bits<double>(mixtral(4), DataType::float64, {0, 9});
  expect_same_bits<float>(mixtral(4), DataType::float32, {0, 0});
}

TEST(ExpertParallel, OnlyRoutedRowsTravel) {
  const ModelConfig config = mixtral(8);
  const ExpertParallelRun run = run_expert_parallel(config, DataType::float32, {17, 9, 20, 3});
  std::int64_t away = 0, sent = 0;
  for (std::size_t r = 0; r < 4; ++r) {
    ASSERT_EQ(run.rows[r].size(), 4u) << "there and back, of values and of gradients";
    std::int64_t to_others = 0, from_others = 0;
    for (std::size_t e = 0; e < 8; ++e) {
      if (e / 2 != r) to_others += run.loads[r][e];
      for (std::size_t p = 0; p < 4; ++p)
        if (e / 2 == r && p != r) from_others += run.loads[p][e];
    }
    EXPECT_EQ(run.rows[r],
              (std::vector<std::int64_t>{to_others, from_others, to_others, from_others}));
    away += to_others;
    sent += run.rows[r][0] + run.rows[r][1] + run.rows[r][2] + run.rows[r][3];
  }
  EXPECT_EQ(sent, 4 * away);
  EXPECT_LT(away, 2 * (17 + 9 + 20 + 3)) << "what is for oneself stays";
}

TEST(ExpertParallel, DroppedRowsDoNotTravel) {
  const ExpertParallelRun run = run_expert_parallel(mixtral(4, 0.5), DataType::float32, {20, 20});
  for (std::size_t r = 0; r < 2; ++r) {
    std::int64_t to_others = 0;  // at most 0.5 * 20 * 2 / 4 = 5 to each
    for (std::size_t e = 2 * (1 - r); e < 2 * (1 - r) + 2; ++e)
      to_others += std::min<std::int64_t>(run.loads[r][e], 5);
    EXPECT_EQ(run.rows[r][0], to_others);
  }
}

TEST(TensorParallelExperts, AreTheSameAsOnOneRank) {
  const RunShape shape = {.batch = 2, .sequence = 6, .size = 6, .balance_scale = 0.4};
  expect_same_when_sharded(make_mixture(mixtral(4)), shape);
  expect_same_when_sharded(make_mixture(mixtral(4, 0.8)), shape);
}

TEST(TensorParallelExperts, AreTheSameWithExpertParallelism) {
  const ModelConfig config = mixtral(4);
  const std::vector<std::int64_t> sequences = {8, 12};
  const std::vector<RunResult> alone = run_alone(config, DataType::float64, sequences);
  for (const bool sequence_parallel : {false, true}) {
    const ExpertParallelRun run =
        run_expert_parallel(config, DataType::float64, sequences, 2, sequence_parallel);
    for (std::size_t r = 0; r < sequences.size(); ++r) {
      EXPECT_LE(relative_difference(run.ranks[r].y, alone[r].y), 1e-12);
      EXPECT_LE(relative_difference(run.ranks[r].dx, alone[r].dx), 1e-12);
      EXPECT_EQ(run.ranks[r].gradients.size(), 7u);
      for (const auto& [name, gradient] : run.ranks[r].gradients)
        EXPECT_LE(relative_difference(gradient, name == "m.gate.weight"
                                                    ? alone[r].gradients.at(name)
                                                    : tree_sum<double>(alone, name, 0, 2)),
                  1e-12)
            << name;
    }
  }
}

// An axis that has lost its peers: counts that come over it are nothing to allocate by.
class BrokenAxis final : public Axis {
 public:
  int size() const override { return 2; }
  int rank() const override { return 0; }
  void all_reduce_sum(const Tensor&) override {}
  void all_reduce_max(const Tensor&) override {}
  void all_gather(const Tensor&, const Tensor&) override {}
  void reduce_scatter(const Tensor&, const Tensor&) override {}
  void all_to_all_rows(const Tensor&, std::span<const std::int64_t>, const Tensor&,
                       std::span<const std::int64_t>) override {}
  void exchange_counts(std::span<const std::int64_t>, std::span<std::int64_t> received) override {
    std::fill(received.begin(), received.end(), std::int64_t{1} << 60);
  }
  Status status() const override { return {StatusCode::peer_lost, "rank 1 hung up"}; }
};

TEST(ExpertParallel, OutlivesAnAxisThatFails) {
  Alone tp;
  BrokenAxis ep;
  TestRank rank(DataType::float32, tp, ep);
  run_rank(rank, make_mixture(mixtral(4)), micro_batch(DataType::float32, 0, 7),
           [](Module&, const Tensor& y, const Tensor& dx) {
             EXPECT_EQ(y.count(), 42);
             EXPECT_EQ(dx.count(), 42);
           });
}

}  // namespace
}  // namespace tutti::training::test
