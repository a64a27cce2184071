// Judges how news of a failure travel: whom they must reach, and what those who have them must do.
#include <algorithm>

#include "cli/chaos_scene.hpp"

namespace tutti::cli {
namespace {

using Outcome = ChaosVerdict::Outcome;

std::size_t at(int value) { return static_cast<std::size_t>(value); }

// Whom a rank tells that has failed, whoever its peers are (Membership::spread).
bool are_neighbours(Rank a, Rank b, int size) {
  const auto is_power = [](int distance) { return (distance & (distance - 1)) == 0; };
  const int distance = (a - b + size) % size;
  return distance != 0 && (is_power(distance) || is_power(size - distance));
}

}  // namespace

// The ranks that it exchanges messages with, in a call that it is about to make.
std::vector<Rank> ChaosWorld::peers_of(const Participant& p) const {
  const PlannedCall& planned = *p.planned;
  const Rank r = p.comm->rank();
  if (planned.is_message()) return {r == planned.from ? planned.to : planned.from};
  const ChaosCall& c = planned.call;
  if (c.collective == Collective::send_recv)
    return {(r + c.root) % c.ranks, (r - c.root + c.ranks) % c.ranks};
  return planned.plans[at(r)]->program->peers;
}

// Before a call: whom the rank speaks to from now on, and whether one of them has told it already
// that there is no going on.
void ChaosWorld::note_peers(Participant& p) {
  p.told = false;
  p.partners.resize(at(size()));
  const Rank r = p.comm->rank();
  for (const Rank peer : peers_of(p)) {
    p.partners[at(peer)] = true;
    p.told = p.told || world_->told(p.group, peer, r, 0, Signal::failed) != 0;
  }
}

// The first error of a communicator is final.
void ChaosWorld::judge_end(Participant& p, const Status& status) {
  const auto wrong = [&](const std::string& what) {
    trouble(Outcome::wrong, fmt::format("rank {}: {}", p.rank, what));
  };
  if (status.ok() && !p.error.ok())
    return wrong("a call was right after one had failed with " + p.error.to_string());
  if (status.ok() && p.told)
    return wrong("a call was right although a peer had said before it that it failed");
  if (p.error.ok()) {
    p.error = status;
    return;
  }
  if (status.code() != p.error.code() || status.culprit() != p.error.culprit())
    wrong(fmt::format("failed with {} after {}", status.to_string(), p.error.to_string()));
}

// Whoever has failed has told those that it ever made a call with, and some that it did not; they
// should not have to ask.
bool ChaosWorld::news_are_missing() {
  if (any_silent() || verdict_.mismatches > 0) return false;
  for (Rank from = 0; from < size(); ++from) {
    const Participant& knows = member(from);
    if (knows.gone || knows.error.ok()) continue;
    for (Rank to = 0; to < size(); ++to) {
      const Participant& waits = member(to);
      if (waits.gone || waits.task != Participant::Task::call) continue;
      const bool partners = knows.speaks_to(to) && waits.speaks_to(from);
      if (partners || are_neighbours(from, to, size())) return true;
    }
  }
  return false;
}

// What a rank does with its memory after a call harms nobody, and nobody touches it.
void ChaosWorld::judge_memory(const Participant& p) {
  if (!p.gone && p.buffers && !p.buffers->left_alone(p.comm->rank()))
    trouble(Outcome::wrong, fmt::format("memory of rank {} was written to after its call", p.rank));
}

}  // namespace tutti::cli
