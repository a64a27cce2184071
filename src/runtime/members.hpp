// members.hpp: ranks that are about to become a communicator, and the little that they need to know
// of each other before they have one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/job_board.hpp"
#include "runtime/tuning.hpp"
#include "transport/memory/transport.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

// A set of ranks that can already talk a little.
struct Members {
  Rank rank = 0;
  int size = 1;
  ExchangeFunction exchange;
  std::string secret;                 // of the job; may be empty on one host
  std::string address = "127.0.0.1";  // of rank 0, to find the way out of this host
  std::uint64_t context = 0;          // different for every communicator of a world
  std::uint64_t job = 0;              // tells worlds apart, also on other ranks; 0: not agreed yet
  std::shared_ptr<transport::MemoryWorld> threads;  // set when ranks are threads
  std::function<Status()> bad_news;                 // ok, or which of them died; may be empty
  std::shared_ptr<const base::JobBoard> board;      // of the launcher; may be null
  std::vector<Rank> job_ranks;                      // on the board; empty: as here
  Tuning tuning;                                    // what this rank has read

  Rank job_rank(Rank r) const {
    if (job_ranks.empty() || r < 0) return r;
    return job_ranks[static_cast<std::size_t>(r)];
  }
  // Those that pass on to a smaller set, by their ranks here.
  void choose_job_ranks(const Members& from, const std::vector<Rank>& ranks);
};

// Ok, or which member the launcher saw fail; before they have met, also one that ended well.
Status find_ended(const Members& members, bool have_met);

}  // namespace tutti::runtime
