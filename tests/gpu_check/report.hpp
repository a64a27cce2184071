// report.hpp: what a check of a GPU found, as a page for people: the machine, what was checked and
// how often, what did not run and why, and tables of figures.
//
// Knows nothing of devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::gpu_check {

struct Check {
  std::string name;
  std::string detail;  // how many cases, or what is wrong
  enum class End { passed, failed, did_not_run } end = End::passed;
};

struct Table {
  std::string title;
  std::string note;  // what the columns mean
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

// Also tells on standard output what is added, as it comes.
class Report {
 public:
  void fact(std::string_view name, std::string_view value);
  void passed(std::string_view name, std::string_view detail);
  void failed(std::string_view name, std::string_view detail);
  void did_not_run(std::string_view name, std::string_view reason);
  void table(const Table& table);

  bool all_passed() const;
  std::string markdown() const;
  Status write(const std::string& path) const;

 private:
  void add(std::string_view name, std::string_view detail, Check::End end);

  std::vector<std::pair<std::string, std::string>> facts_;
  std::vector<Check> checks_;
  std::vector<Table> tables_;
};

}  // namespace tutti::gpu_check
