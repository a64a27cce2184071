// report.cc: see report.hpp.
#include "gpu_check/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace tutti::gpu_check {
namespace {

std::string_view word_for(Check::End end) {
  if (end == Check::End::passed) return "passed";
  return end == Check::End::failed ? "FAILED" : "did not run";
}

std::string row_of(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string text_of(const Table& table) {
  std::string text = fmt::format("## {}\n\n{}\n\n", table.title, table.note);
  text += row_of(table.columns);
  text += row_of(std::vector<std::string>(table.columns.size(), "---:"));
  for (const auto& row : table.rows) text += row_of(row);
  return text + "\n";
}

// A bar would end a cell.
std::string cell(std::string text) {
  std::replace(text.begin(), text.end(), '|', '/');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

void Report::fact(std::string_view name, std::string_view value) {
  fmt::print("{}: {}\n", name, value);
  facts_.emplace_back(name, value);
}

void Report::passed(std::string_view name, std::string_view detail) {
  add(name, detail, Check::End::passed);
}
void Report::failed(std::string_view name, std::string_view detail) {
  add(name, detail, Check::End::failed);
}
void Report::did_not_run(std::string_view name, std::string_view reason) {
  add(name, reason, Check::End::did_not_run);
}

void Report::add(std::string_view name, std::string_view detail, Check::End end) {
  fmt::print("{}: {}: {}\n", word_for(end), name, detail);
  std::fflush(stdout);
  checks_.push_back({std::string(name), std::string(detail), end});
}

void Report::table(const Table& table) {
  fmt::print("{}", text_of(table));
  std::fflush(stdout);
  tables_.push_back(table);
}

bool Report::all_passed() const {
  return std::none_of(checks_.begin(), checks_.end(),
                      [](const Check& check) { return check.end == Check::End::failed; });
}

std::string Report::markdown() const {
  std::string text = "# Tutti on a GPU\n\n";
  for (const auto& [name, value] : facts_) text += fmt::format("- {}: {}\n", name, value);
  text += "\n## Checks\n\n" + row_of({"check", "end", "detail"}) + row_of({"---", "---", "---"});
  for (const Check& check : checks_)
    text += row_of({check.name, std::string(word_for(check.end)), cell(check.detail)});
  text += "\n";
  for (const Table& table : tables_) text += text_of(table);
  return text;
}

Status Report::write(const std::string& path) const {
  std::ofstream file(path);
  file << markdown();
  file.close();
  if (file) return Status();
  return Status(StatusCode::system_error, fmt::format("{}: cannot be written", path));
}

}  // namespace tutti::gpu_check
