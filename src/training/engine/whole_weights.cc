// whole_weights.cc: see whole_weights.hpp.
#include "training/engine/whole_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "training/modules/part_runs.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training {

void add_weights(Engine& engine, WholeWeights& weights) {
  engine.visit_masters([&](const MasterPlace& place) {
    if (!place.answers) return;
    std::vector<double>& whole = weights[place.parameter->name];
    whole.resize(static_cast<std::size_t>(place.parameter->whole_shape.count()));
    visit(place.value.type(), [&](auto zero) {
      const auto* values = place.value.as<decltype(zero)>();
      for_each_run(*place.parameter, place.begin, place.begin + place.value.count(),
                   [&](const PartRun& run) {
                     for (std::int64_t i = 0; i < run.length; ++i)
                       whole[static_cast<std::size_t>(run.in_whole + i)] =
                           load(values[run.in_part - place.begin + i]);
                   });
    });
  });
}

double weight_difference(const WholeWeights& a, const WholeWeights& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double worst = a.size() == b.size() ? 0 : kInfinite;
  for (const auto& [name, values] : a) {
    if (name.ends_with("k_proj.bias")) continue;
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return kInfinite;
    double apart = 0, size = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      apart += (values[i] - other->second[i]) * (values[i] - other->second[i]);
      size += other->second[i] * other->second[i];
    }
    if (apart > 0) worst = std::max(worst, std::sqrt(apart / size));
    if (std::isnan(apart)) return kInfinite;
  }
  return worst;
}

}  // namespace tutti::training
