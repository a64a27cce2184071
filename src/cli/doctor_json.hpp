// doctor_json.hpp: what `tutti doctor` says, for programs to read.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor_checks.hpp"
#include "runtime/flight/processes.hpp"

namespace tutti::cli {

// An object with "processes" and "checks"; times are seconds, sizes bytes. `shown`: those to tell
// of; `all`: where culprits are looked for.
std::string doctor_json(const std::vector<runtime::flight::Process>& shown,
                        const std::vector<runtime::flight::Process>& all,
                        const std::vector<Check>& checks);

}  // namespace tutti::cli
