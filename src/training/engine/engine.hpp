// engine.hpp: one rank's part of training one model: it holds the rank's stages and optimizer, and
// makes whole steps. A world of one rank is the serial reference of all others.
//
// The order of every sum is fixed by micro-batches' numbers in the step (see number_of),
// so that layouts agree to the bit where the mathematics lets them.
//
// Knows neither files nor tokens' origin: the caller fills micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/engine/pipeline_runner.hpp"
#include "training/model/stage.hpp"
#include "training/optim/loss_scaler.hpp"
#include "training/optim/optimizer.hpp"
#include "training/parallel/communicator_axis.hpp"
#include "training/parallel/data_parallel.hpp"
#include "training/parallel/groups.hpp"
#include "training/plan/mesh.hpp"
#include "training/plan/pipeline_schedule.hpp"

namespace tutti::training {

struct EngineOptions {
  ModelConfig model;
  Mesh mesh;
  DataType type = DataType::float32;
  std::string gemm = "auto";
  std::int64_t micro_batch_rows = 1;  // sequences in a micro-batch
  std::int64_t sequence = 64;         // tokens in a sequence
  std::int64_t micro_batches = 1;     // of one step, on all ranks together
  bool sequence_parallel = false;
  std::string schedule = "1f1b";                 // of pipeline stages: see make_schedule() of plan/
  std::optional<PipelineSchedule> own_schedule;  // instead of the one of that name
  int chunks_per_rank = 1;                       // virtual stages
  RecomputePolicy recompute;
  DataParallelOptions data;
  OptimizerSettings optimizer;
  double clip = 1.0;         // the largest norm of the gradient; 0: any
  bool scales_loss = false;  // dynamically, for float16
  LossScalerSettings loss_scaler;
};

// Fills tokens and targets, each [micro_batch_rows * sequence], of micro-batch `number` of a step.
using FillMicroBatch = std::function<void(std::int64_t number, std::span<std::int32_t> tokens,
                                          std::span<std::int32_t> targets)>;

struct StepInput {
  FillMicroBatch fill;
  std::int64_t targets = 0;  // that count, in the whole step
  double learning_rate = 0;
  bool wants_stop = false;  // this rank's: somebody pressed Ctrl-C
};

// The same on all ranks.
struct StepResult {
  double loss = 0;           // mean over the targets that count, in nats
  double balance_loss = 0;   // mean over micro-batches and layers; uniform routing gives 1
  double gradient_norm = 0;  // before clipping
  bool skipped = false;      // an overflow: weights are as before
  double loss_scale = 1;
  bool wants_stop = false;  // some rank's
};

// Where a master's elements lie, for whoever fills or saves them.
struct MasterPlace {
  Parameter* parameter;
  std::int64_t begin;  // of the rank's part of the parameter, in elements
  Tensor value;        // wide
  std::vector<Tensor> moments;
  bool answers;  // false: another rank has the same and saves it
};

class Engine {
 public:
  // Collective over `world`. Lifetime  of the world: longer.
  // Errors  invalid_argument: a layout that the model does not divide into, with the equation.
  static Result<std::unique_ptr<Engine>> make(Communicator& world, const EngineOptions& options);
  ~Engine();

  // Draws all weights from `seed` and their names: the same whatever the layout.
  Status initialise(std::uint64_t seed);

  // Calls `f` with each part of a weight that this rank has a master of; publish() after changes.
  void visit_masters(const std::function<void(const MasterPlace&)>& f);
  Status publish();

  // After an error no further step can be made; what is on its way is let go of.
  Result<StepResult> step(const StepInput& input);

  // The mean loss over `input.targets` targets; nothing is learnt.
  Result<double> evaluate(const StepInput& input, std::int64_t micro_batches);

  std::int64_t micro_batches_here() const;

  std::int64_t steps_done() const { return steps_done_; }  // of the optimizer
  LossScaler& loss_scaler() { return scaler_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }

  const EngineOptions& options() const { return options_; }
  const PipelineSchedule& schedule() const { return schedule_; }
  Arena& arena() { return arena_; }
  Timeline& timeline() { return timeline_; }
  const Gemm& gemm() const { return *gemm_; }
  Groups& groups() { return *groups_; }
  DataParallel& data_parallel() { return *data_; }
  const PipelineRunner& runner() const { return *runner_; }
  std::vector<std::unique_ptr<Stage>>& stages() { return stages_; }

 private:
  Engine(const EngineOptions& options, std::unique_ptr<Groups> groups, std::unique_ptr<Gemm> gemm,
         PipelineSchedule schedule);

  // What all ranks know after a step.
  struct Shared {
    double loss_sum = 0, balance = 0;
    bool wants_stop = false;
  };

  void make_stages();
  Result<StepResult> make_step(const StepInput& input);
  Status make_micro_batches(const StepInput& input, std::int64_t count, double loss_scale,
                            std::vector<MicroBatchData>& made) const;
  Status share_losses(const std::vector<MicroBatchResult>& results, std::int64_t count,
                      bool wants_stop, Shared& shared);
  Status first_failure() const;
  void update(double learning_rate, double gradient_scale);
  // The number in the step of this rank's j-th micro-batch, of so many here.
  std::int64_t number_of(std::int64_t j, std::int64_t here) const;

  EngineOptions options_;
  std::unique_ptr<Groups> groups_;
  std::unique_ptr<Gemm> gemm_;
  PipelineSchedule schedule_;
  Arena arena_;
  Timeline timeline_;
  CommunicatorAxis tp_, ep_;
  Context context_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::unique_ptr<DataParallel> data_;
  std::unique_ptr<PipelineRunner> runner_;
  struct Moments;
  std::vector<Moments> moments_;  // in the order of DataParallel::visit
  LossScaler scaler_;
  std::int64_t steps_done_ = 0;
};

// Sums along the tree of GradientTree.
double tree_sum(std::span<const double> values);

}  // namespace tutti::training
