// main.cc: one launch of one contender: for each size, the time of a call as all ranks together see
// it, with data that its owner rewrites before the call and reads after it. Rank 0 writes a line of
// JSON about the launch and one per size; perf/compare starts launches and compares them.
//
// Where each rank has a core, a call is timed by itself, from a common start to the end of the last
// rank. With more ranks than cores there is no common start: who waits for it at a barrier has a
// core that another needs, and what is timed is how the system hands the cores over between the
// ranks in the barrier and those in the call (58 us for a call of 6, whoever the contender). There,
// what a program would see is timed: a loop of many calls, each between its owner's writing and
// reading, with nothing of the harness in it, less the same loop without the calls. That is
// what the calls add to the program, and leaves the owners' work out, as above, where it is outside
// the timed part.
//
// Deliberately knows nothing of the library that it measures: that is peer.hpp.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "perf/comparison/batches.hpp"
#include "perf/comparison/numbers.hpp"
#include "perf/comparison/options.hpp"
#include "perf/comparison/stage.hpp"
#include "perf/comparison/telling.hpp"

namespace tutti::comparison {
namespace {

// At least so many calls are not counted: connections, plans, page faults, and libraries that find
// out while they are called which of their ways is the quickest.
constexpr std::size_t kWarmUpCalls = 10;
constexpr std::size_t kMostWarmUpCalls = 50;
constexpr std::size_t kMostTrialCalls = 300;               // of each way, where there are several
constexpr std::size_t kCheapCalls = 50;                    // measured at least, within ...
constexpr std::size_t kCheapBytes = std::size_t{4} << 20;  // ... this much data in all
constexpr double kOvertime = 3;                            // times the time, for them
constexpr double kBatchSeconds = 0.01;                     // several time slices of each rank, ...
constexpr double kBatches = 8;                             // ... if the time is enough for so many
constexpr std::size_t kMostInBatch = 10000;
constexpr double kTriesPerSecond = 50;  // of a measurement, for a quiet moment before each batch
constexpr double kMostTries = 9;
// From here on, a launch has one call that counts, and keeps its buffers: their pages cost more
// than all of its calls.
constexpr std::size_t kDearBytes = std::size_t{128} << 20;

// What a peer's ranks put in and get out; without output_bytes both are one buffer.
class Memories {
 public:
  Memories(Peer& peer, std::size_t input_bytes, std::size_t output_bytes)
      : peer_(peer), bytes_(input_bytes) {
    for (int rank = 0; rank < peer.held() && ok(); ++rank) {
      void* const input = peer.allocate(input_bytes);
      ranks_.push_back({input, output_bytes == 0 ? input : peer.allocate(output_bytes)});
      // Pages that were never written are all the same one, and cost their owner later.
      const std::size_t written = output_bytes == 0 ? input_bytes : output_bytes;
      if (ok()) std::memset(ranks_.back().output, 0xff, written);
    }
  }
  Memories(const Memories&) = delete;
  Memories& operator=(const Memories&) = delete;
  ~Memories() {
    for (const Buffers& buffers : ranks_) {
      if (buffers.output != nullptr && buffers.output != buffers.input)
        peer_.deallocate(buffers.output);
      if (buffers.input != nullptr) peer_.deallocate(buffers.input);
    }
  }

  bool ok() const {
    return ranks_.empty() || (ranks_.back().input != nullptr && ranks_.back().output != nullptr);
  }
  std::size_t bytes() const { return bytes_; }  // of an input
  const std::vector<Buffers>& ranks() const { return ranks_; }

 private:
  Peer& peer_;
  std::size_t bytes_;
  std::vector<Buffers> ranks_;
};

// One process's part in a launch.
class Launch {
 public:
  Launch(Peer& peer, Stage& stage, const Options& options)
      : peer_(peer),
        stage_(stage),
        options_(options),
        numbers_(peer.size()),
        crowded_(stage.settle(peer.size())) {}

  // The time of every call or batch of this work, on rank 0 only. False: a call failed.
  bool measure(const Work& work, Times& times) {
    work_ = work;
    if (!get_buffers()) {
      std::fprintf(stderr, "no memory for two buffers of %zu bytes\n", work.bytes);
      return false;
    }
    call_ = {work.operation, work.type, work.count(peer_.size()), buffers_};
    const std::vector<std::string> ways = peer_.ways(call_);
    std::size_t best = 0;
    if (ways.size() > 1 && !try_all(ways.size(), best)) return false;
    peer_.choose(best);
    times.way = ways[best];
    if (!warm_up(options_.seconds / 4, warm_up_calls())) return false;
    times.line_before = stage_.line_price();
    if (!repeat(options_.seconds, least_calls(), options_.most_calls, times.calls)) return false;
    times.line_after = stage_.line_price();
    times.batch = batch_;
    times.quiet = quiet_;
    return true;
  }

 private:
  // Fresh ones, but for dear works.
  bool get_buffers() {
    const bool one_buffer = work_.operation == Operation::broadcast;
    std::optional<Memories>& memories = dear() ? dear_memories_ : memories_;
    if (!dear()) {
      const std::size_t block = work_.count(peer_.size()) * size_of(work_.type);
      memories.emplace(peer_, block * work_.input_blocks(peer_.size()),
                       one_buffer ? 0 : block * work_.output_blocks(peer_.size()));
    } else if (!memories || memories->bytes() < work_.bytes) {
      memories.emplace(peer_, work_.bytes, work_.bytes);
    }
    buffers_ = memories->ranks();
    if (one_buffer)
      for (Buffers& buffers : buffers_) buffers.output = buffers.input;
    return memories->ok();
  }

  // Also finds out how many calls fill a batch.
  bool warm_up(double seconds, std::size_t least) {
    std::vector<Nanoseconds> unused;
    batch_ = 1;
    if (!repeat(seconds, least, kMostWarmUpCalls, unused)) return false;
    return !crowded_ || dear() || fill_batch();  // a dear call is a batch
  }

  // From one call on, whose time is mostly that of waking up in the barrier, until the time says
  // how many are enough. The least of some counts: one stall must not leave a batch short.
  bool fill_batch() {
    const double wanted = 1e9 * std::min(kBatchSeconds, options_.seconds / kBatches);
    for (;;) {
      double took = 0;
      if (!time_batch(took)) return false;
      const bool enough = took > wanted / 4;
      const double factor = enough ? wanted / took : 8;
      const double calls = std::round(factor * static_cast<double>(batch_));
      batch_ = std::clamp<std::size_t>(static_cast<std::size_t>(calls), 1, kMostInBatch);
      if (enough || batch_ == kMostInBatch) return true;
    }
  }

  // The same on all ranks, in nanoseconds; with the owners' work.
  bool time_batch(double& took) {
    std::vector<Nanoseconds> unused;
    std::uint64_t least = UINT64_MAX;
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (!repeat(0, 1, 1, unused)) return false;
      least = std::min(least, static_cast<std::uint64_t>(stage_.slowest(0)));
      least = stage_.agree(least);
    }
    took = static_cast<double>(least);
    return true;
  }

  std::size_t warm_up_calls() const { return dear() ? 1 : kWarmUpCalls; }
  std::size_t least_calls() const { return dear() ? 1 : options_.least_calls; }
  bool dear() const { return work_.bytes >= kDearBytes; }

  // Where calls move little, one stall of the machine must not leave only a few, unless all of them
  // take long.
  bool too_few(std::size_t calls, Nanoseconds overtime, double seconds) const {
    return calls < std::min(kCheapCalls, kCheapBytes / work_.bytes) &&
           overtime < static_cast<Nanoseconds>(kOvertime * seconds * 1e9);
  }

  // The way whose calls have the least median.
  bool try_all(std::size_t ways, std::size_t& best) {
    const double seconds = options_.seconds / 4;
    const std::size_t least = dear() ? 1 : 3;
    std::vector<double> medians;
    std::vector<Nanoseconds> times;
    for (std::size_t way = 0; way < ways; ++way) {
      peer_.choose(way);
      // Of a dear call, the first way has warmed up for all.
      if ((way == 0 || !dear()) && !warm_up(seconds / 4, 1)) return false;
      if (!repeat(seconds, least, kMostTrialCalls, times)) return false;
      medians.push_back(times.empty() ? 0 : at_quantile_us(times, 0.5));
    }
    const auto least_median = std::min_element(medians.begin(), medians.end());
    best = stage_.agree(static_cast<std::uint64_t>(least_median - medians.begin()));
    return true;
  }

  // The owners' work before a call and after it.
  void write() {
    int rank = peer_.rank();
    for (const Buffers& buffers : call_.ranks)
      numbers_.write(work_, rank++, buffers.input, number_);
  }
  void read() {
    int rank = peer_.rank();
    for (const Buffers& buffers : call_.ranks)
      stage_.add_wrong(numbers_.check(work_, rank++, buffers.output, number_));
  }

  // One measured call with its owner's work around it.
  bool call_once(std::size_t sample) {
    ++number_;
    write();
    const Nanoseconds start = stage_.start_together();
    const bool done = peer_.run(call_);
    stage_.record(sample, now_ns() - start);
    read();
    return done;
  }

  // A measured batch, and the same without the calls: what the last call left is still right.
  // Whether something else ran on a core before or after it is recorded beside it.
  bool call_many(std::size_t sample) {
    const Nanoseconds price = stage_.await_quiet(tries_);
    stage_.start_together();
    for (std::size_t call = 0; call < batch_; ++call) {
      ++number_;
      write();
      if (!peer_.run(call_)) return false;
      read();
    }
    stage_.record(3 * sample, now_ns() - stage_.announced_start());
    stage_.start_together();
    for (std::size_t call = 0; call < batch_; ++call) {
      write();
      read();
    }
    stage_.record(3 * sample + 1, now_ns() - stage_.announced_start());
    stage_.meet();
    stage_.record(3 * sample + 2, std::max(price, stage_.yield_price()));
    return true;
  }

  // Requires  a meet() since they were measured.
  void take_times(std::size_t samples, std::vector<Nanoseconds>& times) {
    quiet_ = samples;
    if (crowded_) {
      std::vector<Batch> batches;
      for (std::size_t sample = 0; sample < samples; ++sample)
        batches.push_back({stage_.slowest(3 * sample), stage_.slowest(3 * sample + 1),
                           stage_.slowest(3 * sample + 2)});
      quiet_ = take_quiet(batches, batch_, Stage::kQuietYield, times);
      return;
    }
    for (std::size_t call = 0; call < samples; ++call) times.push_back(stage_.slowest(call));
  }

  // Calls, or batches of them, until the time is over, within the limits on their number. False: a
  // call failed.
  bool repeat(double seconds, std::size_t least, std::size_t most,
              std::vector<Nanoseconds>& times) {
    const Nanoseconds end = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
    tries_ = 1 + static_cast<int>(std::min(seconds * kTriesPerSecond, kMostTries));
    std::size_t calls = 0;
    const auto more = [&] {
      const Nanoseconds overtime = now_ns() - end;
      return calls < least || (calls < most && (overtime < 0 || too_few(calls, overtime, seconds)));
    };
    for (; stage_.agree(more() ? 1 : 0) != 0; ++calls)
      if (crowded_ ? !call_many(calls) : !call_once(calls)) return false;
    stage_.meet();
    times.clear();
    if (peer_.rank() == 0) take_times(calls, times);
    std::sort(times.begin(), times.end());
    stage_.meet();  // nobody records again before rank 0 has read
    return true;
  }

  Peer& peer_;
  Stage& stage_;
  const Options& options_;
  Numbers numbers_;
  bool crowded_;  // there are more ranks than cores
  std::size_t batch_ = 1;
  int tries_ = 1;          // to find a quiet moment for a batch
  std::size_t quiet_ = 0;  // samples of the last repeat() beside which nothing else ran
  std::optional<Memories> memories_;
  std::optional<Memories> dear_memories_;
  std::vector<Buffers> buffers_;
  Work work_;
  Call call_;
  std::uint64_t number_ = 0;  // of calls so far, of any kind
};

// False: a call failed.
bool measure_kind(Launch& launch, const Stage& stage, const Options& options, Work work,
                  std::FILE* report) {
  Times times;
  for (const std::size_t bytes : options.sizes) {
    work.bytes = bytes;
    const std::size_t wrong_before = stage.wrong();
    if (!launch.measure(work, times)) return false;
    if (report != nullptr) tell_work(report, work, times, stage.wrong() - wrong_before);
  }
  return true;
}

bool measure_all(Peer& peer, Stage& stage, const Options& options, std::FILE* report) {
  if (report != nullptr) tell_launch(report, peer, stage);
  Launch launch(peer, stage, options);
  for (const Operation operation : options.operations) {
    for (const Type type : options.types) {
      const std::string unable = peer.unable(operation, type);
      if (unable.empty()) {
        if (!measure_kind(launch, stage, options, {operation, type, 0}, report)) return false;
      } else if (report != nullptr) {
        tell_unable(report, operation, type, unable);
      }
    }
  }
  return true;
}

int run(Peer& peer, const Options& options) {
  const int seats = peer.size() / peer.held();
  const auto stage = Stage::open(options.stage.c_str(), peer.rank() / peer.held(), seats);
  if (stage == nullptr) return 1;
  stage->meet();
  std::FILE* report = peer.rank() == 0 ? std::fopen(options.report.c_str(), "w") : nullptr;
  if (peer.rank() == 0 && report == nullptr) {
    std::perror(options.report.c_str());
    return 1;
  }
  const bool done = measure_all(peer, *stage, options, report);
  if (report != nullptr) std::fclose(report);
  return done ? 0 : 1;
}

int main_of(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 2;
  const auto peer = join(&argc, &argv, options.memory);
  if (peer == nullptr) return 1;
  const int code = run(*peer, options);
  // The other ranks wait for this one, and leaving in order would wait for them.
  if (code != 0) std::_Exit(code);
  return 0;
}

}  // namespace
}  // namespace tutti::comparison

int main(int argc, char** argv) { return tutti::comparison::main_of(argc, argv); }
