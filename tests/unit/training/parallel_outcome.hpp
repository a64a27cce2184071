// parallel_outcome.hpp: what forward and backward of a module come to on several tensor-parallel
// ranks, put together to what one rank computes, so that the two can be compared.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "training/modules/part_runs.hpp"
#include "unit/training/axis_world.hpp"
#include "unit/training/gradient_check.hpp"

namespace tutti::training::test {

struct Layout {
  int tp = 1;
  bool sequence_parallel = false;
  DataType type = DataType::float64;
  std::int64_t batch = 2, sequence = 6;
};

// Of all ranks together.
struct Outcome {
  std::vector<double> y, dx;
  std::map<std::string, std::vector<double>> gradients;  // whole, by the parameter's name
};

// Collects what ranks computed. Threading  any thread.
class OutcomeOfRanks {
 public:
  explicit OutcomeOfRanks(const Layout& layout) : layout_(layout) {}

  // An activation between tensor-parallel parts: rows of this rank, or all of them, and then the
  // same bits on all ranks.
  void add(std::vector<double> Outcome::*which, int rank, const Tensor& local) {
    const std::lock_guard lock(mutex_);
    const std::vector<double> values = elements(local);
    std::vector<double>& whole = outcome_.*which;
    if (!layout_.sequence_parallel) {
      if (whole.empty()) whole = values;
      EXPECT_EQ(whole, values) << "of rank " << rank;
      return;
    }
    whole.resize(values.size() * static_cast<std::size_t>(layout_.tp));
    std::copy(values.begin(), values.end(),
              whole.begin() + static_cast<std::ptrdiff_t>(values.size()) * rank);
  }

  void add(const Parameter& parameter) {
    const std::lock_guard lock(mutex_);
    const std::vector<double> values = elements(parameter.gradient);
    std::vector<double>& whole = outcome_.gradients[parameter.name];
    const bool first = whole.empty();
    whole.resize(static_cast<std::size_t>(parameter.whole_shape.count()));
    if (parameter.sharing == Sharing::same && !first) {
      EXPECT_EQ(whole, values) << parameter.name << " is the same on all ranks";
      return;
    }
    for_each_run(parameter, 0, parameter.count(), [&](const PartRun& run) {
      for (std::int64_t i = 0; i < run.length; ++i)
        whole[static_cast<std::size_t>(run.in_whole + i)] +=
            values[static_cast<std::size_t>(run.in_part + i)];
    });
  }

  const Outcome& outcome() const { return outcome_; }

 private:
  const Layout layout_;
  std::mutex mutex_;
  Outcome outcome_;
};

// Calls `body(rank's surroundings, collector)` in a thread for each rank of the layout.
inline Outcome on_ranks(const Layout& layout,
                        const std::function<void(TestRank&, OutcomeOfRanks&)>& body) {
  AxisWorld world(layout.tp);
  OutcomeOfRanks collected(layout);
  run_ranks(layout.tp, [&](int number) {
    Alone ep;
    TestRank rank(layout.type, world.axis(number), ep);
    rank.context.batch = layout.batch;
    rank.context.sequence = layout.sequence;
    rank.context.sequence_parallel = layout.sequence_parallel;
    body(rank, collected);
  });
  return collected.outcome();
}

// The rows that this rank has of a whole activation that is the same function of `key` everywhere.
inline Tensor local_rows(TestRank& rank, std::int64_t columns, std::string_view key) {
  const Context& context = rank.context;
  const Tensor whole = rank.normal({context.rows(), columns}, key);
  const std::int64_t count = context.local_rows();
  return whole.part(context.sequence_parallel ? context.tp.rank() * count : 0, count);
}

using MakeModule = std::function<std::unique_ptr<Module>(Context&)>;

// Forward, and backward of a random gradient, of a module between activations of `size` columns.
inline Outcome outcome_of(const Layout& layout, std::int64_t size, const MakeModule& make) {
  return on_ranks(layout, [&](TestRank& rank, OutcomeOfRanks& collected) {
    const std::unique_ptr<Module> module = make(rank.context);
    rank.own(*module);
    Kept kept;
    const int number = rank.context.tp.rank();
    collected.add(&Outcome::y, number, module->forward(local_rows(rank, size, "x"), kept));
    collected.add(&Outcome::dx, number, module->backward_input(local_rows(rank, size, "dy"), kept));
    module->backward_weight(kept);
    module->visit([&](Parameter& parameter) { collected.add(parameter); });
  });
}

inline void expect_close(const Outcome& a, const Outcome& b, double tolerance) {
  EXPECT_LE(relative_difference(a.y, b.y), tolerance) << "of the output";
  EXPECT_LE(relative_difference(a.dx, b.dx), tolerance) << "of the input's gradient";
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : b.gradients) {
    ASSERT_TRUE(a.gradients.contains(name)) << name;
    EXPECT_LE(relative_difference(a.gradients.at(name), gradient), tolerance) << "of " << name;
  }
}

// The layouts of up to four ranks, with and without sequence parallelism.
inline std::vector<Layout> parallel_layouts() {
  std::vector<Layout> layouts;
  for (const int tp : {2, 3, 4})
    for (const bool sequence_parallel : {false, true})
      layouts.push_back({.tp = tp, .sequence_parallel = sequence_parallel});
  return layouts;
}

}  // namespace tutti::training::test
