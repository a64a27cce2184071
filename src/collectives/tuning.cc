// The table's questions: what to use, how long it took, what it changes in the model.
#include "collectives/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.hpp"

namespace tutti::collectives {

const std::vector<FigureField>& figure_fields() {
  using F = TransportFigures;
  constexpr double kLongest = 1e9;  // a second
  static const std::vector<FigureField> fields = {
      {"latency_ns", &F::latency_ns, 0, kLongest}, {"bandwidth", &F::bandwidth, 1e-6, 1e6},
      {"send_ns", &F::send_ns, 0, kLongest},       {"receive_ns", &F::receive_ns, 0, kLongest},
      {"signal_ns", &F::signal_ns, 0, kLongest},   {"payload_ns", &F::payload_ns, 0, kLongest},
      {"step_ns", &F::step_ns, 0, kLongest},       {"switch_ns", &F::switch_ns, 0, kLongest}};
  return fields;
}

const TransportFigures* TuningTable::figures(std::string_view transport) const {
  const auto found = std::find_if(transports.begin(), transports.end(),
                                  [&](const auto& each) { return each.transport == transport; });
  return found == transports.end() ? nullptr : &*found;
}

const TuningPlace* TuningTable::place(const TuningKey& key) const {
  const auto found = std::find_if(places.begin(), places.end(),
                                  [&](const TuningPlace& each) { return each.key == key; });
  return found == places.end() ? nullptr : &*found;
}

const TunedUse* use_for(const TuningPlace& place, Collective collective, std::size_t bytes) {
  const TunedUse* found = nullptr;
  for (const TunedUse& use : place.uses)
    if (use.collective == collective && use.from_bytes <= bytes) found = &use;
  return found;
}

std::optional<MeasuredTime> measured_time(const TuningPlace& place, Collective collective,
                                          std::size_t bytes, std::string_view algorithm,
                                          bool direct) {
  std::map<std::size_t, double> best;  // by size
  for (const TunedTime& time : place.times) {
    if (time.collective != collective || time.choice.algorithm != algorithm ||
        time.choice.settings.direct != direct)
      continue;
    const auto [known, is_new] = best.try_emplace(time.bytes, time.us);
    if (!is_new) known->second = std::min(known->second, time.us);
  }
  const auto above = best.lower_bound(bytes);
  if (above == best.end()) return std::nullopt;
  if (above->first == bytes) return MeasuredTime{above->second, true};
  if (above == best.begin()) return std::nullopt;
  const auto below = std::prev(above);
  if (below->first == 0) return std::nullopt;
  const double share =
      std::log(static_cast<double>(bytes) / static_cast<double>(below->first)) /
      std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
  return MeasuredTime{below->second * std::pow(above->second / below->second, share), false};
}

CostConstants with_figures(CostConstants constants, const TransportFigures& figures) {
  MessageOverhead& message =
      figures.transport == "tcp" ? constants.sockets : constants.shared_memory;
  message.send_ns = figures.send_ns.value_or(message.send_ns);
  message.receive_ns = figures.receive_ns.value_or(message.receive_ns);
  message.signal_ns = figures.signal_ns.value_or(message.signal_ns);
  message.payload_ns = figures.payload_ns.value_or(message.payload_ns);
  constants.step_ns = figures.step_ns.value_or(constants.step_ns);
  constants.switch_ns = figures.switch_ns.value_or(constants.switch_ns);
  return constants;
}

std::uint64_t tuning_hash(const TuningTable& table) {
  const std::uint64_t hash = base::hash_of_text(to_text(table));  // the same for equal tables
  return hash == 0 ? 1 : hash;
}

}  // namespace tutti::collectives
