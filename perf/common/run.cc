// The order of a run: who prints, which lines there are, how it ends, and with what exit status.
#include "perf/common/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "perf/common/bench.hpp"
#include "perf/common/json.hpp"
#include "perf/common/machine.hpp"
#include "perf/common/options.hpp"
#include "perf/common/table.hpp"

namespace tutti::perf {
namespace {

constexpr int kGood = 0, kBad = 1, kMisused = 2;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);  // a long run is watched
}

// One rank's way through all lines. Every rank computes the same; rank 0 prints.
class Run {
 public:
  Run(const Tool& tool, const Options& options, Communicator& communicator)
      : tool_(tool), options_(options), communicator_(communicator) {}

  // The exit status, or why there is no result. `arguments` go into the report.
  Result<int> whole(std::vector<std::string> arguments) {
    report_.arguments = std::move(arguments);
    report_.environment = steering(environ);
    report_.start_time = time_of_day();
    const std::size_t transport_before = communicator_.memory_use().transport_bytes;
    if (Status status = begin(); !status.ok()) return status;
    auto bench = Bench::make(communicator_, tool_, options_);
    if (!bench.ok()) return bench.status();
    if (Status status = explain(); !status.ok()) return status;
    for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle)
      if (Status status = table(*bench); !status.ok()) return fail(status);
    if (options_.memory) {
      if (Status status = add_memory(bench->buffer_bytes(), transport_before); !status.ok())
        return fail(status);
    }
    return finish();
  }

 private:
  bool speaks() const { return communicator_.rank() == 0; }
  void say(const std::string& text) const {
    if (speaks()) print(text);
  }

  Status begin() {
    if (speaks() && !options_.json_path.empty()) {
      auto name = claim_file(options_.json_path);
      if (!name.ok()) return name.status();
      json_path_ = std::move(name).value();
      print("# Writing JSON output to " + json_path_ + "\n");
    }
    if (options_.root >= communicator_.size())
      return Status(
          StatusCode::invalid_argument,
          fmt::format("-r {}: ranks are 0 to {}", options_.root, communicator_.size() - 1));
    if (tool_.serves != nullptr)
      if (Status status = tool_.serves(communicator_.size()); !status.ok()) return status;
    auto neighbourhood = meet(communicator_);
    if (!neighbourhood.ok()) return neighbourhood.status();
    if (options_.max_bytes > neighbourhood->max_buffer_bytes) {
      options_.max_bytes = neighbourhood->max_buffer_bytes;
      options_.min_bytes = std::min(options_.min_bytes, options_.max_bytes);
      say(fmt::format("# Reducing maxBytes to {} due to memory limitation\n", options_.max_bytes));
    }
    report_.devices = std::move(neighbourhood->devices);
    say(header_text(std::string(tool_.name), options_, report_.devices));
    return {};
  }

  std::vector<Rank> roots() const {
    if (!has_root(tool_.collective) || options_.root != kEveryRoot)
      return {has_root(tool_.collective) ? options_.root : 0};
    std::vector<Rank> all;
    for (Rank root = 0; root < communicator_.size(); ++root) all.push_back(root);
    return all;
  }

  std::vector<Operation> ops() const {
    return is_reduction(tool_.collective) ? options_.ops : std::vector<Operation>(1);
  }

  // A line on each size, and all the reasons for the largest.
  Status explain() {
    if (!options_.explain) return {};
    for (const DataType type : options_.types) {
      std::string reasons;
      for (const std::size_t bytes : sizes_of(options_)) {
        const std::size_t element_bytes = size_of(type);
        const Shape shape = tool_.shape(bytes / element_bytes, element_bytes, communicator_.size());
        const auto plan =
            communicator_.explain(tool_.collective, shape.count, type, roots().front());
        if (!plan.ok()) return plan.status().with_context(fmt::format("--explain of {} B", bytes));
        say(
            fmt::format("# plan of {} B of {}: {}, {}, {} channel{}, slices of {} B, predicted "
                        "{:.1f} us, measured {} (by {})\n",
                        bytes, to_string(type), plan->algorithm, plan->lowering, plan->channels,
                        plan->channels == 1 ? "" : "s", plan->slice_bytes, plan->predicted_us,
                        plan->measured, plan->chosen_by));
        reasons = plan->explanation;
      }
      say(commented(reasons));
    }
    return {};
  }

  static std::string commented(const std::string& lines) {
    std::string text;
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = std::min(lines.find('\n', at), lines.size());
      text += "#   " + lines.substr(at, end - at) + "\n";
      at = end + 1;
    }
    return text;
  }

  Status table(Bench& bench) {
    say(columns_text(options_));
    for (const DataType type : options_.types) {
      for (const Operation& op : ops()) {
        for (const Rank root : roots()) {
          Line line{0, type, op, root};
          if (Status status = bench.warm_up(line); !status.ok()) return status;
          for (const std::size_t bytes : sizes_of(options_)) {
            line.bytes = bytes;
            auto row = bench.measure(line);
            if (!row.ok()) return row.status();
            add(std::move(row).value());
          }
        }
      }
    }
    return {};
  }

  void add(Row row) {
    say(row_text(row, options_));
    report_.summary.wrong += row.out_of_place.wrong.value_or(0);
    busbw_sum_ += row.out_of_place.busbw;
    ++halves_;
    if (row.in_place) {
      report_.summary.wrong += row.in_place->wrong.value_or(0);
      busbw_sum_ += row.in_place->busbw;
      ++halves_;
    }
    report_.summary.busbw = busbw_sum_ / halves_;
    if (!json_path_.empty()) report_.rows.push_back(std::move(row));
  }

  Status add_memory(std::size_t buffer_bytes, std::size_t transport_before) {
    const MemoryUse use = communicator_.memory_use();
    std::int64_t bytes[] = {
        static_cast<std::int64_t>(transport_before), static_cast<std::int64_t>(buffer_bytes),
        static_cast<std::int64_t>(use.transport_bytes + use.scratch_bytes - transport_before)};
    Status status = communicator_.all_reduce(std::span<std::int64_t>(bytes), ReduceOp::sum);
    if (!status.ok()) return status.with_context("sum of memory");
    report_.summary.memory = Memory{bytes[0], bytes[1], bytes[2]};
    return {};
  }

  Result<int> finish() {
    Summary& summary = report_.summary;
    if (options_.min_bandwidth > 0)
      summary.fast_enough = summary.busbw >= 0.9 * options_.min_bandwidth;
    say(summary_text(std::string(tool_.name), summary));
    if (Status status = write_report(); !status.ok()) return status;
    // Nobody leaves, with whatever status, before rank 0 has said why.
    if (Status status = communicator_.barrier(); !status.ok()) return status;
    if (Status status = communicator_.close(); !status.ok()) return status;
    return summary.wrong == 0 && summary.fast_enough.value_or(true) ? kGood : kBad;
  }

  // The lines that there are reach the report also when a later one fails.
  Status fail(const Status& status) {
    report_.errors.push_back(status.to_string());
    if (Status written = write_report(); !written.ok())
      fmt::print(stderr, "{}: {}\n", tool_.name, written.to_string());
    return status;
  }

  Status write_report() {
    if (json_path_.empty()) return {};
    report_.end_time = time_of_day();
    report_.options = options_;
    return write_file(json_path_, json_text(std::string(tool_.name), report_));
  }

  const Tool& tool_;
  Options options_;
  Communicator& communicator_;
  Report report_;
  std::string json_path_;  // rank 0 with -J
  double busbw_sum_ = 0;
  int halves_ = 0;
};

int complain(const Tool& tool, const Status& status, int exit_status) {
  fmt::print(stderr, "{}: {}\n", tool.name, status.to_string());
  return exit_status;
}

int run_rank(const Tool& tool, const Options& options, Communicator communicator,
             const std::vector<std::string>& arguments) {
  const auto result = Run(tool, options, communicator).whole(arguments);
  return result.ok() ? *result : complain(tool, result.status(), kBad);
}

// True when a launcher made this process one of several.
bool launched() {
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const size = std::getenv(name);
    if (size != nullptr && std::atoi(size) > 1) return true;
  }
  return false;
}

int run_threads(const Tool& tool, const Options& options, const CommunicatorOptions& how,
                const std::vector<std::string>& arguments) {
  if (launched()) {
    return complain(tool,
                    Status(StatusCode::unsupported,
                           fmt::format("-t {} makes all ranks in one process, but a launcher "
                                       "started several; use one of the two",
                                       options.threads)),
                    kMisused);
  }
  auto communicators = Communicator::for_threads(options.threads, how);
  if (!communicators.ok()) return complain(tool, communicators.status(), kBad);
  std::vector<int> results(communicators->size(), kBad);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    threads.emplace_back([&, rank, own = std::move((*communicators)[rank])]() mutable {
      results[rank] = run_rank(tool, options, std::move(own), arguments);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(results.begin(), results.end());
}

}  // namespace

int run_program(const Tool& tool, int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  auto request = parse_options(std::string(tool.name), {arguments.begin() + 1, arguments.end()});
  if (!request.ok()) return complain(tool, request.status(), kMisused);
  if (!request->text.empty()) {
    print(request->text);
    return kGood;
  }
  Options& options = request->options;
  const auto get = [](const char* name) -> const char* { return std::getenv(name); };
  if (Status status = apply_environment(get, options); !status.ok())
    return complain(tool, status, kMisused);
  CommunicatorOptions how;
  how.timeout = options.timeout;
  if (options.threads > 1) return run_threads(tool, options, how, arguments);
  auto communicator = Communicator::from_environment(how);
  if (!communicator.ok()) return complain(tool, communicator.status(), kBad);
  return run_rank(tool, options, std::move(communicator).value(), arguments);
}

}  // namespace tutti::perf
