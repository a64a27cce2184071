// Winners, borders between them, and a search for the model's numbers.
#include "cli/tune_choose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cli/tune_world.hpp"
#include "collectives/explain.hpp"
#include "runtime/planning_topology.hpp"
#include "runtime/world.hpp"

namespace tutti::cli {
namespace {

using collectives::TransportFigures;
using collectives::TunedChoice;
using collectives::TunedTime;
using collectives::TunedUse;
using collectives::TuningKey;

constexpr std::size_t kReach = 4;        // times the largest size that was measured
constexpr double kClearlyBetter = 0.95;  // of the time of the model's choice

// Slowness against the best of both kinds of buffers.
double slowness(const TunedTime& time, double best_us, double best_plain_us) {
  const double shared = time.us / best_us;
  return time.plain_us ? std::sqrt(shared * (*time.plain_us / best_plain_us)) : shared;
}

TuneWinner winner_of(const TunedUse& model, const std::vector<TunedTime>& times) {
  double best_us = INFINITY;
  double best_plain_us = INFINITY;
  for (const TunedTime& time : times) {
    best_us = std::min(best_us, time.us);
    best_plain_us = std::min(best_plain_us, time.plain_us.value_or(INFINITY));
  }
  const auto slow = [&](const TunedTime& time) { return slowness(time, best_us, best_plain_us); };
  const TunedTime* best = &times.front();
  const TunedTime* usual = &times.front();
  for (const TunedTime& time : times) {
    if (slow(time) < slow(*best)) best = &time;
    if (time.choice == model.choice) usual = &time;
  }
  if (slow(*best) > kClearlyBetter * slow(*usual)) best = usual;
  return {model.collective, model.from_bytes, *best, *usual};
}

const TunedTime* time_of(const collectives::TuningPlace& place, Collective collective,
                         std::size_t bytes, const TunedChoice& choice) {
  for (const TunedTime& time : place.times)
    if (time.collective == collective && time.bytes == bytes && time.choice == choice) return &time;
  return nullptr;
}

// Where `after` becomes better than `before`, between the sizes at which they win.
std::size_t border(const TuneWinner& before, const TuneWinner& after,
                   const collectives::TuningPlace& place) {
  const double low = std::log(static_cast<double>(std::max<std::size_t>(1, before.bytes)));
  const double high = std::log(static_cast<double>(after.bytes));
  const TunedTime* late = time_of(place, before.collective, before.bytes, after.best.choice);
  const TunedTime* early = time_of(place, before.collective, after.bytes, before.best.choice);
  double share = 0.5;
  if (late != nullptr && early != nullptr) {
    const double behind = std::log(late->us / before.best.us);
    const double ahead = std::log(early->us / after.best.us);
    if (behind > 0 && ahead > 0) share = behind / (behind + ahead);
  }
  // In steps of a tenth: more would pretend to be exact.
  const double size = std::exp(low + share * (high - low));
  const double unit = std::pow(2, std::floor(std::log2(size)) - 3);
  const auto rounded = static_cast<std::size_t>(std::round(size / unit) * unit);
  return std::clamp(rounded, before.bytes + 1, after.bytes);
}

collectives::Planner planner_for(const TuningKey& key, const TransportFigures* figures) {
  // A host with as many cores as the ranks run on.
  runtime::HostCard card;
  card.host = "host";
  for (int core = 0; core < key.cores; ++core) card.cpus.push_back(core);
  const std::vector<runtime::HostCard> cards(static_cast<std::size_t>(key.ranks), card);
  auto seen = *runtime::planning_topology(cards, key.direct, figures);
  collectives::PlannerOptions options;
  options.cores = std::move(seen.cores);
  options.one_machine = seen.one_machine;
  const runtime::Queues queues =
      runtime::queues_of(key.transport, key.ranks, key.ranks > key.cores, {});
  options.channel_count = queues.channels;
  options.frame_bytes_max = queues.frame_bytes;
  options.slice_bytes_max = queues.slice_bytes;
  options.slice_bytes_min = queues.slice_bytes_min;
  options.direct_possible = key.direct;
  options.direct_bytes_min = key.transport == "memory" ? 0 : collectives::kDirectBytesMin;
  options.memory_shared = shares_memory(key.transport);
  if (figures != nullptr) options.constants = with_figures(options.constants, *figures);
  return {std::move(seen.topology), std::move(seen.placement), options};
}

// ---- The search ----

// How far predictions are from the times: the mean of |log| of their ratio, over all worlds.
class Misfit {
 public:
  explicit Misfit(const std::vector<TuneFindings>& worlds) : worlds_(worlds) {}

  std::vector<double> ratios(const TransportFigures* figures) const {
    std::vector<double> all;
    for (const TuneFindings& world : worlds_) {
      TunePredictor predictor(world.place.key, figures);
      for (const TunedTime& time : world.place.times) {
        const double predicted = predictor.us(time.collective, time.bytes, time.choice);
        if (predicted > 0) all.push_back(std::abs(std::log(predicted / time.us)));
      }
    }
    return all;
  }

  double operator()(const TransportFigures& figures) const {
    double sum = 0;
    for (const double ratio : ratios(&figures)) sum += ratio;
    return sum;
  }

  double median_factor(const TransportFigures* figures) const {
    std::vector<double> all = ratios(figures);
    if (all.empty()) return 1;
    std::sort(all.begin(), all.end());
    return std::exp(all[all.size() / 2]);
  }

 private:
  const std::vector<TuneFindings>& worlds_;
};

// What the search begins with: the messages that were measured, the model's defaults for the rest.
TransportFigures first_guess(const std::string& transport,
                             const std::vector<TuneFindings>& worlds) {
  const collectives::CostConstants usual;
  const auto& message = transport == "tcp" ? usual.sockets : usual.shared_memory;
  TransportFigures figures;
  figures.transport = transport;
  figures.send_ns = message.send_ns;
  figures.receive_ns = message.receive_ns;
  figures.signal_ns = message.signal_ns;
  figures.payload_ns = std::max(1.0, message.payload_ns);
  figures.step_ns = usual.step_ns;
  figures.switch_ns = usual.switch_ns;
  double message_us = 0;
  for (const TuneFindings& world : worlds) {
    if (message_us == 0 && world.message_us > 0) {
      message_us = world.message_us;
      figures.bandwidth = std::max(1e-3, world.bytes_per_ns);
    }
  }
  // A message crosses two links, after it was sent and before it is received.
  const double crossing = message_us * 1000 - *figures.send_ns - *figures.receive_ns;
  if (message_us > 0) figures.latency_ns = std::max(5.0, crossing / 2);
  return figures;
}

}  // namespace

double rounded(double value, int digits) {
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

TunePredictor::TunePredictor(const TuningKey& key, const TransportFigures* figures)
    : ranks_(key.ranks), planner_(planner_for(key, figures)) {}

double TunePredictor::us(Collective collective, std::size_t bytes, const TunedChoice& choice) {
  const auto query = collectives::query_of_size(collective, DataType::float32, 0, ranks_, bytes);
  const Result<double> predicted = planner_.predict(query, choice);
  return predicted.ok() ? *predicted : 0;
}

std::optional<TunedChoice> TunePredictor::choice(Collective collective, std::size_t bytes) {
  const auto query = collectives::query_of_size(collective, DataType::float32, 0, ranks_, bytes);
  const auto explanation = planner_.explain(query);
  if (!explanation.ok()) return std::nullopt;
  const collectives::Candidate& best = explanation->candidates.front();
  return TunedChoice{best.algorithm, best.settings};
}

std::vector<TuneWinner> tune_winners(const TuneFindings& findings) {
  std::vector<TuneWinner> winners;
  for (const TunedUse& model : findings.by_model) {
    std::vector<TunedTime> times;
    for (const TunedTime& time : findings.place.times)
      if (time.collective == model.collective && time.bytes == model.from_bytes)
        times.push_back(time);
    if (!times.empty()) winners.push_back(winner_of(model, times));
  }
  return winners;
}

namespace {

// Far above the last size nothing is known.
TunedUse back_to_model(const TuneWinner& last) {
  return {last.collective, kReach * last.bytes, TunedChoice()};
}

}  // namespace

std::vector<TunedUse> tune_uses(const std::vector<TuneWinner>& winners,
                                const collectives::TuningPlace& place) {
  std::vector<TunedUse> uses;
  const TuneWinner* before = nullptr;
  for (const TuneWinner& winner : winners) {
    const bool first = before == nullptr || before->collective != winner.collective;
    if (first && before != nullptr) uses.push_back(back_to_model(*before));
    if (first)
      uses.push_back({winner.collective, 0, winner.best.choice});
    else if (winner.best.choice != before->best.choice)
      uses.push_back({winner.collective, border(*before, winner, place), winner.best.choice});
    before = &winner;
  }
  if (before != nullptr) uses.push_back(back_to_model(*before));
  return uses;
}

// One number after the other is changed by a factor and keeps the change if that helps; the factors
// become smaller. The sum of such distances has many valleys, but each pass costs only seconds.
TuneFit fit_figures(const std::string& transport, const std::vector<TuneFindings>& worlds) {
  const Misfit misfit(worlds);
  TuneFit fit;
  fit.figures = first_guess(transport, worlds);
  fit.error_before = misfit.median_factor(nullptr);
  double best = misfit(fit.figures);
  for (const double factor : {2.0, 1.4, 1.15})
    for (const collectives::FigureField& field : collectives::figure_fields())
      for (const double change : {factor, 1 / factor}) {
        TransportFigures tried = fit.figures;
        std::optional<double>& value = tried.*field.value;
        if (!value) continue;
        value = std::clamp(*value * change, std::max(field.lowest, 1e-3), field.highest);
        const double error = misfit(tried);
        if (error >= best) continue;
        best = error;
        fit.figures = tried;
      }
  // Three digits are what such numbers are worth.
  for (const collectives::FigureField& field : collectives::figure_fields())
    if (std::optional<double>& value = fit.figures.*field.value) value = rounded(*value, 3);
  fit.error_after = misfit.median_factor(&fit.figures);
  if (fit.error_after <= fit.error_before) return fit;
  // A search that began at a message timed on a busy machine may end nowhere.
  TuneFit none;
  none.figures.transport = transport;
  none.error_before = none.error_after = fit.error_before;
  return none;
}

}  // namespace tutti::cli
