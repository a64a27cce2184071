// trace.hpp: when each rank computed and when it communicated, to look at in a browser
// (chrome://tracing, ui.perfetto.dev) and to measure how much communication hides under compute.
//
// Knows nothing of what the events are; whoever does the work names it. Time that a rank only waits
// for communication must not be recorded as compute.
//
// Source  Google: Trace Event Format, the JSON array form with complete events ("ph": "X").
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::training {

enum class TraceLane : unsigned char { compute, communication };

std::string_view to_string(TraceLane lane);

// Units  nanoseconds of the machine's monotonic clock, or since `origin_unix_ns` in a RankTrace.
struct TraceEvent {
  std::string name;
  TraceLane lane = TraceLane::compute;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// What one rank did. Events in the order of their begins.
struct RankTrace {
  int rank = 0;
  std::int64_t origin_unix_ns = 0;  // when 0 was, since 1970
  std::vector<TraceEvent> events;
};

// Collects one rank's events.
//
// Threading  any thread.
// Cost       of add(): a lock that is seldom contended and a copy of the name; with a
//            span's two looks at the clock a quarter of a microsecond. Past `events_max` events
//            are only counted.
class Trace {
 public:
  static constexpr std::size_t kEventsMax = 1 << 20;

  explicit Trace(int rank, std::size_t events_max = kEventsMax);

  static std::int64_t now_ns();

  // Requires  begin_ns <= end_ns, both from now_ns().
  void add(TraceLane lane, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns);

  RankTrace collected() const;
  std::int64_t dropped() const;  // events past events_max

  Status write(const std::string& path) const;

 private:
  int rank_;
  std::size_t events_max_;
  std::int64_t origin_ns_;  // by both clocks, read one after the other
  std::int64_t origin_unix_ns_;
  mutable std::mutex mutex_;
  std::deque<TraceEvent> events_;  // never moved when it grows
  std::int64_t dropped_ = 0;
};

// An event from its construction to its end; nothing where `trace` is null.
class TraceSpan {
 public:
  // Lifetime  `name` outlives the span.
  TraceSpan(Trace* trace, TraceLane lane, std::string_view name)
      : trace_(trace), lane_(lane), name_(name), begin_ns_(trace ? Trace::now_ns() : 0) {}
  ~TraceSpan() {
    if (trace_) trace_->add(lane_, name_, begin_ns_, Trace::now_ns());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  TraceLane lane_;
  std::string_view name_;
  std::int64_t begin_ns_;
};

// All ranks on the time of the one that began first.
std::vector<RankTrace> aligned(std::vector<RankTrace> ranks);

// A file's text: pid is the rank, tid "compute" or "communication", one event a line.
std::string trace_json(std::span<const RankTrace> ranks);

// What trace_json() wrote, in the order of ranks. Errors  corrupt_data, naming event and key.
Result<std::vector<RankTrace>> parse_trace_json(std::string_view text);
Result<std::vector<RankTrace>> read_trace(const std::string& path);

// One file of several ranks' files, aligned. Errors  those of reading and writing;
// invalid_argument when two files have the same rank.
Status merge_traces(std::span<const std::string> paths, const std::string& out);

// How communication and compute of the same rank lie on each other, summed over ranks. Time in
// which two events of a lane overlap counts once.
struct Overlap {
  std::int64_t compute_ns = 0;
  std::int64_t communication_ns = 0;
  std::int64_t hidden_ns = 0;  // communication under compute

  std::int64_t exposed_ns() const { return communication_ns - hidden_ns; }
  // Of the communication; 1 where there was none.
  double hidden_share() const;
};

Overlap overlap(const RankTrace& rank);
Overlap overlap(std::span<const RankTrace> ranks);

}  // namespace tutti::training
