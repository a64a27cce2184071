// pipeline_drawing.cc: a chart's times, scaled to pixels or to cells of characters.
#include "training/plan/pipeline_drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "training/plan/pipeline_clock.hpp"

namespace tutti::training {
namespace {

constexpr const char* kFont = "Helvetica, Arial, sans-serif";

constexpr int kLaneHeight = 26;
constexpr int kBoxHeight = 22;
constexpr int kLeft = 76;    // room for the ranks' names
constexpr int kTop = 64;     // room for title and legend
constexpr int kBottom = 40;  // room for the time axis
constexpr int kRight = 24;
constexpr double kNarrowest = 18;    // pixels of the shortest action, so that its number fits
constexpr double kLeastWidth = 560;  // pixels of all lanes, at least and at most
constexpr double kMostWidth = 16000;
constexpr double kWidthOfDigit = 6.5;

// The most cells of all lanes in characters; beyond it the picture says nothing anyway.
constexpr std::int64_t kMostCells = std::int64_t{1} << 20;

struct Style {
  Action::Kind kind;
  const char* fill;
  const char* meaning;
};

constexpr Style kStyles[] = {
    {Action::forward, "#8fb8e8", "F forward"},
    {Action::backward, "#9fd3a8", "B backward"},
    {Action::backward_input, "#7ecdc4", "I backward of input"},
    {Action::backward_weight, "#f3c677", "W backward of weights"},
};

const Style& style_of(Action::Kind kind) { return kStyles[static_cast<std::size_t>(kind)]; }

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return safe;
}

bool uses(const PipelineChart& chart, Action::Kind kind) {
  for (const std::vector<TimedAction>& lane : chart.ranks)
    for (const TimedAction& each : lane)
      if (each.action.kind == kind) return true;
  return false;
}

std::string title_of(const PipelineChart& chart) {
  const PipelineFigures figures = figures_of(chart);
  std::string text = fmt::format("{}: {} ranks, {} micro-batches", chart.name, chart.rank_count(),
                                 chart.micro_batches);
  if (chart.chunks_per_rank > 1) text += fmt::format(", {} chunks each", chart.chunks_per_rank);
  return text + fmt::format("; time {}, bubble {:.1f} %", figures.makespan,
                            100 * figures.bubble_fraction());
}

// Pixels of one unit of time.
double pixels_per_unit(const PipelineChart& chart) {
  std::int64_t shortest = 0;
  for (const std::vector<TimedAction>& lane : chart.ranks)
    for (const TimedAction& each : lane)
      if (each.end > each.start && (shortest == 0 || each.end - each.start < shortest))
        shortest = each.end - each.start;
  const double makespan = static_cast<double>(std::max<std::int64_t>(chart.makespan(), 1));
  const double readable = kNarrowest / static_cast<double>(std::max<std::int64_t>(shortest, 1));
  return std::clamp(readable, kLeastWidth / makespan, kMostWidth / makespan);
}

// 1, 2 or 5 times a power of ten: about ten ticks on the axis.
std::int64_t tick_distance(std::int64_t makespan) {
  std::int64_t distance = 1;
  while (true) {
    for (const std::int64_t step : {1, 2, 5})
      if (makespan / (distance * step) <= 12) return distance * step;
    distance *= 10;
  }
}

// Builds the document piece by piece.
class Svg {
 public:
  explicit Svg(const PipelineChart& chart) : chart_(chart), scale_(pixels_per_unit(chart)) {}

  std::string draw() {
    open();
    legend();
    lanes();
    for (std::size_t rank = 0; rank < chart_.ranks.size(); ++rank)
      for (const TimedAction& each : chart_.ranks[rank]) box(static_cast<int>(rank), each);
    axis();
    text_ += "</svg>\n";
    return std::move(text_);
  }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  double lane_width() const { return static_cast<double>(chart_.makespan()) * scale_; }
  double x_of(std::int64_t time) const { return kLeft + static_cast<double>(time) * scale_; }
  int lane_top(int rank) const { return kTop + rank * kLaneHeight; }

  void open() {
    const double width = kLeft + std::max(lane_width(), kLeastWidth) + kRight;
    const int height = lane_top(chart_.rank_count()) + kBottom;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1}\" "
        "viewBox=\"0 0 {0:.0f} {1}\" font-family=\"{2}\" font-size=\"11\" fill=\"#1f2933\">\n",
        width, height, kFont);
    add("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    add("<text x=\"12\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(title_of(chart_)));
  }

  void legend() {
    int x = kLeft;
    for (const Style& style : kStyles) {
      if (!uses(chart_, style.kind)) continue;
      swatch(x, style.fill, style.meaning);
      x += 170;
    }
    swatch(x, "#eef1f4", "idle");
  }

  void swatch(int x, const char* fill, const char* meaning) {
    add("<rect x=\"{}\" y=\"38\" width=\"14\" height=\"14\" rx=\"2\" fill=\"{}\" "
        "stroke=\"#52606d\" stroke-width=\"0.6\"/><text x=\"{}\" y=\"49\">{}</text>\n",
        x, fill, x + 20, meaning);
  }

  void lanes() {
    for (int rank = 0; rank < chart_.rank_count(); ++rank) {
      const int top = lane_top(rank);
      add("<rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"#eef1f4\"/>"
          "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">rank {}</text>\n",
          kLeft, top, lane_width(), kBoxHeight, kLeft - 8, top + 15, rank);
    }
  }

  void box(int rank, const TimedAction& each) {
    const double width = static_cast<double>(each.end - each.start) * scale_;
    const int chunks = chart_.chunks_per_rank;
    // The first chunk has the full colour, the last not quite half of it.
    const double strength = chunks > 1 ? 1 - 0.55 * each.action.chunk / (chunks - 1) : 1;
    add("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" rx=\"2\" fill=\"{}\" "
        "fill-opacity=\"{:.2f}\" stroke=\"#52606d\" stroke-width=\"0.6\"/>",
        x_of(each.start), lane_top(rank), width, kBoxHeight, style_of(each.action.kind).fill,
        strength);
    const std::string number = fmt::to_string(each.action.micro_batch);
    if (static_cast<double>(number.size()) * kWidthOfDigit < width) {
      add("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
          x_of(each.start) + width / 2, lane_top(rank) + 15, number);
    }
    text_ += '\n';
  }

  void axis() {
    const int y = lane_top(chart_.rank_count()) + 4;
    const std::int64_t makespan = chart_.makespan();
    const std::int64_t distance = tick_distance(makespan);
    add("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2:.2f}\" y2=\"{1}\" stroke=\"#52606d\"/>\n", kLeft, y,
        x_of(makespan));
    for (std::int64_t time = 0; time <= makespan; time += distance) {
      add("<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"#52606d\"/>"
          "<text x=\"{0:.2f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
          x_of(time), y, y + 5, y + 18, time);
    }
  }

  const PipelineChart& chart_;
  double scale_;
  std::string text_;
};

// The largest unit that all times are multiples of.
std::int64_t common_unit(const PipelineChart& chart) {
  std::int64_t unit = 0;
  for (const std::vector<TimedAction>& lane : chart.ranks)
    for (const TimedAction& each : lane) unit = std::gcd(std::gcd(unit, each.start), each.end);
  return std::max<std::int64_t>(unit, 1);
}

// A lane as cells: the action's name where it starts, "=" while it goes on, "." when idle.
std::vector<std::string> cells_of(const PipelineChart& chart, std::size_t rank, std::int64_t unit) {
  const PipelineSchedule names{{},
                               chart.chunks_per_rank,
                               chart.micro_batches,
                               std::vector<std::vector<Action>>(chart.ranks.size())};
  std::vector<std::string> cells(static_cast<std::size_t>(chart.makespan() / unit), ".");
  for (const TimedAction& each : chart.ranks[rank]) {
    std::string name = to_string(names, static_cast<int>(rank), each.action);
    // With one chunk the stage is the rank, which the lane has as its name.
    if (chart.chunks_per_rank == 1) name.erase(0, name.find(letter(each.action.kind)));
    const auto begin = static_cast<std::size_t>(each.start / unit);
    const auto end = static_cast<std::size_t>(each.end / unit);
    for (std::size_t cell = begin; cell < end; ++cell) cells[cell] = cell == begin ? name : "=";
  }
  return cells;
}

// "F0 F1 == .. " of cells [begin, end), each as wide as the widest.
std::string row_of(const std::vector<std::string>& cells, std::size_t begin, std::size_t end,
                   std::size_t width) {
  std::string row;
  for (std::size_t at = begin; at < end; ++at) {
    const std::string& cell = cells[at];
    const bool filler = cell == "=" || cell == ".";
    row += filler ? std::string(width, cell.front()) : fmt::format("{:<{}}", cell, width);
    if (at + 1 < end) row += ' ';
  }
  return row;
}

}  // namespace

std::string draw_svg(const PipelineChart& chart) { return Svg(chart).draw(); }

std::string draw_text(const PipelineChart& chart, std::size_t columns) {
  const std::int64_t unit = common_unit(chart);
  std::string text = title_of(chart) + '\n';
  // Divided, not multiplied: who says when an action ends may say anything.
  if (chart.makespan() / unit > kMostCells / std::max(chart.rank_count(), 1))
    return text + "(too long to draw in characters)\n";

  std::vector<std::vector<std::string>> lanes;
  std::size_t width = 1;
  for (std::size_t rank = 0; rank < chart.ranks.size(); ++rank) {
    lanes.push_back(cells_of(chart, rank, unit));
    for (const std::string& cell : lanes.back()) width = std::max(width, cell.size());
  }
  const std::size_t digits = fmt::to_string(chart.rank_count() - 1).size();
  const std::size_t margin = std::string_view("rank  |").size() + digits;
  const std::size_t total = lanes.empty() ? 0 : lanes.front().size();
  std::size_t band = std::max<std::size_t>(total, 1);
  if (columns > 0) {
    const std::size_t room = columns > margin ? columns - margin : 0;
    const std::size_t fitting = std::max<std::size_t>((room + 1) / (width + 1), 1);
    // As many bands as are needed, of about equal length.
    const std::size_t bands = std::max<std::size_t>((total + fitting - 1) / fitting, 1);
    band = std::max<std::size_t>((total + bands - 1) / bands, 1);
  }
  for (std::size_t begin = 0; begin < total; begin += band) {
    if (begin > 0) text += fmt::format("from {}\n", static_cast<std::int64_t>(begin) * unit);
    const std::size_t end = std::min(begin + band, total);
    for (std::size_t rank = 0; rank < lanes.size(); ++rank)
      text +=
          fmt::format("rank {:>{}} |{}\n", rank, digits, row_of(lanes[rank], begin, end, width));
  }
  return text;
}

}  // namespace tutti::training
