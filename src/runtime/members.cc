// What the launcher's board says of the members.
#include "runtime/members.hpp"

#include <fmt/format.h>

namespace tutti::runtime {

void Members::choose_job_ranks(const Members& from, const std::vector<Rank>& ranks) {
  job_ranks.clear();
  for (const Rank r : ranks) job_ranks.push_back(from.job_rank(r));
}

Status find_ended(const Members& members, bool have_met) {
  if (!members.board) return Status();
  // Who was killed comes before those that gave up because of it.
  std::optional<base::RankEnding> worst;
  Rank whom = -1;
  for (Rank r = 0; r < members.size; ++r) {
    if (r == members.rank) continue;
    const auto ending = members.board->ending(members.job_rank(r));
    if (!ending || (have_met && !ending->failed())) continue;
    if (worst && ending->exit_code() <= worst->exit_code()) continue;
    worst = ending;
    whom = r;
  }
  if (!worst) return Status();
  return Status(StatusCode::peer_lost, fmt::format("rank {} {}", whom, worst->describe()), whom);
}

}  // namespace tutti::runtime
