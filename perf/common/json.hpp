// json.hpp: the report that -J writes, as version 3 of nccl-tests' JSON.
//
// Of the environment it keeps what steers a run (TUTTI_*, NCCL_*, what launchers set), never a
// value whose name speaks of a secret: reports are made to be passed around.
#pragma once

#include <string>
#include <vector>

#include "perf/common/table.hpp"

namespace tutti::perf {

// All that is known of one run.
struct Report {
  std::string start_time, end_time;
  std::vector<std::string> arguments;    // with the program's name
  std::vector<std::string> environment;  // "NAME=value"
  Options options;
  std::vector<Device> devices;
  std::vector<Row> rows;
  Summary summary;
  std::vector<std::string> errors;
};

std::string json_text(const std::string& tool, const Report& report);

// What of the environment ("NAME=value") belongs into a report.
std::vector<std::string> steering(const char* const* environment);

// Makes a new file of this name, or of this name with .0, .1, ... appended when it exists; its
// name. Errors: system_error.
Result<std::string> claim_file(const std::string& path);

// Errors: system_error.
Status write_file(const std::string& path, const std::string& text);

}  // namespace tutti::perf
