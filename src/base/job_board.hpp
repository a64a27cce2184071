// job_board.hpp: where the launcher of a job notes which ranks have ended, and how, for the ranks
// that go on. A rank may die before anybody has a connection to it, and a port at which nobody
// listens yet looks like one at which nobody will ever listen; only the parent of the process
// knows.
//
// A memory file that the launcher writes and the ranks can only read. Reading is a load. The ranks
// find it by a path in their environment; without one (another launcher, other hosts) there simply
// is no board.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/descriptor.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::base {

// How a rank's process ended.
struct RankEnding {
  int code = 0;    // what it exited with
  int signal = 0;  // the signal that killed it; 0: it exited by itself

  bool failed() const { return code != 0 || signal != 0; }
  int exit_code() const { return signal != 0 ? 128 + signal : code; }  // as shells have it
  // "exited with code 3", "was killed by signal 11 (Segmentation fault)"
  std::string describe() const;

  friend bool operator==(const RankEnding&, const RankEnding&) = default;
};

class JobBoard {
 public:
  // The launcher's. Errors: system_error.
  static Result<std::unique_ptr<JobBoard>> make(int ranks);
  // A rank's. Errors: system_error, corrupt_data; a path of a board for fewer ranks is one, too.
  static Result<std::unique_ptr<JobBoard>> open(const std::string& path, int ranks);

  ~JobBoard();
  JobBoard(const JobBoard&) = delete;
  JobBoard& operator=(const JobBoard&) = delete;

  // The path by which this user's other processes open the board that this process made.
  std::string path() const;

  void note(Rank rank, const RankEnding& ending);

  // Nothing while the rank runs.
  std::optional<RankEnding> ending(Rank rank) const;

 private:
  struct Page;
  JobBoard(Descriptor file, Page* page, int ranks);

  Descriptor file_;
  Page* page_;
  int ranks_;
};

}  // namespace tutti::base
