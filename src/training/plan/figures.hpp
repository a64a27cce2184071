// figures.hpp: the planner's figures: floating-point operations, times and utilisation by the
// formulas that papers give, what devices can do; and for a model, a mesh and options, what each
// rank will hold, compute and send.
//
// Predicts; it measures nothing and does not know how fast links are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/architecture/recompute.hpp"
#include "training/plan/mesh.hpp"
#include "training/plan/pipeline_schedule.hpp"
#include "training/tensor/arena.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// ---- What devices can do ----

// As its maker states it; of operations, dense ones in bfloat16.
struct Device {
  std::string_view name;
  double flops = 0;         // a second
  double memory_bytes = 0;  // 10^9 to the GB
  double memory_rate = 0;   // bytes a second; 0: not known here
};

std::span<const Device> devices();

// Errors  invalid_argument for a name that we do not know, with those that we do.
Result<Device> find_device(std::string_view name);

// ---- Formulas ----

// A GPT, for the formulas of Narayanan et al.: Efficient large-scale language model training on GPU
// clusters (2021).
struct GptShape {
  double layers = 0;
  double hidden = 0;
  double vocabulary = 0;
  double sequence = 0;
};

// 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)), their equation 2.
double gpt_parameters(const GptShape& shape);

// Of a step of `batch` sequences with full recomputation: 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)),
// their equation 3.
double gpt_step_flops(const GptShape& shape, double batch);

// 8 T P / (n X): the seconds that it takes `devices` of `flops` a second each, as achieved, to
// train with full recomputation; their equation 4.
double training_seconds(double tokens, double parameters, double devices, double flops);

// 6 N D^2 L: forward, and backward with twice as much, of L square layers of D x D on N rows.
double mlp_training_flops(double layers, double size, double rows);

// Operations for each token of training without recomputation: 6 N + 12 L H Q T, the scores not
// halved by the causal mask. Model FLOPs utilisation is this by tokens a second, over the peak.
// Source  Chowdhery et al.: PaLM (2022), appendix B.
double flops_per_token(double parameters, double layers, double heads, double head_size,
                       double sequence);
double utilisation(double flops_per_token, double tokens_per_second, double devices,
                   double peak_flops);

// Idle by working time of GPipe or 1F1B (chunks = 1) and interleaved 1F1B: (p - 1)/(v m).
double bubble_overhead(int ranks, int micro_batches, int chunks = 1);

// ---- A plan ----

struct PlanOptions {
  std::int64_t sequence = 1024;  // tokens
  std::int64_t micro_batch = 1;  // sequences
  int micro_batches = 1;         // of a step, of each data-parallel rank
  int zero_stage = 0;            // among dp_shard; 3: values are gathered for each micro-batch
  bool keep_values = false;      // of stage 3: gathered once in a step instead
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  std::string schedule = "1f1b";
  std::optional<PipelineSchedule> own_schedule = {};  // instead of the one of that name
  int chunks_per_rank = 1;
  std::string recipe = "bf16";
  std::int64_t bucket_bytes = 25 << 20;  // of gradients that are reduced as one, below stage 3
};

// What a rank sends along one axis in a step, with collectives that send no more than they must.
struct Traffic {
  MeshAxis axis = MeshAxis::dp;
  std::string what;
  std::int64_t calls = 0;
  double bytes = 0;
};

// One pipeline rank: what any of the ranks at that place has, at most.
struct RankEstimate {
  std::int64_t layers = 0;
  std::int64_t parameters = 0;               // here, before data-parallel ranks share them
  std::array<double, kMemoryKinds> bytes{};  // by MemoryKind; of communication nothing
  std::vector<Traffic> traffic;

  double total_bytes() const;
};

struct PlanEstimate {
  Mesh mesh;
  std::int64_t parameters = 0;         // of the model, tied ones once
  std::int64_t active_parameters = 0;  // that one token is multiplied with
  std::vector<RankEstimate> ranks;     // by pipeline rank
  double bubble_fraction = 0;          // of the schedule with F = I = W
  double tokens_per_step = 0;          // of all ranks
  double flops_per_token = 0;          // of training, without what is recomputed
  double flops_per_step = 0;           // of all ranks, with it
};

// Activations are what our modules keep for backward; what flows between modules is not counted.
// Routing to experts is taken to be uniform, and layers to be dealt out as evenly as can be, the
// first stages having one more.
// Requires  check(config).ok(); a mesh of make_mesh().
// Errors    invalid_argument with what does not divide, or a name that we do not know.
Result<PlanEstimate> estimate(const ModelConfig& config, const Mesh& mesh,
                              const PlanOptions& options);

// The estimate as text that people read.
std::string plan_table(const PlanEstimate& plan);

}  // namespace tutti::training
