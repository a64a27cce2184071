// tuner_opinion.cc: see tuner_opinion.hpp.
#include "runtime/tuner_opinion.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::runtime {
namespace {

using collectives::Candidate;
using collectives::Explanation;
using collectives::TunedChoice;

bool possible(const Candidate& candidate) { return candidate.not_possible.empty(); }

// The cheapest way of this algorithm, on so many channels if that is not 0; null: there is none.
const Candidate* cheapest(const Explanation& explanation, std::string_view algorithm,
                          int channels) {
  const Candidate* best = nullptr;
  for (const Candidate& each : explanation.candidates)
    if (possible(each) && each.algorithm == algorithm &&
        (channels == 0 || each.settings.channels == channels) &&
        (best == nullptr || each.predicted_us < best->predicted_us))
      best = &each;
  return best;
}

// What the planner would take; null: nothing can serve.
const Candidate* usual(const Explanation& explanation) {
  const bool any = !explanation.candidates.empty() && possible(explanation.candidates.front());
  return any ? &explanation.candidates.front() : nullptr;
}

// Requires  a row of an algorithm that can be had.
float price(const CostTable& after, int row) {
  float lowest = INFINITY;
  for (std::size_t protocol = 0; protocol < tuner_abi::kProtocols; ++protocol) {
    const float cost = after[static_cast<std::size_t>(row)][protocol];
    if (cost >= 0) lowest = std::min(lowest, cost);  // never NaN
  }
  return lowest;
}

// The algorithm that is cheapest by the table, where it says something; of equals the first.
const Candidate* by_table(const Explanation& explanation, const CostTable& after) {
  const Candidate* best = nullptr;
  float best_price = INFINITY;
  for (const Candidate& each : explanation.candidates) {
    if (!possible(each)) continue;
    const auto row = tuner_row(explanation.query.collective, each.algorithm);
    const float cost = row ? price(after, *row) : static_cast<float>(each.predicted_us);
    if (cost >= best_price) continue;
    best = &each;
    best_price = cost;
  }
  return best;
}

// Whether anything that can be had costs something else now.
bool says_something(const CostTable& before, const CostTable& after) {
  for (std::size_t row = 0; row < before.size(); ++row)
    if (before[row][0] >= 0 && after[row] != before[row]) return true;
  return false;
}

}  // namespace

std::optional<tuner_abi::Function> tuner_function(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return tuner_abi::all_reduce;
    case Collective::all_gather:
      return tuner_abi::all_gather;
    case Collective::reduce_scatter:
      return tuner_abi::reduce_scatter;
    case Collective::broadcast:
      return tuner_abi::broadcast;
    case Collective::reduce:
      return tuner_abi::reduce;
    default:
      return std::nullopt;
  }
}

std::optional<int> tuner_row(Collective collective, std::string_view algorithm) {
  if (algorithm == "tree") return tuner_abi::kTree;
  if (algorithm == "ring") return tuner_abi::kRing;
  const bool pat = (collective == Collective::all_gather && algorithm == "bruck") ||
                   (collective == Collective::reduce_scatter && algorithm == "halving");
  if (pat) return tuner_abi::kPat;
  return std::nullopt;
}

CostTable cost_table(const Explanation& explanation) {
  CostTable costs;
  for (auto& row : costs) row.fill(tuner_abi::kNotAvailable);
  for (const Candidate& each : explanation.candidates) {
    const auto row = tuner_row(explanation.query.collective, each.algorithm);
    if (!row || !possible(each)) continue;
    auto& entries = costs[static_cast<std::size_t>(*row)];
    const auto cost = static_cast<float>(each.predicted_us);
    if (entries[0] < 0 || cost < entries[0]) entries.fill(cost);
  }
  return costs;
}

TunerAnswer named_answer(const CostTable& costs, int algorithm, int protocol, int channels) {
  TunerAnswer answer{costs, channels};
  if (algorithm < 0 || algorithm >= tuner_abi::kAlgorithms) return answer;
  if (protocol < 0 || protocol >= tuner_abi::kProtocols) return answer;
  answer.costs[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(protocol)] = 0;
  return answer;
}

std::optional<TunedChoice> opinion(const Explanation& explanation, const TunerAnswer& answer,
                                   int channels_max) {
  const bool silent = !says_something(cost_table(explanation), answer.costs);
  const Candidate* chosen = silent ? usual(explanation) : by_table(explanation, answer.costs);
  const int channels = std::clamp(answer.channels, 0, channels_max);
  if (chosen == nullptr || (silent && channels == 0)) return std::nullopt;
  const Candidate* exact = silent ? chosen : cheapest(explanation, chosen->algorithm, channels);
  if (exact == nullptr) exact = cheapest(explanation, chosen->algorithm, 0);
  TunedChoice choice{chosen->algorithm, exact->settings};
  if (channels > 0) choice.settings.channels = channels;
  return choice;
}

}  // namespace tutti::runtime
