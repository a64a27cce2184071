// run_config_keys.cc: see run_config_keys.hpp. The table comes first; what is made of it follows.
#include "training/trainer/run_config_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "training/trainer/toml_text.hpp"

namespace tutti::training {
namespace {

using Ends = RealValue::Ends;

constexpr std::int64_t kStepsMax = std::int64_t{1} << 40;
constexpr std::int64_t kRowsMax = std::int64_t{1} << 30;
constexpr std::int64_t kRanksMax = std::int64_t{1} << 20;

IntegerValue integer(std::int64_t& member, std::int64_t low, std::int64_t high) {
  return {&member, low, high};
}

// Closed at both ends, unless said otherwise.
RealValue real(double& member, double low, double high, Ends ends = Ends::closed) {
  return {&member, low, high, ends};
}

// A word's value and how it is written.
template <typename E>
struct Named {
  std::string_view name;
  E value;
};

std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}`{}`", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

// `names`: the first `offered` are printed and told; the others are only understood.
template <typename E>
WordValue word(E& member, std::vector<Named<E>> names, std::size_t offered) {
  std::vector<std::string_view> told;
  for (std::size_t i = 0; i < offered; ++i) told.push_back(names[i].name);
  E* const target = &member;
  return {listed(told),
          [target, names] {
            for (const Named<E>& named : names)
              if (named.value == *target) return std::string(named.name);
            return std::string("?");
          },
          [target, names](std::string_view text) {
            for (const Named<E>& named : names)
              if (named.name == text) return *target = named.value, true;
            return false;
          }};
}

template <typename E>
WordValue word(E& member, std::vector<Named<E>> names) {
  const std::size_t all = names.size();
  return word(member, std::move(names), all);
}

// One of some texts, kept as text.
WordValue word(std::string& member, const std::vector<std::string_view>& names) {
  std::string* const target = &member;
  return {listed(names), [target] { return *target; },
          [target, names](std::string_view text) {
            if (std::find(names.begin(), names.end(), text) == names.end()) return false;
            *target = std::string(text);
            return true;
          }};
}

WordValue schedule_word(std::string& member) {
  std::string* const target = &member;
  WordValue made = word(member, {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"});
  made.accepted = "`naive`, `gpipe`, `1f1b`, `interleaved`, `zb-h1` or `file:PATH.csv`";
  made.set = [target, set_name = made.set](std::string_view text) {
    const bool file = text.starts_with("file:") && text.size() > 5;
    if (file) *target = std::string(text);
    return file || set_name(text);
  };
  return made;
}

constexpr std::string_view kEvery = "every:";
constexpr std::int64_t kBlocksMax = 1 << 20;

std::optional<RecomputeConfig> recompute_every(std::string_view text) {
  if (!text.starts_with(kEvery)) return std::nullopt;
  text.remove_prefix(kEvery.size());
  RecomputeConfig made{.kind = RecomputeConfig::Kind::every};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), made.blocks);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || made.blocks < 1 || made.blocks > kBlocksMax) return std::nullopt;
  return made;
}

WordValue recompute_word(RecomputeConfig& member) {
  using Kind = RecomputeConfig::Kind;
  const std::vector<Named<RecomputeConfig>> fixed = {{"none", {.kind = Kind::none}},
                                                     {"selective", {.kind = Kind::selective}},
                                                     {"full", {.kind = Kind::full}}};
  RecomputeConfig* const target = &member;
  WordValue made = word(member, fixed);
  made.accepted = "`none`, `selective`, `full` or `every:K`, K a number of blocks";
  const auto get_fixed = made.get;
  const auto set_fixed = made.set;
  made.get = [target, get_fixed] {
    return target->kind == Kind::every ? fmt::format("{}{}", kEvery, target->blocks) : get_fixed();
  };
  made.set = [target, set_fixed](std::string_view text) {
    const auto every = recompute_every(text);
    if (every) *target = *every;
    return every.has_value() || set_fixed(text);
  };
  return made;
}

WordValue dtype_word(DataType& member) {
  return word<DataType>(member,
                        {{"f32", DataType::float32},
                         {"f64", DataType::float64},
                         {"bf16", DataType::bfloat16},
                         {"f16", DataType::float16},
                         {"float32", DataType::float32},
                         {"float64", DataType::float64},
                         {"bfloat16", DataType::bfloat16},
                         {"float16", DataType::float16}},
                        4);
}

}  // namespace

Result<DataType> parse_run_type(std::string_view name) {
  DataType type = DataType::float32;
  const WordValue word = dtype_word(type);
  if (word.set(name)) return type;
  return Status(StatusCode::invalid_argument,
                fmt::format("{} is no type; there are {}", clipped_quote(name), word.accepted));
}

namespace {

// ---- The table ----

ConfigSection model_section(ModelSource& c) {
  return {"model",
          "Which model is trained. Exactly one of `hf` and `preset` is given.",
          {{"hf", TextValue{&c.hf},
            "A folder as Hugging Face has them: config.json, and weights in safetensors files "
            "where there are any."},
           {"preset", TextValue{&c.preset},
            "A built-in model instead. Giving `hf` unsets the default."},
           {"load_weights", FlagValue{&c.load_weights},
            "Whether to begin with the weights in `hf`, where there are any, or with random "
            "ones."},
           {"capacity_factor", real(c.capacity_factor, 0, 1e6),
            "Of a mixture of experts: how many tokens an expert takes from a micro-batch, as a "
            "multiple of its fair share; later ones are dropped. 0: all."}}};
}

ConfigSection data_section(DataConfig& c) {
  return {"data",
          "The text to learn.",
          {{"train", TextsValue{&c.train},
            "Files, or patterns such as `data/*.bin`; one text stands for a list of one. Empty: "
            "the default corpus."},
           {"seq_len", integer(c.seq_len, 1, 1 << 24), "Tokens in a row of a batch."},
           {"held_out", real(c.held_out, 0, 1, Ends::low_closed),
            "The part at the end of the data that is only evaluated on."}}};
}

ConfigSection train_section(TrainConfig& c) {
  return {
      "train",
      "How long, how much at once, and in which numbers.",
      {{"steps", integer(c.steps, 0, kStepsMax), "Optimizer steps of the whole run."},
       {"global_batch", integer(c.global_batch, 1, kRowsMax),
        "Rows of one optimizer step, of all ranks: `micro_batch` times data-parallel ranks times "
        "micro-batches that each of them accumulates, which follows."},
       {"micro_batch", integer(c.micro_batch, 1, kRowsMax), "Rows that a rank computes at once."},
       {"seed", integer(c.seed, 0, std::int64_t{1} << 62),
        "Of the initial weights and of the order of the data."},
       {"dtype", dtype_word(c.dtype),
        "What the model computes in. Of `bf16` and `f16` there are master copies and sums in f32; "
        "`f16` scales its loss. `float32`, `float64`, `bfloat16` and `float16` mean the same."},
       {"gemm", word(c.gemm, {"auto", "builtin", "openblas", "onednn"}),
        "What multiplies matrices. With `builtin` the bits do not depend on the layout of ranks."},
       {"deterministic", FlagValue{&c.deterministic},
        "Whether sums over ranks are made in one fixed order, so that runs and data-parallel "
        "layouts have the same bits."},
       {"eval_every", integer(c.eval_every, 0, kStepsMax),
        "Steps between evaluations on the held-out data; 0: never."},
       {"eval_batches", integer(c.eval_batches, 1, kRowsMax), "Global batches of an evaluation."}}};
}

ConfigSection optim_section(OptimConfig& c) {
  return {"optim",
          "The optimizer, and how its learning rate goes.",
          {{"name",
            word<OptimizerKind>(c.optimizer.kind,
                                {{"adamw", OptimizerKind::adamw}, {"sgd", OptimizerKind::sgd}}),
            "AdamW with decoupled weight decay, or stochastic gradient descent with momentum."},
           {"lr", real(c.rate.peak, 0, 1e6), "The highest learning rate."},
           {"beta1", real(c.optimizer.beta1, 0, 1, Ends::low_closed),
            "Of adamw: how much of the mean gradient stays with each step."},
           {"beta2", real(c.optimizer.beta2, 0, 1, Ends::low_closed),
            "Of adamw: how much of the mean squared gradient stays."},
           {"epsilon", real(c.optimizer.epsilon, 0, 1), "Of adamw: added to the divisor."},
           {"weight_decay", real(c.optimizer.weight_decay, 0, 1e6),
            "How much matrices shrink; norms and biases do not."},
           {"momentum", real(c.optimizer.momentum, 0, 1, Ends::low_closed),
            "Of sgd: how much of the velocity stays; 0: none is kept."},
           {"warmup", integer(c.rate.warmup_steps, 0, kStepsMax),
            "Steps in which the learning rate rises from 0 to `lr`."},
           {"decay",
            word<Decay>(c.rate.decay, {{"cosine", Decay::cosine},
                                       {"linear", Decay::linear},
                                       {"constant", Decay::constant}}),
            "How it falls from there to `lr` times `final_fraction` at the end of the run."},
           {"final_fraction", real(c.rate.final_fraction, 0, 1), "See `decay`."},
           {"clip", real(c.clip, 0, 1e6),
            "Gradients whose norm, over all ranks, is larger are scaled to it; 0: none are."}}};
}

std::vector<ConfigKey> degree_keys(ParallelConfig& c) {
  return {{"pp", integer(c.pp, 1, kRanksMax), "Pipeline stages."},
          {"dp_replicate", integer(c.dp_replicate, -1, kRanksMax),
           "Data-parallel groups that each have the whole state; -1: what the other degrees leave "
           "of the world. One of `dp_replicate` and `dp_shard` may be -1, none 0."},
          {"dp_shard", integer(c.dp_shard, -1, kRanksMax),
           "Data-parallel ranks that share one state as `zero` says; or -1."},
          {"tp", integer(c.tp, 1, kRanksMax), "Tensor-parallel ranks, which share every layer."},
          {"ep", integer(c.ep, 1, kRanksMax), "Expert-parallel ranks, which share the experts."},
          {"cp", integer(c.cp, 1, 1), "Reserved for context parallelism."},
          {"zero", integer(c.zero, 0, 3),
           "What `dp_shard` ranks share: 0 nothing (each has all), 1 the optimizer's state, 2 "
           "gradients too, 3 weights too."}};
}

std::vector<ConfigKey> pipeline_and_traffic_keys(ParallelConfig& c) {
  return {
      {"sequence_parallel", FlagValue{&c.sequence_parallel},
       "Whether tensor-parallel ranks share the rows between their layers, too."},
      {"schedule", schedule_word(c.schedule),
       "In which order pipeline stages compute micro-batches."},
      {"virtual", integer(c.virtual_stages, 1, 1024),
       "Stages that each pipeline rank has; more than 1 for `interleaved` and files."},
      {"reshard_after_forward",
       word<Reshard>(
           c.reshard_after_forward,
           {{"auto", Reshard::automatic}, {"always", Reshard::always}, {"never", Reshard::never}}),
       "Of zero = 3: whether a block's weights are let go between forward and backward; `auto`: "
       "unless a pipeline would gather them for each micro-batch."},
      {"keep_last_block", FlagValue{&c.keep_last_block},
       "Of zero = 3: the last block stays, because backward begins with it."},
      {"prefetch", integer(c.prefetch, 0, 1024),
       "Of zero = 3: blocks whose weights are gathered ahead of the one that computes."},
      {"bucket_mb", real(c.bucket_mb, 0, 65536, Ends::open),
       "Gradients are sent when so many MiB (2^20 bytes) of them are ready."},
      {"overlap", FlagValue{&c.overlap}, "Whether ranks send gradients while they compute others."},
      {"algorithm", TextValue{&c.algorithm},
       "Forces a collective algorithm by name; empty: the planner chooses."},
      {"transport", word(c.transport, {"auto", "memory", "shm", "tcp"}),
       "How bytes travel between ranks."}};
}

ConfigSection parallel_section(ParallelConfig& c) {
  ConfigSection section = {
      "parallel",
      "How ranks share the work. The world has pp * dp_replicate * dp_shard * tp ranks.",
      degree_keys(c)};
  for (ConfigKey& key : pipeline_and_traffic_keys(c)) section.keys.push_back(std::move(key));
  return section;
}

ConfigSection memory_section(MemoryConfig& c) {
  return {"memory",
          "What is computed again instead of kept.",
          {{"recompute", recompute_word(c.recompute),
            "What backward computes a second time: nothing, what is cheap within blocks, each "
            "block, or K blocks at a time."}}};
}

ConfigSection comm_section(CommConfig& c) {
  return {"comm",
          "Communication.",
          {{"timeout_s", real(c.timeout_s, 0, 2e6, Ends::open),
            "Seconds after which a collective fails and names the rank that is missing."},
           {"checksums", FlagValue{&c.checksums}, "Whether every message carries a checksum."}}};
}

ConfigSection checkpoint_section(CheckpointConfig& c) {
  return {"checkpoint",
          "Saving the state of the run, and going on from it.",
          {{"dir", TextValue{&c.dir}, "The folder; empty: none are written."},
           {"every", integer(c.every, 0, kStepsMax),
            "Steps between checkpoints; 0: one at the end only."},
           {"keep", integer(c.keep, 0, 1 << 20), "The last so many are kept; 0: all."},
           {"async", FlagValue{&c.async}, "Whether files are written while training goes on."},
           {"resume", TextValue{&c.resume},
            "`auto`: from the last checkpoint in `dir`, where there is one; `never`; or a "
            "checkpoint's path."}}};
}

ConfigSection log_section(LogConfig& c) {
  return {"log",
          "What is told of each step.",
          {{"dir", TextValue{&c.dir}, "The folder of log files; empty: none are written."},
           {"every", integer(c.every, 1, kStepsMax), "Steps between lines."},
           {"jsonl", FlagValue{&c.jsonl}, "Whether to write steps as lines of JSON."},
           {"tensorboard", FlagValue{&c.tensorboard}, "Whether to write TensorBoard's files."},
           {"trace", TextValue{&c.trace}, "A file for the timeline of all ranks; empty: none."}}};
}

// ---- Names ----

// Letters that must be inserted, deleted, replaced, or swapped with their neighbour.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

constexpr std::size_t kNameBytesMax = 64;  // longer ones are no misspelt names

// How far `name` is from `known`; none when too far to have been meant. Its begin is near.
std::optional<std::size_t> distance(std::string_view name, std::string_view known) {
  if (name.size() > kNameBytesMax) return std::nullopt;
  if (name.size() > 1 && known.starts_with(name)) return 0;
  const std::size_t distance = edits(name, known);
  if (distance > std::max<std::size_t>(1, known.size() / 3)) return std::nullopt;
  return distance;
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

// Large limits are powers of two.
std::string printed_limit(std::int64_t limit) {
  const auto bits = static_cast<std::uint64_t>(limit);
  if (limit >= kRanksMax && std::has_single_bit(bits))
    return fmt::format("2^{}", std::countr_zero(bits));
  return std::to_string(limit);
}

std::string printed_real(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::vector<ConfigSection> config_sections(RunConfig& config) {
  std::vector<ConfigSection> sections;
  sections.push_back(model_section(config.model));
  sections.push_back(data_section(config.data));
  sections.push_back(train_section(config.train));
  sections.push_back(optim_section(config.optim));
  sections.push_back(parallel_section(config.parallel));
  sections.push_back(memory_section(config.memory));
  sections.push_back(comm_section(config.comm));
  sections.push_back(checkpoint_section(config.checkpoint));
  sections.push_back(log_section(config.log));
  return sections;
}

std::string description(const ConfigValue& value) {
  return std::visit(
      Overloaded{[](const FlagValue&) { return std::string("true or false"); },
                 [](const IntegerValue& v) {
                   return v.low == v.high ? fmt::format("the integer {}", v.low)
                                          : fmt::format("an integer from {} to {}", v.low,
                                                        printed_limit(v.high));
                 },
                 [](const RealValue& v) {
                   return fmt::format("a number {} {} and {} {}",
                                      v.ends == Ends::open ? "above" : "from", v.low,
                                      v.ends == Ends::closed ? "up to" : "below", v.high);
                 },
                 [](const TextValue&) { return std::string("a text"); },
                 [](const TextsValue&) { return std::string("a text or a list of texts"); },
                 [](const WordValue& v) { return v.accepted; }},
      value);
}

std::string printed(const ConfigValue& value) {
  return std::visit(
      Overloaded{[](const FlagValue& v) { return std::string(*v.member ? "true" : "false"); },
                 [](const IntegerValue& v) { return std::to_string(*v.member); },
                 [](const RealValue& v) { return printed_real(*v.member); },
                 [](const TextValue& v) { return quoted(*v.member); },
                 [](const TextsValue& v) {
                   std::string list;
                   for (const std::string& text : *v.member)
                     list += (list.empty() ? "" : ", ") + quoted(text);
                   return "[" + list + "]";
                 },
                 [](const WordValue& v) { return quoted(v.get()); }},
      value);
}

bool in_range(const ConfigValue& value) {
  if (const auto* integer = std::get_if<IntegerValue>(&value))
    return *integer->member >= integer->low && *integer->member <= integer->high;
  if (const auto* real = std::get_if<RealValue>(&value)) {
    const double x = *real->member;
    const bool above = real->ends == Ends::open ? x > real->low : x >= real->low;
    return above && (real->ends == Ends::closed ? x <= real->high : x < real->high);
  }
  const auto* word = std::get_if<WordValue>(&value);
  return word == nullptr || word->set(word->get());
}

std::optional<std::string> nearest_section(std::string_view name) {
  RunConfig config;
  std::optional<std::string> best;
  std::size_t best_distance = kNameBytesMax;
  for (const ConfigSection& section : config_sections(config)) {
    const auto here = distance(name, section.name);
    if (!here || *here >= best_distance) continue;
    best_distance = *here;
    best = section.name;
  }
  return best;
}

std::optional<std::string> nearest_key(std::string_view section, std::string_view name) {
  RunConfig config;
  std::optional<std::string> best;
  std::size_t best_distance = kNameBytesMax;
  for (const ConfigSection& known : config_sections(config))
    for (const ConfigKey& key : known.keys) {
      // A key of another section is only meant where it is spelt right.
      if (known.name != section && key.name != name) continue;
      const auto here = distance(name, key.name);
      if (!here || *here >= best_distance) continue;
      best_distance = *here;
      best = fmt::format("{}.{}", known.name, key.name);
    }
  return best;
}

}  // namespace tutti::training
