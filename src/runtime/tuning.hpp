// tuning.hpp: where the tuning table of this machine lies, and what all ranks of a communicator
// make of theirs: one that somebody named must be the same everywhere, one that was merely found is
// used where all ranks have found the same. Either way all plan by one table, or by none.
//
// What stands in a table is collectives/tuning.hpp's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "collectives/tuning.hpp"
#include "tutti/status.hpp"

namespace tutti::runtime {

struct HostCard;

// What this rank read.
struct Tuning {
  std::shared_ptr<const collectives::TuningTable> table;  // null: none
  std::string source = "none";                            // the file, for people
  std::uint64_t hash = 0;                                 // 0: none
  bool named = false;                                     // by the user
};

// Where `tutti tune` writes, and where every rank looks unless TUTTI_TUNING_FILE says otherwise:
// tutti/tuning-KIND.txt in $XDG_CACHE_HOME, or in ~/.cache; KIND is a hash of the machine's.
// Empty where neither is known.
std::string default_tuning_path(const base::Environment& environment, const std::string& machine);

// Reads and checks one file.
// Errors  system_error: it cannot be read; corrupt_data, naming the line; invalid_argument: it was
//         measured on another kind of machine. All name the file, and what to do.
Result<Tuning> read_tuning_file(const std::string& path, const std::string& machine);

// What the settings lead to. A named file must serve; of one that was only found a warning says
// why it does not.
Result<Tuning> find_tuning(const base::Config& config, const base::Environment& environment,
                           const base::Log& log);

// Writes the table, whole or not at all; makes the folder. `comment`: lines that begin with #.
// Errors  system_error, naming the file.
Status write_tuning_file(const std::string& path, const collectives::TuningTable& table,
                         const std::string& comment);

// Whether the ranks with these cards plan by their tables.
// Errors  mismatch, naming two ranks and both tables: named ones that differ.
Result<bool> agree_on_tuning(const std::vector<HostCard>& cards, bool named);

}  // namespace tutti::runtime
