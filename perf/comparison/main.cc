// main.cc: one launch of one contender: for each size, the time of a call as all ranks together see
// it, with data that its owner rewrites before the call and reads after it. Rank 0 writes a line of
// JSON about the launch and one per size; perf/compare starts launches and compares them.
//
// Deliberately knows nothing of the library that it measures: that is peer.hpp.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "perf/comparison/numbers.hpp"
#include "perf/comparison/peer.hpp"
#include "perf/comparison/stage.hpp"

namespace tutti::comparison {
namespace {

constexpr std::size_t kWarmUpCalls = 2;  // at least: connections, plans, page faults
constexpr std::size_t kMostWarmUpCalls = 50;
constexpr std::size_t kCheapCalls = 50;                    // measured at least, within ...
constexpr std::size_t kCheapBytes = std::size_t{4} << 20;  // ... this much data in all

struct Options {
  std::string stage;   // the file that the ranks share
  std::string report;  // where rank 0 writes
  Memory memory = Memory::plain;
  std::vector<std::size_t> sizes;
  double seconds = 0.5;  // for the calls of one size
  std::size_t least_calls = 5;
  std::size_t most_calls = 5000;
};

std::vector<std::size_t> parse_sizes(const char* text) {
  std::vector<std::size_t> sizes;
  for (char* end = nullptr; *text != '\0'; text = *end == ',' ? end + 1 : end) {
    sizes.push_back(std::strtoull(text, &end, 10));
    if (end == text || sizes.back() < sizeof(float) || (*end != ',' && *end != '\0')) return {};
  }
  return sizes;
}

// False: not a command line of this program.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--stage")
      options.stage = value;
    else if (name == "--report")
      options.report = value;
    else if (name == "--memory")
      options.memory = std::strcmp(value, "library") == 0 ? Memory::library : Memory::plain;
    else if (name == "--sizes")
      options.sizes = parse_sizes(value);
    else if (name == "--seconds")
      options.seconds = std::atof(value);
    else if (name == "--least-calls")
      options.least_calls = std::strtoull(value, nullptr, 10);
    else if (name == "--most-calls")
      options.most_calls = std::strtoull(value, nullptr, 10);
    else
      return false;
  }
  options.most_calls = std::clamp<std::size_t>(options.most_calls, 1, Stage::kMaxCalls);
  options.least_calls = std::clamp<std::size_t>(options.least_calls, 1, options.most_calls);
  return argc % 2 == 1 && !options.stage.empty() && !options.report.empty() &&
         !options.sizes.empty();
}

// A rank's input and output of one size.
struct Buffers {
  Buffers(Peer& peer, std::size_t elements)
      : count(elements),
        input(static_cast<float*>(peer.allocate(elements * sizeof(float)))),
        output(static_cast<float*>(peer.allocate(elements * sizeof(float)))),
        owner(peer) {
    if (output != nullptr) std::fill_n(output, count, -1.0F);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    if (input != nullptr) owner.deallocate(input);
    if (output != nullptr) owner.deallocate(output);
  }
  bool ok() const { return input != nullptr && output != nullptr; }

  const std::size_t count;
  float* const input;
  float* const output;
  Peer& owner;
};

// One rank's part in a launch.
class Launch {
 public:
  Launch(Peer& peer, Stage& stage, const Options& options)
      : peer_(peer), stage_(stage), options_(options), numbers_(peer.rank(), peer.size()) {}

  // The time of every call of this size, sorted; on rank 0 only. False: a call failed.
  bool measure(std::size_t bytes, std::vector<Nanoseconds>& times) {
    Buffers buffers(peer_, bytes / sizeof(float));
    if (!buffers.ok()) {
      std::fprintf(stderr, "no memory for two buffers of %zu bytes\n", bytes);
      return false;
    }
    // Where calls are cheap, one stall of the machine must not leave only a few.
    const std::size_t cheap = std::min(kCheapCalls, kCheapBytes / bytes);
    const std::size_t least = std::max(options_.least_calls, cheap);
    std::size_t calls = 0;
    if (!repeat(buffers, options_.seconds / 4, kWarmUpCalls, kMostWarmUpCalls, calls) ||
        !repeat(buffers, options_.seconds, least, std::max(least, options_.most_calls), calls))
      return false;
    stage_.meet();
    times.clear();
    for (std::size_t call = 0; call < calls && peer_.rank() == 0; ++call)
      times.push_back(stage_.slowest(call));
    std::sort(times.begin(), times.end());
    stage_.meet();  // nobody records again before rank 0 has read
    return true;
  }

 private:
  // One measured call with its owner's work around it.
  bool call_once(Buffers& buffers, std::size_t call) {
    ++number_;
    numbers_.write(buffers.input, buffers.count, number_);
    const Nanoseconds start = stage_.start_together();
    const bool done = peer_.all_reduce(buffers.input, buffers.output, buffers.count);
    stage_.record(call, now_ns() - start);
    stage_.add_wrong(numbers_.check(buffers.output, buffers.count, number_));
    return done;
  }

  // Calls until the time is over, within the limits on their number. False: a call failed.
  bool repeat(Buffers& buffers, double seconds, std::size_t least, std::size_t most,
              std::size_t& calls) {
    const Nanoseconds end = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
    const auto more = [&] { return calls < least || (calls < most && now_ns() < end); };
    for (calls = 0; stage_.agree(more() ? 1 : 0) != 0; ++calls)
      if (!call_once(buffers, calls)) return false;
    return true;
  }

  Peer& peer_;
  Stage& stage_;
  const Options& options_;
  Numbers numbers_;
  std::uint64_t number_ = 0;  // of calls so far, of any size
};

void write_string(std::FILE* report, const std::string& text) {
  std::fputc('"', report);
  for (const char letter : text)
    if (letter >= ' ' && letter != '"' && letter != '\\') std::fputc(letter, report);
  std::fputc('"', report);
}

void write_cpus(std::FILE* report, const cpu_set_t& cpus) {
  const char* before = "[";
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    std::fprintf(report, "%s%d", before, cpu);
    before = ",";
  }
  std::fputs("]", report);
}

void write_launch(std::FILE* report, const Peer& peer, const Stage& stage) {
  std::fputs("{\"library\":", report);
  write_string(report, peer.describe());
  std::fputs(",\"cpus\":[", report);
  for (int rank = 0; rank < peer.size(); ++rank) {
    if (rank > 0) std::fputc(',', report);
    write_cpus(report, stage.cpus(rank));
  }
  std::fputs("]}\n", report);
}

double at_quantile_us(const std::vector<Nanoseconds>& sorted, double quantile) {
  const double place = quantile * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return ((1 - part) * static_cast<double>(sorted[below]) +
          part * static_cast<double>(sorted[above])) /
         1e3;
}

void write_size(std::FILE* report, std::size_t bytes, const std::vector<Nanoseconds>& times,
                std::size_t wrong) {
  std::fprintf(report,
               "{\"bytes\":%zu,\"calls\":%zu,\"median_us\":%.3f,\"p10_us\":%.3f,\"p90_us\":%.3f,"
               "\"wrong\":%zu}\n",
               bytes, times.size(), at_quantile_us(times, 0.5), at_quantile_us(times, 0.1),
               at_quantile_us(times, 0.9), wrong);
}

int run(Peer& peer, const Options& options) {
  const auto stage = Stage::open(options.stage.c_str(), peer.rank(), peer.size());
  if (stage == nullptr) return 1;
  stage->meet();
  std::FILE* report = peer.rank() == 0 ? std::fopen(options.report.c_str(), "w") : nullptr;
  if (peer.rank() == 0 && report == nullptr) {
    std::perror(options.report.c_str());
    return 1;
  }
  if (report != nullptr) write_launch(report, peer, *stage);
  Launch launch(peer, *stage, options);
  std::vector<Nanoseconds> times;
  std::size_t wrong_before = 0;
  for (const std::size_t bytes : options.sizes) {
    if (!launch.measure(bytes, times)) return 1;
    if (report == nullptr) continue;
    write_size(report, bytes, times, stage->wrong() - wrong_before);
    wrong_before = stage->wrong();
  }
  if (report != nullptr) std::fclose(report);
  return 0;
}

int main_of(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "This program is started by perf/compare, with --stage FILE --report FILE\n"
                 "--sizes BYTES,BYTES,... [--memory plain|library] [--seconds S]\n"
                 "[--least-calls N] [--most-calls N]\n");
    return 2;
  }
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
