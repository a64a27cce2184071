// trace_json.cc: traces as the JSON that browsers' trace viewers open, there and back. See
// trace.hpp.
//
// Times are microseconds from the trace's origin, not since 1970: viewers keep them as doubles,
// which would lose the fractions. A metadata event that viewers pass over, "clock_origin", has the
// origin.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "training/files/output_file.hpp"
#include "training/report/trace.hpp"

namespace tutti::training {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30;
// Of times in a file: thirty years. An event ends by twice that, and aligned() adds as much as
// origins differ: 64 bits hold the three.
constexpr double kMicrosecondsMax = 1e15;
// Of origins: the year 2116, for the same reason.
constexpr std::int64_t kOriginMaxNs = std::int64_t{1} << 62;

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Nanoseconds as "12.345" microseconds, without a double between.
std::string microseconds(std::int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns / 1000), std::abs(ns % 1000));
}

void append_metadata(std::string& out, const RankTrace& rank) {
  out += fmt::format(
      "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{0},\"args\":{{\"name\":\"rank {0}\"}}}},\n"
      "{{\"name\":\"clock_origin\",\"ph\":\"M\",\"pid\":{0},\"args\":{{\"unix_ns\":{1}}}}},\n",
      rank.rank, rank.origin_unix_ns);
}

void append_event(std::string& out, int rank, const TraceEvent& event) {
  out +=
      fmt::format("{{\"name\":{},\"ph\":\"X\",\"pid\":{},\"tid\":\"{}\",\"ts\":{},\"dur\":{}}},\n",
                  quoted(event.name), rank, to_string(event.lane), microseconds(event.begin_ns),
                  microseconds(event.end_ns - event.begin_ns));
}

// Reads one event's keys; the first that is wrong stays as the failure.
class EventReader {
 public:
  explicit EventReader(const Json& event) : event_(event) {}

  const Status& status() const { return status_; }

  std::string text(const char* key) {
    const auto found = event_.find(key);
    if (found != event_.end() && found->is_string()) return found->get<std::string>();
    fail(key, "a text");
    return {};
  }

  int rank() {
    const auto found = event_.find("pid");
    if (found != event_.end() && found->is_number_integer()) {
      const auto rank = found->get<std::int64_t>();
      if (rank >= 0 && rank <= std::numeric_limits<int>::max()) return static_cast<int>(rank);
    }
    fail("pid", "a rank");
    return 0;
  }

  std::int64_t ns(const char* key, double microseconds_min) {
    const auto found = event_.find(key);
    if (found != event_.end() && found->is_number()) {
      const auto value = found->get<double>();
      if (value >= microseconds_min && value <= kMicrosecondsMax) return std::llround(value * 1000);
    }
    fail(key, "a time in microseconds");
    return 0;
  }

  TraceLane lane() {
    const std::string name = text("tid");
    for (const TraceLane lane : {TraceLane::compute, TraceLane::communication})
      if (name == to_string(lane)) return lane;
    fail("tid", "\"compute\" or \"communication\"");
    return TraceLane::compute;
  }

  std::int64_t origin() {
    const auto args = event_.find("args");
    if (args != event_.end() && args->is_object()) {
      const auto found = args->find("unix_ns");
      if (found != args->end() && found->is_number_integer()) {
        const auto origin = found->get<std::int64_t>();
        if (origin >= 0 && origin <= kOriginMaxNs) return origin;
      }
    }
    fail("args.unix_ns", "nanoseconds since 1970");
    return 0;
  }

 private:
  void fail(const char* key, const char* wanted) {
    if (status_.ok())
      status_ = Status(StatusCode::corrupt_data, fmt::format("'{}' should be {}", key, wanted));
  }

  const Json& event_;
  Status status_;
};

Status take(const Json& event, std::map<int, RankTrace>& ranks) {
  EventReader reader(event);
  const std::string phase = reader.text("ph"), name = reader.text("name");
  if (phase == "X") {
    const TraceLane lane = reader.lane();
    const std::int64_t begin = reader.ns("ts", -kMicrosecondsMax), length = reader.ns("dur", 0);
    ranks[reader.rank()].events.push_back({name, lane, begin, begin + length});
  } else if (phase == "M" && name == "clock_origin") {
    ranks[reader.rank()].origin_unix_ns = reader.origin();
  }
  return reader.status();
}

}  // namespace

std::string trace_json(std::span<const RankTrace> ranks) {
  std::string out = "[\n";
  for (const RankTrace& rank : ranks) {
    append_metadata(out, rank);
    for (const TraceEvent& event : rank.events) append_event(out, rank.rank, event);
  }
  if (!ranks.empty()) out.erase(out.size() - 2, 1);  // the last comma
  return out + "]\n";
}

Result<std::vector<RankTrace>> parse_trace_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array())
    return Status(StatusCode::corrupt_data, "a trace should be a JSON array of events");
  std::map<int, RankTrace> ranks;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_object())
      return Status(StatusCode::corrupt_data, fmt::format("event {} should be an object", i));
    const Status status = take(json[i], ranks);
    if (!status.ok()) return status.with_context(fmt::format("event {}", i));
  }
  std::vector<RankTrace> all;
  for (auto& [rank, trace] : ranks) {
    trace.rank = rank;
    all.push_back(std::move(trace));
  }
  return all;
}

Result<std::vector<RankTrace>> read_trace(const std::string& path) {
  const auto text = read_file(path, kFileBytesMax);
  if (!text.ok()) return text.status();
  auto ranks = parse_trace_json(*text);
  if (!ranks.ok()) return ranks.status().with_context("'" + path + "'");
  return ranks;
}

}  // namespace tutti::training
