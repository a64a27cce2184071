// trace.cc: see trace.hpp.
#include "training/report/trace.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <tuple>
#include <utility>

#include "training/files/output_file.hpp"
#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

struct Interval {
  std::int64_t begin, end;
};

// The time that a lane's events cover, as intervals that do not touch, in order.
std::vector<Interval> covered(const RankTrace& rank, TraceLane lane) {
  std::vector<Interval> events;
  for (const TraceEvent& event : rank.events)
    if (event.lane == lane) events.push_back({event.begin_ns, event.end_ns});
  std::sort(events.begin(), events.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> merged;
  for (const Interval& event : events) {
    if (!merged.empty() && event.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, event.end);
    else
      merged.push_back(event);
  }
  return merged;
}

std::int64_t length(const std::vector<Interval>& intervals) {
  std::int64_t sum = 0;
  for (const Interval& interval : intervals) sum += interval.end - interval.begin;
  return sum;
}

std::int64_t common_length(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::int64_t begin = std::max(a[i].begin, b[j].begin);
    const std::int64_t end = std::min(a[i].end, b[j].end);
    sum += std::max(end - begin, std::int64_t{0});
    ++(a[i].end < b[j].end ? i : j);
  }
  return sum;
}

std::int64_t unix_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void sort_events(std::vector<TraceEvent>& events) {
  const auto key = [](const TraceEvent& e) {
    return std::tuple(e.begin_ns, e.lane, e.end_ns, std::string_view(e.name));
  };
  std::sort(events.begin(), events.end(),
            [&key](const TraceEvent& a, const TraceEvent& b) { return key(a) < key(b); });
}

}  // namespace

std::string_view to_string(TraceLane lane) {
  return lane == TraceLane::compute ? "compute" : "communication";
}

Trace::Trace(int rank, std::size_t events_max)
    : rank_(rank), events_max_(events_max), origin_ns_(now_ns()), origin_unix_ns_(unix_ns()) {}

std::int64_t Trace::now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void Trace::add(TraceLane lane, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns) {
  TRAINING_CHECK(begin_ns <= end_ns, "an event ends after it begins");
  TraceEvent event{std::string(name), lane, begin_ns, end_ns};
  const std::lock_guard lock(mutex_);
  if (events_.size() < events_max_)
    events_.push_back(std::move(event));
  else
    ++dropped_;
}

RankTrace Trace::collected() const {
  RankTrace trace{rank_, origin_unix_ns_, {}};
  {
    const std::lock_guard lock(mutex_);
    trace.events.assign(events_.begin(), events_.end());
  }
  for (TraceEvent& event : trace.events) {
    event.begin_ns -= origin_ns_;
    event.end_ns -= origin_ns_;
  }
  sort_events(trace.events);
  return trace;
}

std::int64_t Trace::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

Status Trace::write(const std::string& path) const {
  const RankTrace trace = collected();
  return write_file(path, trace_json({&trace, 1}));
}

std::vector<RankTrace> aligned(std::vector<RankTrace> ranks) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& rank : ranks) first = std::min(first, rank.origin_unix_ns);
  for (RankTrace& rank : ranks) {
    const std::int64_t later = rank.origin_unix_ns - first;
    for (TraceEvent& event : rank.events) {
      event.begin_ns += later;
      event.end_ns += later;
    }
    rank.origin_unix_ns = first;
  }
  return ranks;
}

Status merge_traces(std::span<const std::string> paths, const std::string& out) {
  std::vector<RankTrace> all;
  for (const std::string& path : paths) {
    auto ranks = read_trace(path);
    if (!ranks.ok()) return ranks.status();
    for (RankTrace& rank : *ranks) {
      const auto same = [&rank](const RankTrace& other) { return other.rank == rank.rank; };
      if (std::any_of(all.begin(), all.end(), same))
        return Status(
            StatusCode::invalid_argument,
            "'" + path + "' has rank " + std::to_string(rank.rank) + ", as has a file before it");
      all.push_back(std::move(rank));
    }
  }
  return write_file(out, trace_json(aligned(std::move(all))));
}

double Overlap::hidden_share() const {
  if (communication_ns == 0) return 1;
  return static_cast<double>(hidden_ns) / static_cast<double>(communication_ns);
}

Overlap overlap(const RankTrace& rank) {
  const auto compute = covered(rank, TraceLane::compute);
  const auto communication = covered(rank, TraceLane::communication);
  return {length(compute), length(communication), common_length(compute, communication)};
}

Overlap overlap(std::span<const RankTrace> ranks) {
  Overlap sum;
  for (const RankTrace& rank : ranks) {
    const Overlap one = overlap(rank);
    sum.compute_ns += one.compute_ns;
    sum.communication_ns += one.communication_ns;
    sum.hidden_ns += one.hidden_ns;
  }
  return sum;
}

}  // namespace tutti::training
