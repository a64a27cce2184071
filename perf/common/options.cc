// The table of flags, and what becomes of their values.
#include "perf/common/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti::perf {
namespace {

Status invalid(const std::string& text) { return Status(StatusCode::invalid_argument, text); }
Status unsupported(const std::string& text) { return Status(StatusCode::unsupported, text); }

// A flag of nccl-tests that is accepted only with the value that changes nothing.
struct Refused {
  const char* names;
  int neutral;
  const char* instead;
};

constexpr Refused kRefused[] = {
    {"-g,--ngpus", 1, "ranks have no GPUs here; use -t for more ranks, or a launcher"},
    {"-p,--parallel_init", 0, "threads join together in any case; leave it out"},
    {"-y,--stream_null", 0, "there are no CUDA streams here; leave it out"},
    {"-G,--cudagraph", 0,
     "there are no CUDA graphs here; use -m for operations in flight together"},
    {"-R,--local_register", 0, "--buffers shared (the default) is what registers buffers here"},
    {"-x,--cta_policy", 0, "there are no thread blocks here; leave it out"},
    {"-D,--device_implementation", 0, "there are no device kernels here; leave it out"},
    {"-V,--device_cta_count", 16, "there are no device kernels here; leave it out"},
};

// What the command line says before it is understood.
struct Raw {
  std::string min_bytes, max_bytes, step_bytes;
  std::string op = "sum", type = "float", root = "0", buffers = "shared";
  int step_factor = 1, blocking = 0, average = 1, cpu_time = 0, timestamps = 0, memory = 0;
  int per_iteration = 0, timeout_s = 0;
  std::vector<int> refused;
};

void add_flags(CLI::App& app, Options& options, Raw& raw) {
  const auto range = [](int low, int high) { return CLI::Range(low, high).description(""); };
  const auto positive = range(1, 1 << 30);
  const auto natural = range(0, 1 << 30);
  app.add_option("-t,--nthreads", options.threads, "ranks as threads of this process")
      ->check(range(1, 4096));
  app.add_option("-b,--minbytes", raw.min_bytes, "smallest size, with K, M or G (default 32M)");
  app.add_option("-e,--maxbytes", raw.max_bytes, "largest size (default 32M)");
  app.add_option("-i,--stepbytes", raw.step_bytes, "add this from size to size (default 1M)");
  app.add_option("-f,--stepfactor", raw.step_factor, "multiply by this instead, if above 1")
      ->check(positive);
  app.add_option("-n,--iters", options.iterations, "timed iterations")->check(positive);
  app.add_option("-m,--agg_iters", options.aggregated, "operations in flight per iteration")
      ->check(positive);
  app.add_option("-w,--warmup_iters", options.warmup, "untimed iterations")->check(natural);
  app.add_option("-N,--run_cycles", options.cycles, "tables to print; 0: without end")
      ->check(natural);
  app.add_option("-c,--check", options.checks, "checked calls per line; 0: none")->check(natural);
  app.add_option("-o,--op", raw.op, "sum, prod, min, max, avg, mulsum or all");
  app.add_option("-d,--datatype", raw.type,
                 "float, double, half, bfloat16, f8e4m3, f8e5m2, int8, uint8, int32, uint32, "
                 "int64, uint64 or all");
  app.add_option("-r,--root", raw.root, "rank of the root; -1 or all: each in turn");
  app.add_option("-z,--blocking", raw.blocking,
                 "1: wait and barrier after each operation; 2: wait after each; 3: barrier after "
                 "each iteration, untimed")
      ->check(range(0, 3));
  app.add_option("-a,--average", raw.average, "time of 0: rank 0, 1: average, 2: min, 3: max")
      ->check(range(0, 3));
  app.add_option("-C,--report_cputime", raw.cpu_time,
                 "1: CPU time of the ranks' threads in place of wall time")
      ->check(range(0, 1));
  app.add_option("-J,--output_file", options.json_path, "also write JSON to this new file");
  app.add_option("-S,--report_timestamps", raw.timestamps, "1: a column of times of day")
      ->check(range(0, 1));
  app.add_option("-M,--memory", raw.memory, "1: report memory")->check(range(0, 1));
  app.add_option("-u,--unalign", options.unalign, "shift buffers by so many elements")
      ->check(range(0, 1 << 20));
  app.add_option("-I,--per_iter_timing", raw.per_iteration, "1: columns on single iterations")
      ->check(range(0, 1));
  app.add_option("-K,--per_iter_skip", options.skip_iterations, "leave out the first of them")
      ->check(natural);
  app.add_option("-T,--timeout", raw.timeout_s, "seconds that a call may take")->check(natural);
  app.add_flag("--explain", options.explain, "say what the planner chose for each size, and why");
  app.add_flag("--floor", options.floor,
               "columns: the lower bound of the time, and how much of it was reached");
  app.add_option("--buffers", raw.buffers,
                 "shared: from tutti::allocate (default); plain: from malloc")
      ->check(CLI::IsMember({"shared", "plain"}).description(""));
}

void add_refused(CLI::App& app, Raw& raw) {
  for (const Refused& flag : kRefused) raw.refused.push_back(flag.neutral);
  for (std::size_t i = 0; i < std::size(kRefused); ++i)
    app.add_option(kRefused[i].names, raw.refused[i], "")->group("");
}

Status check_refused(const Raw& raw) {
  for (std::size_t i = 0; i < std::size(kRefused); ++i) {
    if (raw.refused[i] == kRefused[i].neutral) continue;
    return unsupported(std::string(kRefused[i].names) + " " + std::to_string(raw.refused[i]) +
                       ": " + kRefused[i].instead);
  }
  return {};
}

Status read_sizes(const Raw& raw, Options& options) {
  const std::pair<const std::string*, std::size_t*> sizes[] = {
      {&raw.min_bytes, &options.min_bytes},
      {&raw.max_bytes, &options.max_bytes},
      {&raw.step_bytes, &options.step_bytes}};
  for (const auto& [text, bytes] : sizes) {
    if (text->empty()) continue;
    const auto parsed = parse_bytes(*text);
    if (!parsed.ok()) return parsed.status();
    *bytes = *parsed;
  }
  options.step_factor = static_cast<std::size_t>(raw.step_factor);
  // One of the two alone, on the other side of the default: that size alone.
  if (raw.min_bytes.empty()) options.min_bytes = std::min(options.min_bytes, options.max_bytes);
  if (raw.max_bytes.empty()) options.max_bytes = std::max(options.min_bytes, options.max_bytes);
  if (options.min_bytes > options.max_bytes)
    return invalid("-b " + std::to_string(options.min_bytes) + " is above -e " +
                   std::to_string(options.max_bytes));
  if (options.min_bytes == options.max_bytes) return {};
  if (options.step_factor == 1 && options.step_bytes == 0)
    return invalid("-i 0 never gets from -b to -e; give a step above 0, or -f");
  if (options.step_factor > 1 && options.min_bytes == 0)
    return invalid("-b 0 with -f never gets to -e; begin at 1, or use -i");
  return {};
}

Status read_names(const Raw& raw, Options& options) {
  if (raw.op == "all") {
    options.ops.assign(std::begin(kAllReduceOps), std::end(kAllReduceOps));
    options.ops.push_back(mulsum());
  } else if (raw.op == "mulsum") {
    options.ops = {mulsum()};
  } else {
    const auto op = parse_reduce_op(raw.op);
    if (!op.ok()) return op.status().with_context("-o");
    options.ops = {*op};
  }
  if (raw.type == "all") {
    options.types.assign(std::begin(kAllDataTypes), std::end(kAllDataTypes));
  } else {
    const auto type = parse_data_type(raw.type);
    if (!type.ok()) return type.status().with_context("-d");
    options.types = {*type};
  }
  return {};
}

Status read_root(const std::string& text, Options& options) {
  if (text == "all") {
    options.root = kEveryRoot;
    return {};
  }
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, options.root);
  if (error != std::errc() || stop != end || options.root < kEveryRoot)
    return invalid("-r " + text + ": give a rank, or -1 (or all) for every one");
  return {};
}

Status understand(const Raw& raw, Options& options) {
  if (Status status = check_refused(raw); !status.ok()) return status;
  if (Status status = read_sizes(raw, options); !status.ok()) return status;
  if (Status status = read_names(raw, options); !status.ok()) return status;
  if (Status status = read_root(raw.root, options); !status.ok()) return status;
  options.blocking = static_cast<Blocking>(raw.blocking);
  options.average = static_cast<Average>(raw.average);
  options.cpu_time = raw.cpu_time != 0;
  options.timestamps = raw.timestamps != 0;
  options.memory = raw.memory != 0;
  options.per_iteration = raw.per_iteration != 0;
  options.timeout = std::chrono::seconds(raw.timeout_s);
  options.buffers = raw.buffers == "plain" ? BufferKind::plain : BufferKind::shared;
  if (options.per_iteration && options.skip_iterations >= options.iterations)
    return invalid("-K " + std::to_string(options.skip_iterations) + " leaves none of the " +
                   std::to_string(options.iterations) + " iterations of -n");
  return {};
}

}  // namespace

Result<Request> parse_options(const std::string& program, std::vector<std::string> arguments) {
  Request request;
  Raw raw;
  CLI::App app(
      "Measures and checks one collective, as nccl-tests does. Ranks are threads of this process "
      "(-t), or processes that a launcher starts: tutti run -n 4 -- " +
          program + " -b 8 -e 64M -f 2",
      program);
  add_flags(app, request.options, raw);
  add_refused(app, raw);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 reads a vector from its end
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    request.text = app.help();
    return request;
  } catch (const CLI::ParseError& error) {
    return invalid(std::string(error.what()) + "; see " + program + " --help");
  }
  if (Status status = understand(raw, request.options); !status.ok()) return status;
  return request;
}

Status apply_environment(const char* (*get)(const char*), Options& options) {
  if (get("NCCL_TESTS_SPLIT") != nullptr || get("NCCL_TESTS_SPLIT_MASK") != nullptr)
    return unsupported("NCCL_TESTS_SPLIT is not done; unset it and start a world per group");
  if (const char* text = get("NCCL_TESTS_MIN_BW"); text != nullptr) {
    char* end = nullptr;
    options.min_bandwidth = std::strtod(text, &end);
    if (end == text || *end != '\0' || !(options.min_bandwidth >= 0))
      return invalid("NCCL_TESTS_MIN_BW='" + std::string(text) + "': give GB/s, such as 2.5");
  }
  return {};
}

Result<std::size_t> parse_bytes(const std::string& text) {
  const char* const end = text.data() + text.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  double unit = 0;
  if (suffix.empty()) unit = 1;
  if (suffix == "K" || suffix == "k") unit = 1024.0;
  if (suffix == "M" || suffix == "m") unit = 1024.0 * 1024;
  if (suffix == "G" || suffix == "g") unit = 1024.0 * 1024 * 1024;
  if (error != std::errc() || unit == 0 || !(value >= 0) || value * unit > 0x1p52)
    return invalid("'" + text + "' is no size; write bytes, or such as 64K, 1.5M, 2G");
  return static_cast<std::size_t>(value * unit);
}

std::vector<std::size_t> sizes_of(const Options& options) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = options.min_bytes; size <= options.max_bytes;) {
    sizes.push_back(size);
    if (size == options.max_bytes || size > options.max_bytes / options.step_factor) break;
    size = options.step_factor > 1 ? size * options.step_factor : size + options.step_bytes;
  }
  return sizes;
}

}  // namespace tutti::perf
