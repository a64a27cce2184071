// figures.cc: see figures.hpp. The estimate goes over the pipeline's ranks: what parameters each
// has follows from its chunks of the model, activations from replaying its schedule, traffic from
// one function for each axis.
#include "training/plan/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "training/plan/memory.hpp"
#include "training/plan/pipeline_clock.hpp"
#include "training/plan/pipeline_generators.hpp"

namespace tutti::training {
namespace {

// Source  the makers' data sheets. H100: 132 multiprocessors x 4096 operations x 1.83 GHz.
constexpr Device kDevices[] = {
    {"v100", 125e12, 32e9, 900e9},
    {"a100", 312e12, 80e9, 2039e9},
    {"h100", 132 * 4096 * 1.83e9, 80e9, 3352e9},
    {"h200", 132 * 4096 * 1.83e9, 141e9, 4800e9},
    {"mi325x", 1300e12, 256e9, 6000e9},
    {"tpu-v4", 275e12, 32e9, 1200e9},
    {"tpu-v5p", 459e12, 96e9, 2765e9},
    {"trainium2", 667e12, 96e9, 2900e9},
};

Status invalid(std::string text) { return {StatusCode::invalid_argument, std::move(text)}; }

// Of what the loss is computed from.
constexpr double kWideBytes = 4;

// One chunk of the model on a pipeline rank.
struct Chunk {
  ModelPart part;
  ParameterCount count;
};

// All that the functions below look at.
struct Plan {
  const ModelConfig& config;
  const Mesh& mesh;
  const PlanOptions& options;
  Recipe recipe;
  PipelineSchedule schedule;

  double rows() const { return static_cast<double>(options.micro_batch * options.sequence); }
  // Of an activation between tensor-parallel parts.
  double local_rows() const { return options.sequence_parallel ? rows() / mesh.tp : rows(); }
  double hidden() const { return static_cast<double>(config.hidden); }
  ActivationPlace place() const {
    return {rows(), local_rows(), mesh.tp, static_cast<double>(recipe.value)};
  }
  // Of one activation, [rows, hidden].
  double activation_bytes() const { return rows() * hidden() * recipe.value; }
};

Status check_degrees(const ModelConfig& config, const Mesh& mesh, const PlanOptions& options) {
  const auto divides = [](int parts, std::int64_t whole, const char* axis, const char* what) {
    if (whole % parts == 0) return Status();
    return invalid(fmt::format("{} {} does not divide the {} {}", axis, parts, whole, what));
  };
  if (Status heads = divides(mesh.tp, config.heads, "tp", "heads"); !heads.ok()) return heads;
  if (Status inner = divides(mesh.tp, config.intermediate, "tp", "columns of the mlp"); !inner.ok())
    return inner;
  if (config.kv_heads % mesh.tp != 0 && mesh.tp % config.kv_heads != 0) {
    return invalid(
        fmt::format("tp {} neither divides the {} heads of keys and values nor is a "
                    "multiple of them",
                    mesh.tp, config.kv_heads));
  }
  if (mesh.ep > 1 && config.experts == 0)
    return invalid(fmt::format("ep is {}, but the model has no experts", mesh.ep));
  if (Status experts = divides(mesh.ep, config.experts, "ep", "experts"); !experts.ok())
    return experts;
  if (options.sequence_parallel)
    return divides(mesh.tp, options.micro_batch * options.sequence, "tp", "rows of a micro-batch");
  return {};
}

Status check_options(const ModelConfig& config, const Mesh& mesh, const PlanOptions& options,
                     const PipelineSchedule& schedule) {
  const std::int64_t most = std::int64_t{1} << 30;
  if (options.sequence < 1 || options.sequence > most || options.micro_batch < 1 ||
      options.micro_batch > most || options.bucket_bytes < 1) {
    return invalid(
        fmt::format("a plan with sequences of {}, micro-batches of {} and buckets of {} "
                    "bytes: each is at least 1",
                    options.sequence, options.micro_batch, options.bucket_bytes));
  }
  if (options.zero_stage < 0 || options.zero_stage > 3)
    return invalid(fmt::format("zero_stage is {}, but there are 0 to 3", options.zero_stage));
  if (schedule.rank_count() != mesh.pp || schedule.micro_batches != options.micro_batches) {
    return invalid(
        fmt::format("a schedule of {} ranks and {} micro-batches for pp {} and {} micro-batches",
                    schedule.rank_count(), schedule.micro_batches, mesh.pp, options.micro_batches));
  }
  const std::int64_t stages = std::int64_t{mesh.pp} * schedule.chunks_per_rank;
  if (stages > config.layers) {
    return invalid(fmt::format("pp {} x {} chunks = {} stages, but the model has {} layers",
                               mesh.pp, schedule.chunks_per_rank, stages, config.layers));
  }
  return check_degrees(config, mesh, options);
}

// The chunks of pipeline rank `rank`; as stage_layers() of the model deals out layers.
std::vector<Chunk> chunks_of(const Plan& plan, int rank) {
  std::vector<Chunk> chunks;
  const int stages = plan.schedule.stages();
  for (int chunk = 0; chunk < plan.schedule.chunks_per_rank; ++chunk) {
    const int stage = plan.schedule.stage_of(rank, chunk);
    const std::int64_t extra = stage < plan.config.layers % stages ? 1 : 0;
    const ModelPart part{plan.config.layers / stages + extra, stage == 0, stage == stages - 1};
    chunks.push_back({part, count_parameters(plan.config, part, plan.mesh.tp, plan.mesh.ep)});
  }
  return chunks;
}

// ---- Memory ----

double chunk_bytes(const Plan& plan, const Chunk& chunk) {
  const ActivationPlace place = plan.place();
  return static_cast<double>(chunk.part.layers) *
             block_activation_bytes(plan.config, place, plan.options.recompute) +
         (chunk.part.has_head ? head_activation_bytes(plan.config, place) : 0);
}

// Those who share a part of the parameters: `shards` have parts of it, `replicas` the same part.
struct Family {
  double count = 0;
  std::int64_t tied = 0;
  int shards = 1;
  int replicas = 1;
  bool experts = false;
};

std::vector<Family> families_of(const Plan& plan, const std::vector<Chunk>& chunks) {
  const Mesh& mesh = plan.mesh;
  Family dense{0, 0, mesh.dp_shard, mesh.dp_replicate, false};
  const bool even = mesh.dp_shard % mesh.ep == 0;
  const int expert_shards = even ? mesh.dp_shard / mesh.ep : 1;
  Family experts{0, 0, expert_shards, mesh.edp() / expert_shards, true};
  for (const Chunk& chunk : chunks) {
    dense.count += static_cast<double>(chunk.count.dense);
    dense.tied += chunk.count.tied;
    experts.count += static_cast<double>(chunk.count.experts);
  }
  std::vector<Family> families = {dense};
  if (experts.count > 0) families.push_back(experts);
  return families;
}

void add_memory(const Plan& plan, int rank, const std::vector<Chunk>& chunks, RankEstimate& to) {
  const auto kind = [&](MemoryKind which) -> double& {
    return to.bytes[static_cast<std::size_t>(which)];
  };
  for (const Family& family : families_of(plan, chunks)) {
    const int zero = plan.options.zero_stage;
    const StateBytes state = state_bytes(plan.recipe, family.count, zero, family.shards);
    kind(MemoryKind::parameter) += state.value;
    kind(MemoryKind::optimizer) += state.optimizer;
    kind(MemoryKind::gradient) +=
        state.gradient +
        state_bytes(plan.recipe, static_cast<double>(family.tied), zero, family.shards).gradient;
  }
  std::vector<double> weights;
  for (const Chunk& chunk : chunks) weights.push_back(chunk_bytes(plan, chunk));
  double& activations = kind(MemoryKind::activation);
  activations = peak_live(plan.schedule.ranks[static_cast<std::size_t>(rank)], weights);
  if (plan.options.recompute == Recompute::full)  // of the one block whose backward runs
    activations += block_activation_bytes(plan.config, plan.place(), Recompute::none);
}

// ---- Traffic ----

// Adds rows to a table, leaving out what nobody sends.
class TrafficList {
 public:
  explicit TrafficList(std::vector<Traffic>& list) : list_(list) {}

  // `part` of `bytes` in each of `calls`.
  void add(MeshAxis axis, const char* what, std::int64_t calls, double part, double bytes) {
    if (calls == 0 || part * bytes == 0) return;
    list_.push_back({axis, what, calls, part * bytes * static_cast<double>(calls)});
  }
  // The same with the bytes of all calls together.
  void add_total(MeshAxis axis, const char* what, std::int64_t calls, double part, double bytes) {
    if (calls == 0 || part * bytes == 0) return;
    list_.push_back({axis, what, calls, part * bytes});
  }

 private:
  std::vector<Traffic>& list_;
};

// What a rank of n sends of the whole: of an all_gather, reduce_scatter or all_to_all, and, twice
// that, of an all_reduce.
double others(int n) { return static_cast<double>(n - 1) / n; }

// Groups that are gathered as one: each block, and the embedding with the head.
std::int64_t units_of(const ModelPart& part) {
  return part.layers + (part.has_embedding || part.has_head ? 1 : 0);
}

// How many parameters the group has that forward of a chunk uses last and backward first: its
// values stay in between.
double last_unit(const Plan& plan, const Chunk& chunk, bool experts) {
  const ModelPart last = chunk.part.has_head ? ModelPart{0, chunk.part.has_embedding, true}
                                             : ModelPart{1, false, false};
  const ParameterCount count = count_parameters(plan.config, last, plan.mesh.tp, plan.mesh.ep);
  return static_cast<double>(experts ? count.experts : count.dense);
}

// Of ZeRO-3: all values before forward, all but the last group's again before backward.
void add_gathers(const Plan& plan, const std::vector<Chunk>& chunks, const Family& family,
                 MeshAxis axis, TrafficList& to) {
  std::int64_t forward = 0, backward = 0;
  double again = 0;
  for (const Chunk& chunk : chunks) {
    const std::int64_t units = family.experts ? chunk.part.layers : units_of(chunk.part);
    const bool keeps_one = !family.experts || !chunk.part.has_head;
    forward += units;
    backward += units - (keeps_one ? 1 : 0);
    again += static_cast<double>(family.experts ? chunk.count.experts : chunk.count.dense) -
             last_unit(plan, chunk, family.experts);
  }
  const double part = others(family.shards) * plan.recipe.value;
  const int times = plan.options.keep_values ? 1 : plan.options.micro_batches;
  to.add_total(axis, "all_gather values, forward", forward * times, part, family.count * times);
  if (!plan.options.keep_values)
    to.add_total(axis, "all_gather values, backward", backward * times, part, again * times);
  // Gradients are never whole for longer than a group's backward: each micro-batch's are scattered.
  const int scatters = plan.options.micro_batches;
  to.add_total(axis, "reduce_scatter gradients", forward * scatters, others(family.shards),
               (family.count + static_cast<double>(family.tied)) * plan.recipe.gradient * scatters);
}

void add_data_parallel(const Plan& plan, const std::vector<Chunk>& chunks, TrafficList& to) {
  for (const Family& family : families_of(plan, chunks)) {
    const double gradients =
        (family.count + static_cast<double>(family.tied)) * plan.recipe.gradient;
    const std::int64_t buckets = std::max<std::int64_t>(
        1, std::llround(std::ceil(gradients / static_cast<double>(plan.options.bucket_bytes))));
    const MeshAxis whole = family.experts ? MeshAxis::edp : MeshAxis::dp;
    const MeshAxis inner = family.experts ? MeshAxis::edp : MeshAxis::dp_shard;
    const MeshAxis outer = family.experts ? MeshAxis::edp : MeshAxis::dp_replicate;
    if (plan.options.zero_stage == 0) {
      const int ranks = family.shards * family.replicas;
      to.add_total(whole, "all_reduce gradients", buckets, 2 * others(ranks), gradients);
      continue;
    }
    std::int64_t reductions = buckets;
    if (plan.options.zero_stage == 3) {
      add_gathers(plan, chunks, family, inner, to);
      reductions = 0;
      for (const Chunk& chunk : chunks)
        reductions += family.experts ? chunk.part.layers : units_of(chunk.part);
    } else {
      // ZeRO-1 adds a rank's micro-batches first, ZeRO-2 scatters each.
      const int scatters = plan.options.zero_stage == 2 ? plan.options.micro_batches : 1;
      to.add_total(inner, "reduce_scatter gradients", buckets * scatters, others(family.shards),
                   gradients * scatters);
      to.add_total(inner, "all_gather values", buckets, others(family.shards),
                   family.count * plan.recipe.value);
    }
    to.add_total(outer, "all_reduce gradients' parts", reductions, 2 * others(family.replicas),
                 gradients / family.shards);
  }
}

// Of each micro-batch: attention and mlp have an operator before and after them, forward and
// backward; one of the two communicates, or with sequence parallelism both.
void add_tensor_parallel(const Plan& plan, const std::vector<Chunk>& chunks, TrafficList& to) {
  const int tp = plan.mesh.tp;
  std::int64_t operators = 0, losses = 0;
  for (const Chunk& chunk : chunks) {
    const std::int64_t again = plan.options.recompute == Recompute::full ? 2 : 0;
    const std::int64_t ends = (chunk.part.has_embedding ? 1 : 0) + (chunk.part.has_head ? 1 : 0);
    operators += chunk.part.layers * (4 + again) + ends;
    losses += chunk.part.has_head ? 3 : 0;
  }
  const std::int64_t calls = operators * plan.options.micro_batches;
  const double whole = plan.activation_bytes();
  if (plan.options.sequence_parallel) {
    to.add(MeshAxis::tp, "all_gather activations", calls, others(tp), whole);
    to.add(MeshAxis::tp, "reduce_scatter activations", calls, others(tp), whole);
  } else {
    to.add(MeshAxis::tp, "all_reduce activations", calls, 2 * others(tp), whole);
  }
  to.add(MeshAxis::tp, "all_reduce for the loss", losses * plan.options.micro_batches,
         2 * others(tp), plan.rows() * kWideBytes);
}

// Routed rows go to their experts and back, forward and backward.
void add_expert_parallel(const Plan& plan, const std::vector<Chunk>& chunks, TrafficList& to) {
  if (plan.config.experts == 0) return;
  std::int64_t layers = 0;
  for (const Chunk& chunk : chunks) layers += chunk.part.layers;
  const std::int64_t ways = plan.options.recompute == Recompute::full ? 6 : 4;
  to.add(MeshAxis::ep, "all_to_all routed rows", layers * ways * plan.options.micro_batches,
         others(plan.mesh.ep),
         plan.activation_bytes() * static_cast<double>(plan.config.experts_per_token));
}

void add_pipeline(const Plan& plan, const std::vector<Chunk>& chunks, TrafficList& to) {
  if (plan.mesh.pp == 1) return;
  std::int64_t forward = 0, backward = 0;
  for (const Chunk& chunk : chunks) {
    forward += chunk.part.has_head ? 0 : plan.options.micro_batches;
    backward += chunk.part.has_embedding ? 0 : plan.options.micro_batches;
  }
  const double message = plan.local_rows() * plan.hidden() * plan.recipe.value;
  to.add(MeshAxis::pp, "send activations", forward, 1, message);
  to.add(MeshAxis::pp, "send gradients", backward, 1, message);
  const bool end = chunks.front().part.has_embedding || chunks.back().part.has_head;
  if (plan.config.tied && end) {
    const double table = std::ceil(static_cast<double>(plan.config.vocabulary) / plan.mesh.tp);
    to.add(MeshAxis::embedding, "all_reduce the tied gradient", 1, 2 * others(2),
           table * plan.hidden() * plan.recipe.gradient);
  }
}

// ---- Operations ----

// What one token is multiplied with in one layer.
std::int64_t active_in_layer(const ModelConfig& config) {
  const std::int64_t attention =
      config.hidden * config.head_size * 2 * (config.heads + config.kv_heads);
  const std::int64_t mlp =
      (config.architecture == Architecture::gpt2 ? 2 : 3) * config.hidden * config.intermediate;
  if (config.experts == 0) return attention + mlp;
  return attention + config.experts_per_token * mlp + config.experts * config.hidden;
}

void add_operations(const Plan& plan, PlanEstimate& to) {
  const ModelConfig& config = plan.config;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const std::int64_t in_layers = config.layers * active_in_layer(config);
  to.active_parameters = in_layers + config.vocabulary * config.hidden;
  to.flops_per_token =
      flops_per_token(number(to.active_parameters), number(config.layers), number(config.heads),
                      number(config.head_size), number(plan.options.sequence));
  to.tokens_per_step = plan.rows() * plan.options.micro_batches * plan.mesh.dp();
  double of_token = to.flops_per_token;
  if (plan.options.recompute == Recompute::full)  // the layers' forward, a third of their share
    of_token += (of_token - 6 * number(config.vocabulary * config.hidden)) / 3;
  to.flops_per_step = of_token * to.tokens_per_step;
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, units[unit]);
}

// For each kind of traffic, that of the rank that has most of it.
std::vector<Traffic> busiest(const std::vector<RankEstimate>& ranks) {
  std::vector<Traffic> most;
  for (const RankEstimate& rank : ranks) {
    for (const Traffic& each : rank.traffic) {
      const auto same = std::find_if(most.begin(), most.end(), [&](const Traffic& other) {
        return other.axis == each.axis && other.what == each.what;
      });
      if (same == most.end())
        most.push_back(each);
      else if (same->bytes < each.bytes)
        *same = each;
    }
  }
  return most;
}

std::string memory_rows(const std::vector<RankEstimate>& ranks) {
  std::string text = fmt::format("{:<8}{:>8}{:>14}", "pp rank", "layers", "elements");
  for (std::size_t kind = 0; kind + 1 < kMemoryKinds; ++kind)
    text += fmt::format("{:>13}", to_string(static_cast<MemoryKind>(kind)));
  text += fmt::format("{:>13}\n", "total");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    text += fmt::format("{:<8}{:>8}{:>14}", rank, ranks[rank].layers, ranks[rank].parameters);
    for (std::size_t kind = 0; kind + 1 < kMemoryKinds; ++kind)
      text += fmt::format("{:>13}", bytes_text(ranks[rank].bytes[kind]));
    text += fmt::format("{:>13}\n", bytes_text(ranks[rank].total_bytes()));
  }
  return text;
}

}  // namespace

std::span<const Device> devices() { return kDevices; }

Result<Device> find_device(std::string_view name) {
  std::string known;
  for (const Device& device : kDevices) {
    if (device.name == name) return device;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", device.name);
  }
  return invalid(fmt::format("no device is called '{}'; there are {}", name, known));
}

double gpt_parameters(const GptShape& of) {
  const double l = of.layers, h = of.hidden;
  return 12 * l * h * h * (1 + 13 / (12 * h) + (of.vocabulary + of.sequence) / (12 * l * h));
}

double gpt_step_flops(const GptShape& of, double batch) {
  const double l = of.layers, h = of.hidden, s = of.sequence;
  return 96 * batch * s * l * h * h * (1 + s / (6 * h) + of.vocabulary / (16 * l * h));
}

double training_seconds(double tokens, double parameters, double devices, double flops) {
  return 8 * tokens * parameters / (devices * flops);
}

double mlp_training_flops(double layers, double size, double rows) {
  return 6 * rows * size * size * layers;
}

double flops_per_token(double parameters, double layers, double heads, double head_size,
                       double sequence) {
  return 6 * parameters + 12 * layers * heads * head_size * sequence;
}

double utilisation(double flops_per_token, double tokens_per_second, double devices,
                   double peak_flops) {
  return flops_per_token * tokens_per_second / (devices * peak_flops);
}

double bubble_overhead(int ranks, int micro_batches, int chunks) {
  return static_cast<double>(ranks - 1) / (static_cast<double>(chunks) * micro_batches);
}

double RankEstimate::total_bytes() const {
  double total = 0;
  for (const double each : bytes) total += each;
  return total;
}

Result<PlanEstimate> estimate(const ModelConfig& config, const Mesh& mesh,
                              const PlanOptions& options) {
  const Result<Recipe> recipe = find_recipe(options.recipe);
  if (!recipe.ok()) return recipe.status();
  Result<PipelineSchedule> schedule =
      options.own_schedule ? Result<PipelineSchedule>(*options.own_schedule)
                           : make_schedule(options.schedule, mesh.pp, options.micro_batches,
                                           options.chunks_per_rank);
  if (!schedule.ok()) return schedule.status();
  if (Status valid = check_options(config, mesh, options, *schedule); !valid.ok()) return valid;
  const Result<PipelineChart> chart = run_clock(*schedule, {});
  if (!chart.ok()) return chart.status();

  const Plan plan{config, mesh, options, *recipe, *std::move(schedule)};
  PlanEstimate made;
  made.mesh = mesh;
  made.parameters = count_parameters(config, {config.layers, true, true}).total();
  made.bubble_fraction = figures_of(*chart).bubble_fraction();
  add_operations(plan, made);
  for (int rank = 0; rank < mesh.pp; ++rank) {
    const std::vector<Chunk> chunks = chunks_of(plan, rank);
    RankEstimate& here = made.ranks.emplace_back();
    for (const Chunk& chunk : chunks) {
      here.layers += chunk.part.layers;
      here.parameters += chunk.count.total();
    }
    add_memory(plan, rank, chunks, here);
    TrafficList traffic(here.traffic);
    add_data_parallel(plan, chunks, traffic);
    add_tensor_parallel(plan, chunks, traffic);
    add_expert_parallel(plan, chunks, traffic);
    add_pipeline(plan, chunks, traffic);
  }
  return made;
}

std::string plan_table(const PlanEstimate& plan) {
  std::string text = fmt::format(
      "{} ranks: {}{}\n{} parameters, {} of them multiplied with a token\n"
      "{:.0f} tokens and {:.4g} FLOP a step, {:.4g} FLOP a token, bubble {:.1f} %\n\n",
      plan.mesh.world(), plan.mesh.to_string(),
      plan.mesh.ep > 1 ? fmt::format(", ep {}", plan.mesh.ep) : "", plan.parameters,
      plan.active_parameters, plan.tokens_per_step, plan.flops_per_step, plan.flops_per_token,
      100 * plan.bubble_fraction);
  text += memory_rows(plan.ranks);
  text += fmt::format("\n{:<14}{:<32}{:>10}{:>14}\n", "axis", "the busiest rank sends, in a step",
                      "calls", "bytes");
  for (const Traffic& each : busiest(plan.ranks)) {
    text += fmt::format("{:<14}{:<32}{:>10}{:>14}\n", to_string(each.axis), each.what, each.calls,
                        bytes_text(each.bytes));
  }
  return text;
}

}  // namespace tutti::training
