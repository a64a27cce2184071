// reader.hpp: what a flight recorder says, as values.
//
// The bytes come from another process, which may be writing them, may have crashed half way, or may
// be no recorder at all: everything is checked, nothing is believed, sizes are bounded.
//
// Knows no processes (processes.hpp) and draws no conclusions (chain.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/flight/recorder.hpp"
#include "runtime/flight/ticks.hpp"
#include "tutti/communicator.hpp"

namespace tutti::runtime::flight {

// Times are ages: seconds before the reading.
struct CallView {
  std::uint64_t number = 0;  // among all calls of the communicator on this rank, from 1
  Signature signature;
  bool running = false;
  StatusCode outcome = StatusCode::ok;  // of a call that is over
  double started_ago = 0;
  double took = 0;  // of a call that is over

  friend bool operator==(const CallView&, const CallView&) = default;
};

struct WaitView {
  std::vector<Rank> ranks;  // at least one
  std::string what;         // from the first: "data from rank 3"
  double since_ago = 0;
};

struct FailureView {
  StatusCode code = StatusCode::internal;
  Rank culprit = Status::kUnknownRank;
  std::string text;
  double ago = 0;
};

struct CommunicatorView {
  std::uint64_t job = 0;
  std::uint64_t context = 0;
  Rank rank = 0;
  int size = 1;
  std::string transport;
  double made_ago = 0;
  std::uint64_t begun = 0;      // calls
  std::vector<CallView> calls;  // the oldest first; those that could be read
  std::optional<WaitView> wait;
  std::optional<FailureView> failure;
  MemoryUse memory;
  std::uint64_t queued = 0;  // calls that were started and wait for the one in progress

  // The latest call, when it could be read.
  const CallView* latest() const {
    return calls.empty() || calls.back().number != begun ? nullptr : &calls.back();
  }
  bool in_call() const { return latest() != nullptr && latest()->running; }
};

struct ProcessView {
  std::uint64_t process = 0;  // as it counts itself
  std::uint64_t left_out = 0;
  std::vector<CommunicatorView> communicators;
};

// Requires  `memory` aligned to a page, as mappings are.
// Errors    corrupt_data, saying what is wrong with the whole; parts that make no sense are left
//           out.
Result<ProcessView> read(std::span<const std::byte> memory, const Moment& now);

// A communicator of this very process; nothing where it is not recorded.
std::optional<CommunicatorView> view_of(const Log& log);

}  // namespace tutti::runtime::flight
