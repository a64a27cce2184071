// Explanations as tables and sentences.
#include "collectives/explain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"

namespace tutti::collectives {
namespace {

bool counts_blocks(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::all_to_all || collective == Collective::gather ||
         collective == Collective::scatter;
}

std::size_t possible_count(const Explanation& explanation) {
  return static_cast<std::size_t>(
      std::count_if(explanation.candidates.begin(), explanation.candidates.end(),
                    [](const Candidate& candidate) { return candidate.not_possible.empty(); }));
}

std::string percent_of_bound(const Explanation& explanation, const Candidate& candidate) {
  if (candidate.predicted_us <= 0) return "-";
  return fmt::format("{:.1f}%", 100 * explanation.bound_us() / candidate.predicted_us);
}

std::string busbw(const Explanation& explanation, const Candidate& candidate) {
  if (candidate.predicted_us <= 0) return "-";
  const double bytes = static_cast<double>(size_bytes(explanation.query, explanation.ranks));
  const double factor = busbw_factor(explanation.query.collective, explanation.ranks);
  return fmt::format("{:.4g}", bytes * factor / candidate.predicted_us / 1000);
}

// "hierarchical 4x2" where there are groups within groups.
std::string full_name(const Candidate& c) {
  if (c.groups.sizes().size() < 2) return c.algorithm;
  return c.algorithm + " " + c.groups.text();
}

bool any_measured(const Explanation& explanation) {
  return std::any_of(explanation.candidates.begin(), explanation.candidates.end(),
                     [](const Candidate& candidate) { return candidate.measured.has_value(); });
}

// A column that is only there where something was measured.
std::string measured_column(const Explanation& explanation, std::string_view text) {
  return any_measured(explanation) ? fmt::format(" {:>12}", text) : "";
}

std::string candidate_line(const Explanation& explanation, const Candidate& c, bool chosen) {
  const std::string time = c.predicted_us > 0 ? format_time(c.predicted_us) : "-";
  return fmt::format("{} {:<17} {:<9} {:>8} {:>7} {:>10} {:>11}{} {:>9} {:>9}  {}\n",
                     chosen ? '*' : ' ', full_name(c), lowering_name(c.settings),
                     c.settings.channels, c.slices, base::format_bytes(c.settings.slice_bytes),
                     time, measured_column(explanation, measured_text(c)), busbw(explanation, c),
                     percent_of_bound(explanation, c), c.limited_by);
}

std::string comparison(const Candidate& best, const Candidate& next) {
  const std::string name = fmt::format("{}, {}", full_name(next), lowering_name(next.settings));
  const double ratio = next.predicted_us / best.predicted_us;
  if (!(ratio >= 1.005)) return fmt::format("about as quick as {}", name);
  return fmt::format("{:.3g} times as quick as {}", ratio, name);
}

std::string bound_line(std::string_view name, double us, const std::string& origin, bool decides) {
  return fmt::format("{} {:<9} {:>11}  {}\n", decides ? '*' : ' ', name, format_time(us), origin);
}

// What calls may find to be quicker than the model says.
std::string others_line(const std::vector<Candidate>& others) {
  if (others.empty()) return {};
  std::string names;
  for (const Candidate& other : others)
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", full_name(other),
                         lowering_name(other.settings));
  return fmt::format("  tried while calls are made, and kept if quicker: {}\n", names);
}

}  // namespace

double busbw_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return (n - 1) / n;
    default:
      return 1;
  }
}

std::size_t size_bytes(const PlanQuery& query, int ranks) {
  const std::size_t block = query.count * size_of(query.type);
  return counts_blocks(query.collective) ? block * static_cast<std::size_t>(ranks) : block;
}

PlanQuery query_of_size(Collective collective, DataType type, Rank root, int ranks,
                        std::size_t bytes) {
  const std::size_t blocks = counts_blocks(collective) ? static_cast<std::size_t>(ranks) : 1;
  return {collective, bytes / size_of(type) / blocks, type, root};
}

std::string_view lowering_name(const PlanSettings& settings) {
  return settings.direct ? "direct" : "staged";
}

std::string format_time(double us) {
  if (us >= 1e6) return fmt::format("{:.4g} s", us / 1e6);
  if (us >= 1e4) return fmt::format("{:.4g} ms", us / 1e3);
  return fmt::format("{:.4g} us", us);
}

std::string measured_text(const Candidate& candidate) {
  if (!candidate.measured) return "-";
  return fmt::format("{}{}", candidate.measured->exact ? "" : "~",
                     format_time(candidate.measured->us));
}

std::string_view chosen_by(const Explanation& explanation) {
  return explanation.by_measurement ? "measured" : "model";
}

std::string reason(const Explanation& explanation) {
  const std::size_t possible = possible_count(explanation);
  if (possible == 0) return "nothing can serve";
  const Candidate& best = explanation.candidates.front();
  std::string text = fmt::format("{}, {}: ", full_name(best), lowering_name(best.settings));
  if (explanation.by_measurement)
    text += best.measured ? fmt::format("measured, {} by the tuning table; predicted {}",
                                        measured_text(best), format_time(best.predicted_us))
                          : "by the tuning table";
  else
    text += possible == 1 ? "the only candidate" : comparison(best, explanation.candidates[1]);
  if (best.predicted_us > 0)
    text += fmt::format(", {} of the bound; limited by {}", percent_of_bound(explanation, best),
                        best.limited_by);
  if (!explanation.table_refused.empty())
    text += fmt::format(
        "; chosen by the model, because what the tuning table names cannot serve "
        "({})",
        explanation.table_refused);
  return text;
}

std::string to_text(const Explanation& explanation) {
  const PlanQuery& query = explanation.query;
  std::string text = fmt::format(
      "{} of {} ({} x {}), {} ranks{}\n\n", to_string(query.collective),
      base::format_bytes(size_bytes(query, explanation.ranks)), query.count, to_string(query.type),
      explanation.ranks, has_root(query.collective) ? fmt::format(", root {}", query.root) : "");
  text += fmt::format("  {:<17} {:<9} {:>8} {:>7} {:>10} {:>11}{} {:>9} {:>9}  {}\n", "algorithm",
                      "lowering", "channels", "slices", "slice", "predicted",
                      measured_column(explanation, "measured"), "busbw", "of bound", "limited by");
  const std::size_t possible = possible_count(explanation);
  for (std::size_t i = 0; i < possible; ++i)
    text += candidate_line(explanation, explanation.candidates[i], i == 0);
  std::string last;
  for (std::size_t i = possible; i < explanation.candidates.size(); ++i) {
    const Candidate& candidate = explanation.candidates[i];
    const std::string line =
        fmt::format("  {:<17} not possible: {}\n", full_name(candidate), candidate.not_possible);
    if (line != last) text += line;
    last = line;
  }
  if (is_reduction(query.collective) && query.form != ReductionForm::any)
    text += fmt::format("\nreduce_order=rank_tree leaves {} of {} candidates\n", possible,
                        explanation.candidates.size());
  text += fmt::format("\nchoice: {}\n", reason(explanation));
  text += others_line(explanation.others);
  if (const auto& plain = explanation.plain) {
    text += fmt::format("where peers cannot address the buffers: {}, {}, predicted {}\n",
                        full_name(*plain), lowering_name(plain->settings),
                        format_time(plain->predicted_us));
    text += others_line(explanation.plain_others);
  }
  const double bound = explanation.bound_us();
  text += "\nlower bounds\n";
  text += bound_line("latency", explanation.latency_bound_us, explanation.latency_origin,
                     explanation.latency_bound_us >= bound);
  text += bound_line("links", explanation.bandwidth_bound_us, explanation.bandwidth_origin,
                     explanation.bandwidth_bound_us >= bound);
  text += bound_line("memory", explanation.memory_bound_us, explanation.memory_origin,
                     explanation.memory_bound_us >= bound);
  return text;
}

}  // namespace tutti::collectives
