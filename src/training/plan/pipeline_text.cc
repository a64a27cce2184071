// pipeline_text.cc: cells to actions and back.
#include "training/plan/pipeline_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

namespace tutti::training {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostRanks = 16384;
constexpr int kLargestIndex = 999'999;                 // of a stage or micro-batch
constexpr std::int64_t kLatest = 999'999'999'999'999;  // of a time
constexpr std::size_t kMostShown = 40;                 // of a wrong cell

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// What is before the next `separator`; leaves what is after it.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// A number in decimal digits at the beginning of `text`, which it leaves.
template <typename Number>
std::optional<Number> take_number(std::string_view& text, Number largest) {
  Number value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > largest) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<Action::Kind> take_kind(std::string_view& text) {
  for (const Action::Kind kind :
       {Action::forward, Action::backward, Action::backward_input, Action::backward_weight})
    if (take(text, letter(kind))) return kind;
  return std::nullopt;
}

// A cell as it is written: what its stage means depends on the number of lines.
struct Cell {
  int stage = 0;
  TimedAction timed;
};

std::optional<Cell> parse_cell(std::string_view text, bool with_times) {
  const auto stage = take_number(text, kLargestIndex);
  const auto kind = take_kind(text);
  const auto micro_batch = take_number(text, kLargestIndex);
  if (!stage || !kind || !micro_batch) return std::nullopt;
  Cell cell{*stage, {{*kind, 0, *micro_batch}, 0, 0}};
  if (with_times) {
    if (!take(text, '@')) return std::nullopt;
    const auto start = take_number(text, kLatest);
    if (!start || !take(text, '-')) return std::nullopt;
    const auto end = take_number(text, kLatest);
    if (!end) return std::nullopt;
    cell.timed.start = *start;
    cell.timed.end = *end;
  }
  if (!text.empty()) return std::nullopt;
  return cell;
}

Status corrupt(std::string text) { return {StatusCode::corrupt_data, std::move(text)}; }

// Cuts a text into lines: all but the empty ones at its end.
Result<std::vector<std::string_view>> lines_of(std::string_view text) {
  if (text.size() > kMostBytes) {
    return corrupt(
        fmt::format("a schedule of {} bytes; {} are the limit", text.size(), kMostBytes));
  }
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    if (lines.size() > kMostRanks)
      return corrupt(fmt::format("a schedule of more than {} lines", kMostRanks));
    lines.push_back(trimmed(take_until(text, '\n')));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.empty()) return corrupt("a schedule without lines: there is one for each rank");
  return lines;
}

// One rank's line.
Result<std::vector<TimedAction>> parse_line(std::string_view line, int rank, int ranks,
                                            bool with_times) {
  std::vector<TimedAction> actions;
  for (int number = 1; !line.empty(); ++number) {
    const std::string_view text = trimmed(take_until(line, ','));
    if (text.empty()) continue;
    const auto where = [&] {
      return fmt::format("line {}, cell {}: '{}'", rank + 1, number, text.substr(0, kMostShown));
    };
    std::optional<Cell> cell = parse_cell(text, with_times);
    if (!cell) {
      return corrupt(fmt::format("{} is not like {}: stage, one of F B I W, micro-batch", where(),
                                 with_times ? "'2F3@10-12'" : "'2F3'"));
    }
    if (cell->stage % ranks != rank) {
      return corrupt(fmt::format("{} is on rank {}, but stage {} is on rank {} of {}", where(),
                                 rank, cell->stage, cell->stage % ranks, ranks));
    }
    cell->timed.action.chunk = cell->stage / ranks;
    actions.push_back(cell->timed);
  }
  return actions;
}

Result<PipelineChart> parse(std::string_view name, std::string_view text, bool with_times) {
  const Result<std::vector<std::string_view>> lines = lines_of(text);
  if (!lines.ok()) return lines.status();
  PipelineChart chart{std::string(name), 1, 1, {}};
  const int ranks = static_cast<int>(lines->size());
  for (int rank = 0; rank < ranks; ++rank) {
    Result<std::vector<TimedAction>> lane =
        parse_line((*lines)[static_cast<std::size_t>(rank)], rank, ranks, with_times);
    if (!lane.ok()) return lane.status();
    for (const TimedAction& each : *lane) {
      chart.chunks_per_rank = std::max(chart.chunks_per_rank, each.action.chunk + 1);
      chart.micro_batches = std::max(chart.micro_batches, each.action.micro_batch + 1);
    }
    chart.ranks.push_back(*std::move(lane));
  }
  return chart;
}

}  // namespace

std::string schedule_csv(const PipelineSchedule& schedule) {
  std::string text;
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    std::string_view separator;
    for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
      text.append(separator).append(to_string(schedule, rank, action));
      separator = ",";
    }
    text += '\n';
  }
  return text;
}

std::string chart_csv(const PipelineChart& chart) {
  const PipelineSchedule schedule = chart.schedule();
  std::string text;
  for (int rank = 0; rank < chart.rank_count(); ++rank) {
    std::string_view separator;
    for (const TimedAction& each : chart.ranks[static_cast<std::size_t>(rank)]) {
      fmt::format_to(std::back_inserter(text), "{}{}@{}-{}", separator,
                     to_string(schedule, rank, each.action), each.start, each.end);
      separator = ",";
    }
    text += '\n';
  }
  return text;
}

Result<PipelineSchedule> parse_schedule_csv(std::string_view name, std::string_view text) {
  const Result<PipelineChart> chart = parse(name, text, false);
  if (!chart.ok()) return chart.status();
  return chart->schedule();
}

Result<PipelineChart> parse_chart_csv(std::string_view name, std::string_view text) {
  return parse(name, text, true);
}

}  // namespace tutti::training
