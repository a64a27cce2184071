// doctor_checks.hpp: what Tutti needs of a machine and of its settings, looked at one by one.
#pragma once

#include <string>
#include <vector>

#include "base/environment.hpp"

namespace tutti::cli {

struct Check {
  std::string name;
  bool good = true;
  std::string found;  // with the remedy where it is not good
};

// All of them, in the order in which to read them.
std::vector<Check> check_machine(const base::Environment& environment);

}  // namespace tutti::cli
