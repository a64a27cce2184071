// verify.cc: see verify.hpp.
#include "training/trainer/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "training/engine/engine.hpp"
#include "training/engine/whole_weights.hpp"
#include "training/trainer/run_data.hpp"
#include "training/trainer/setup.hpp"

namespace tutti::training {
namespace {

// What came out of a run.
struct Trained {
  std::vector<double> losses;
  WholeWeights weights;
  Status status;  // the first failure of any rank
  std::mutex mutex;
};

Status train_rank(const RunConfig& run, const ModelConfig& model, const RunData& data,
                  Communicator& world, Trained& trained) {
  auto options = engine_options(run, model, world.size());
  if (!options.ok()) return options.status();
  auto engine = Engine::make(world, *options);
  if (!engine.ok()) return engine.status();
  Status status = (*engine)->initialise(static_cast<std::uint64_t>(run.train.seed));
  for (std::int64_t step = 0; status.ok() && step < run.train.steps; ++step) {
    auto result = (*engine)->step(data.step(step, options->micro_batches));
    status = result.status();
    if (status.ok() && world.rank() == 0) trained.losses.push_back(result->loss);
  }
  if (status.ok()) status = (*engine)->data_parallel().settle_values();
  if (!status.ok()) return status;
  const std::lock_guard lock(trained.mutex);
  add_weights(**engine, trained.weights);
  return {};
}

Status train_threads(const RunConfig& run, const ModelConfig& model, const RunData& data, int ranks,
                     Trained& trained) {
  auto worlds = Communicator::for_threads(ranks, communicator_options(run));
  if (!worlds.ok()) return worlds.status();
  std::vector<std::thread> threads;
  for (Communicator& world : *worlds)
    threads.emplace_back([&] {
      const Status status = train_rank(run, model, data, world, trained);
      if (status.ok()) return;
      world.abort();
      const std::lock_guard lock(trained.mutex);
      if (trained.status.ok()) trained.status = status;
    });
  for (std::thread& thread : threads) thread.join();
  return trained.status;
}

// The same run without ranks: as many micro-batches, one after the other.
RunConfig without_ranks(RunConfig run) {
  run.parallel = ParallelConfig();
  run.parallel.dp_shard = 1;
  return run;
}

// Infinite where one of them is no number: a run that diverged equals none.
double relative(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  const double scale = std::max(std::abs(a), std::abs(b));
  return scale > 0 ? std::abs(a - b) / scale : 0;
}

double tolerance_of(DataType type) {
  if (type == DataType::float64) return 1e-10;
  return type == DataType::float32 ? 1e-5 : 2e-2;
}

}  // namespace

Result<Verdict> verify(const RunConfig& run, int ranks, std::FILE* out) {
  auto model = model_of(run);
  if (!model.ok()) return model.status();
  auto data = RunData::open(run);
  if (!data.ok()) return data.status();
  if (const Status status = (*data)->corpus().check_vocabulary(model->vocabulary); !status.ok())
    return status;
  Trained layout, alone;
  fmt::print(out, "training {} steps with {} ranks ...\n", run.train.steps, ranks);
  std::fflush(out);
  if (const Status s = train_threads(run, *model, **data, ranks, layout); !s.ok()) return s;
  fmt::print(out, "training {} steps without ranks ...\n", run.train.steps);
  std::fflush(out);
  const RunConfig serial = without_ranks(run);
  if (const Status s = train_threads(serial, *model, **data, 1, alone); !s.ok()) return s;

  Verdict verdict;
  verdict.tolerance = tolerance_of(run.train.dtype);
  fmt::print(out, "{:>6}  {:>20}  {:>20}  {:>10}\n", "step", "loss of the layout", "of one process",
             "difference");
  for (std::size_t step = 0; step < alone.losses.size(); ++step) {
    const double apart = relative(layout.losses[step], alone.losses[step]);
    verdict.loss_difference = std::max(verdict.loss_difference, apart);
    fmt::print(out, "{:>6}  {:>20.15g}  {:>20.15g}  {:>10.2e}\n", step, layout.losses[step],
               alone.losses[step], apart);
  }
  verdict.weight_difference = weight_difference(layout.weights, alone.weights);
  verdict.same_bits = layout.losses == alone.losses && layout.weights == alone.weights;
  verdict.equal = verdict.loss_difference <= verdict.tolerance;
  return verdict;
}

}  // namespace tutti::training
