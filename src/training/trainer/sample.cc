// sample.cc: see sample.hpp.
#include "training/trainer/sample.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "training/model/weights.hpp"
#include "training/tensor/element.hpp"
#include "training/tensor/philox.hpp"
#include "training/trainer/checkpoint_tools.hpp"

namespace tutti::training {
namespace {

// The last row as doubles.
std::vector<double> last_row(const Tensor& logits) {
  std::vector<double> row(static_cast<std::size_t>(logits.columns()));
  visit(logits.type(), [&](auto zero) {
    const auto* values = logits.as<decltype(zero)>() + (logits.rows() - 1) * logits.columns();
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = load(values[i]);
  });
  return row;
}

// One of the tokens, by their logits; `uniform` in (0, 1) decides.
std::int32_t draw(const std::vector<double>& logits, const SampleOptions& options, double uniform) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (options.temperature <= 0) return order.front();
  if (options.top > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top)));
  const double largest = logits[static_cast<std::size_t>(order.front())];
  std::vector<double> weights;
  double sum = 0;
  for (const std::int32_t token : order) {
    const double apart = logits[static_cast<std::size_t>(token)] - largest;
    weights.push_back(std::exp(apart / options.temperature));
    sum += weights.back();
  }
  double left = uniform * sum;
  for (std::size_t i = 0; i < order.size(); ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order.back();
}

}  // namespace

SoloModel::SoloModel(const ModelConfig& config, DataType type, std::unique_ptr<Gemm> gemm)
    : config_(config), gemm_(std::move(gemm)), context_{arena_, *gemm_, alone_, alone_, type} {
  context_.hidden = config.hidden;
  const StageLayers all{0, config.layers, true, true};
  stage_ = std::make_unique<Stage>(config_, all, RecomputePolicy(), context_);
}

SoloModel::~SoloModel() = default;

Result<std::unique_ptr<SoloModel>> SoloModel::open(const std::string& folder, DataType type,
                                                   const std::string& gemm) {
  auto config = read_model_config(folder);
  if (!config.ok()) return config.status();
  auto weights = WeightFolder::open(folder);
  if (!weights.ok()) return weights.status();
  auto multiplier = make_gemm(gemm);
  if (!multiplier.ok()) return multiplier.status();
  std::unique_ptr<SoloModel> model(new SoloModel(*config, type, std::move(*multiplier)));
  Status status;
  model->stage_->visit([&](Parameter& parameter) {
    if (!status.ok() || parameter.tied_to) return;
    parameter.value = Tensor(model->arena_, MemoryKind::parameter, type, parameter.shape());
    status = load_whole(*weights, model->config_, parameter, parameter.value);
  });
  if (!status.ok()) return status;
  return model;
}

Tensor SoloModel::logits(std::span<const std::int32_t> tokens) {
  context_.batch = 1;
  context_.sequence = static_cast<std::int64_t>(tokens.size());
  return stage_->logits(tokens);
}

Status check_prompt(const SoloModel& model, std::span<const std::int32_t> prompt) {
  const std::int64_t vocabulary = model.config().vocabulary;
  if (prompt.empty())
    return Status(StatusCode::invalid_argument, "the prompt is empty: there is nothing to go on");
  for (const std::int32_t token : prompt)
    if (token < 0 || token >= vocabulary)
      return Status(
          StatusCode::invalid_argument,
          fmt::format("token {} of the prompt is outside the vocabulary of {}", token, vocabulary));
  return {};
}

Status sample(SoloModel& model, std::vector<std::int32_t> prompt, const SampleOptions& options,
              const std::function<void(std::int32_t)>& say) {
  if (const Status status = check_prompt(model, prompt); !status.ok()) return status;
  const Philox random(key_of(options.seed, "sample"));
  const auto window = static_cast<std::size_t>(model.config().positions);
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::size_t from = prompt.size() > window ? prompt.size() - window : 0;
    const Tensor logits = model.logits(std::span<const std::int32_t>(prompt).subspan(from));
    prompt.push_back(
        draw(last_row(logits), options, random.uniform(static_cast<std::uint64_t>(i))));
    say(prompt.back());
  }
  return {};
}

}  // namespace tutti::training
