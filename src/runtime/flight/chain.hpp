// chain.hpp: who is to blame: follows "waits for" from rank to rank until somebody waits for
// nobody.
//
// A rank that hangs waits for another one, which may well be waiting itself. At the end of the
// chain stands the rank that matters: it is stopped, has failed, is not in the call, or made
// another one. Pure: it looks at what processes.hpp found, and asks nobody.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/flight/processes.hpp"

namespace tutti::runtime::flight {

// A rank of one communicator.
struct Where {
  std::uint64_t job = 0;
  std::uint64_t context = 0;
  Rank rank = 0;

  friend bool operator==(const Where&, const Where&) = default;
};

struct Link {
  Rank rank = 0;
  Rank awaited = 0;
};

struct Culprit {
  Rank rank = Status::kUnknownRank;
  long pid = 0;             // 0: not found on this host
  std::string why;          // "is stopped", as what follows its name
  std::vector<Link> links;  // the ranks on the way, each waiting for the next
};

// Whom `waiter` really waits for, with all ranks that were found. Where nothing is known of those
// that it awaits: the first of them.
// Requires  at least one rank in `awaited`.
Culprit find_culprit(const std::vector<Process>& processes, const Where& waiter,
                     std::span<const Rank> awaited, const Signature& call);

// "rank 1 waits for rank 3; rank 3 (pid 4711) is stopped"
std::string to_string(const Culprit& culprit);

// The same for the communicator of `view`: of the rank itself when it waits, else of the one that
// has waited longest. Nothing when none does.
std::optional<Culprit> find_culprit_of(const std::vector<Process>& processes,
                                       const CommunicatorView& view);

// Of each communicator in a process, where it is.
inline Where where(const CommunicatorView& view) { return {view.job, view.context, view.rank}; }

}  // namespace tutti::runtime::flight
