// config.cc: see config.hpp. Sizes are bounded so that no product of a model's extents overflows.
#include "training/architecture/config.hpp"

#include <fmt/core.h>

#include <cmath>
#include <string>

#include "training/architecture/names.hpp"

namespace tutti::training {
namespace {

Status wrong(std::string text) {
  return {StatusCode::invalid_argument, "model: " + std::move(text)};
}

struct Extent {
  const char* name;
  std::int64_t value, most;
};

Status check_extents(const ModelConfig& c) {
  const Extent extents[] = {{"vocabulary", c.vocabulary, std::int64_t{1} << 31},
                            {"hidden", c.hidden, std::int64_t{1} << 24},
                            {"layers", c.layers, std::int64_t{1} << 16},
                            {"heads", c.heads, std::int64_t{1} << 16},
                            {"kv_heads", c.kv_heads, std::int64_t{1} << 16},
                            {"head_size", c.head_size, std::int64_t{1} << 16},
                            {"intermediate", c.intermediate, std::int64_t{1} << 24},
                            {"positions", c.positions, std::int64_t{1} << 31}};
  for (const Extent& extent : extents)
    if (extent.value < 1 || extent.value > extent.most)
      return wrong(
          fmt::format("{} is {}, must be in 1 .. {}", extent.name, extent.value, extent.most));
  return {};
}

Status check_numbers(const ModelConfig& c) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  const auto not_negative = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!positive(c.norm_epsilon))
    return wrong(fmt::format("norm_epsilon is {}, must be > 0", c.norm_epsilon));
  if (!positive(c.rope_theta))
    return wrong(fmt::format("rope_theta is {}, must be > 0", c.rope_theta));
  if (!not_negative(c.initial_deviation))
    return wrong(fmt::format("initial_deviation is {}, must be >= 0", c.initial_deviation));
  if (!not_negative(c.balance_coefficient))
    return wrong(fmt::format("balance_coefficient is {}, must be >= 0", c.balance_coefficient));
  if (!not_negative(c.capacity_factor))
    return wrong(fmt::format("capacity_factor is {}, must be >= 0", c.capacity_factor));
  return {};
}

Status check_heads(const ModelConfig& c) {
  if (c.heads % c.kv_heads != 0)
    return wrong(fmt::format("heads % kv_heads == 0 does not hold: {} % {} is {}", c.heads,
                             c.kv_heads, c.heads % c.kv_heads));
  if (c.architecture != Architecture::gpt2) {
    if (c.head_size % 2 == 0) return {};
    return wrong(fmt::format("head_size is {}; rotary positions need an even one", c.head_size));
  }
  if (c.kv_heads != c.heads)
    return wrong(fmt::format("gpt2 needs kv_heads == heads: {} is not {}", c.kv_heads, c.heads));
  if (c.heads * c.head_size != c.hidden)
    return wrong(fmt::format("gpt2 needs heads * head_size == hidden: {} * {} is not {}", c.heads,
                             c.head_size, c.hidden));
  return {};
}

Status check_experts(const ModelConfig& c) {
  constexpr std::int64_t kMost = std::int64_t{1} << 16;
  if (c.architecture != Architecture::mixtral) {
    if (c.experts == 0) return {};
    return wrong(fmt::format("experts is {}; only mixtral has any", c.experts));
  }
  if (c.experts < 1 || c.experts > kMost)
    return wrong(fmt::format("experts is {}, must be in 1 .. {}", c.experts, kMost));
  if (c.experts_per_token < 1 || c.experts_per_token > c.experts)
    return wrong(fmt::format("experts_per_token is {}, must be in 1 .. {} (experts)",
                             c.experts_per_token, c.experts));
  // Each has its own names and shapes, of which parameter_shapes() makes a list.
  constexpr std::int64_t kMostTogether = std::int64_t{1} << 20;
  if (c.layers * c.experts > kMostTogether)
    return wrong(fmt::format("layers * experts is {}, must be at most {}", c.layers * c.experts,
                             kMostTogether));
  return {};
}

// An upper bound in double, which does not overflow.
double at_most_parameters(const ModelConfig& c) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double widest = 3 * number(c.intermediate) + 4 * number(c.heads * c.head_size) + 16;
  const double copies = number(c.experts + 1) * number(c.layers);
  const double tables = 2 * number(c.vocabulary) + number(c.positions) + 2;
  return number(c.hidden + 1) * (copies * widest + tables);
}

}  // namespace

std::int64_t ModelConfig::parameter_count() const {
  std::int64_t count = 0;
  for (const NamedShape& weight : shapes_outside_layers(*this)) count += weight.shape.count();
  for (const NamedShape& weight : shapes_of_layer(*this, 0)) count += layers * weight.shape.count();
  return count;
}

Status check(const ModelConfig& config) {
  for (const auto rule : {check_extents, check_numbers, check_heads, check_experts})
    if (Status status = rule(config); !status.ok()) return status;
  if (at_most_parameters(config) > 0x1p60) return wrong("more than 2^60 parameters");
  return {};
}

}  // namespace tutti::training
