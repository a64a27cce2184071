// The report of -J: its keys, which variables it may name, and the file that it goes to.
#include "perf/common/json.hpp"

#include <fcntl.h>
#include <fmt/printf.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tutti::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 3;

// The format spells truth values as strings.
const char* truth(bool value) { return value ? "true" : "false"; }

Json config_json(const Options& options, const std::vector<Device>& devices) {
  Json json{{"nthreads", options.threads},
            {"ngpus", 1},
            {"minimum_bytes", options.min_bytes},
            {"maximum_bytes", options.max_bytes}};
  if (options.step_factor > 1) {
    json["step_factor"] = options.step_factor;
  } else {
    json["step_bytes"] = options.step_bytes;
  }
  json["warmup_iters"] = options.warmup;
  json["iterations"] = options.iterations;
  json["aggregated_iterations"] = options.aggregated;
  json["validation"] = options.checks;
  json["graph"] = 0;
  json["blocking_collectives"] = truth(options.blocking != Blocking::none);
  json["per_iter_timing"] = truth(options.per_iteration);
  json["per_iter_skip"] = options.skip_iterations;
  json["parallel_init"] = truth(false);
  json["buffers"] = options.buffers == BufferKind::shared ? "shared" : "plain";
  json["devices"] = Json::array();
  for (const Device& device : devices) {
    json["devices"].push_back({{"rank", device.rank},
                               {"group", device.group},
                               {"pid", device.pid},
                               {"hostname", device.host},
                               {"device", device.core},
                               {"device_hex", device.address()},
                               {"device_info", device.model}});
  }
  return json;
}

Json half_json(const Half& half, const std::optional<double>& floor_us, const Options& options) {
  Json json{{options.cpu_time ? "cpu_time" : "time", half.time_us},
            {"alg_bw", half.algbw},
            {"bus_bw", half.busbw},
            {"nwrong", nullptr}};
  if (half.wrong) json["nwrong"] = *half.wrong;
  if (floor_us) {
    json["floor_us"] = *floor_us;
    json["floor_share_pct"] = floor_percent(*floor_us, half);
  }
  return json;
}

Json iterations_json(const Half& half, const Options& options) {
  const Statistics statistics = iteration_statistics(half, options);
  return {{"skipped_iterations", options.skip_iterations},
          {"min_us", statistics.min},
          {"max_us", statistics.max},
          {"avg_us", statistics.mean},
          {"p50_us", statistics.p50},
          {"p95_us", statistics.p95},
          {"p99_us", statistics.p99},
          {"stdev_us", statistics.deviation},
          {"cv_pct", statistics.cv_percent},
          {"times_us", half.iterations_us}};
}

Json row_json(const std::string& tool, const Row& row, const Options& options) {
  Json json{{"size", row.bytes},
            {"count", row.count},
            {"type", row.type},
            {"redop", row.op},
            {"root", fmt::sprintf("%6d", row.root)},  // a string in this format
            {"out_of_place", half_json(row.out_of_place, row.floor_us, options)}};
  if (options.per_iteration)
    json["out_of_place_per_iter"] = iterations_json(row.out_of_place, options);
  json["in_place"] = row.in_place ? half_json(*row.in_place, row.floor_us, options) : Json();
  if (options.per_iteration && row.in_place)
    json["in_place_per_iter"] = iterations_json(*row.in_place, options);
  json["actual_iterations"] = options.iterations;
  json["experiment_name"] = tool;
  return json;
}

}  // namespace

std::string json_text(const std::string& tool, const Report& report) {
  const Summary& summary = report.summary;
  Json json{{"version", kFormatVersion},
            {"start_time", report.start_time},
            {"args", report.arguments},
            {"env", report.environment},
            {"nccl_version", 0},
            {"tutti_version", TUTTI_PERF_VERSION},
            {"config", config_json(report.options, report.devices)},
            {"results", Json::array()},
            {"out_of_bounds", {{"count", summary.wrong}, {"okay", truth(summary.wrong == 0)}}}};
  for (const Row& row : report.rows) json["results"].push_back(row_json(tool, row, report.options));
  json["average_bus_bandwidth"] = {
      {"bandwidth", summary.busbw},
      {"okay", summary.fast_enough ? truth(*summary.fast_enough) : "unchecked"}};
  json["errors"] = report.errors;
  json["end_time"] = report.end_time;
  // Names of hosts and arguments may be any bytes; a report with a replaced letter beats none.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> steering(const char* const* environment) {
  constexpr std::string_view prefixes[] = {
      "TUTTI_", "NCCL_",       "OMPI_COMM_WORLD_", "PMI_",         "SLURM_NTASKS", "SLURM_PROCID",
      "RANK=",  "WORLD_SIZE=", "LOCAL_RANK=",      "MASTER_ADDR=", "MASTER_PORT="};
  std::vector<std::string> kept;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.find("SECRET") != std::string_view::npos) continue;
    for (const std::string_view prefix : prefixes)
      if (entry.substr(0, prefix.size()) == prefix) kept.emplace_back(entry);
  }
  return kept;
}

Result<std::string> claim_file(const std::string& path) {
  std::string name = path;
  for (int attempt = 0; attempt < 10000; ++attempt) {
    const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) {
      close(file);
      return name;
    }
    if (errno != EEXIST) break;
    name = path + "." + std::to_string(attempt);
  }
  return Status(StatusCode::system_error,
                "cannot make " + name + " for -J: " + std::strerror(errno));
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (file.good()) return {};
  return Status(StatusCode::system_error, "cannot write " + path + " for -J");
}

}  // namespace tutti::perf
