// Survivors agree on who they are, make a communicator by exchanging what it needs through further
// agreements, and agree that they have it. Every agreement tells all of them alike whether anybody
// died or gave up meanwhile, so all leave an attempt together and, where somebody died, try again
// without the dead.
#include "runtime/shrink.hpp"

#include <optional>

#include <fmt/format.h>

#include "base/try.hpp"
#include "runtime/consensus.hpp"
#include "runtime/split.hpp"
#include "runtime/world.hpp"
#include "runtime/world_offer.hpp"

namespace tutti::runtime {
namespace {

using Blobs = std::vector<std::string>;
using Made = Result<std::shared_ptr<CommunicatorState>>;

constexpr std::uint64_t kWell = 1;

std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }

std::uint64_t child_context(std::uint64_t parent, std::uint32_t number) {
  std::uint64_t mixed = (parent ^ 0xd1b54a32d192ed03ULL) * 0x9e3779b97f4a7c15ULL + number;
  mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9ULL;
  return mixed ^ (mixed >> 32);
}

// One attempt, with one set of survivors.
class Attempt {
 public:
  // `base`: what the ranks agreed on last, which is the same on all of them.
  Attempt(CommunicatorState& parent, const Decision& base)
      : parent_(parent), number_(base.number), lost_(base.lost) {}

  Made make() {
    Members child = members();
    Made made = share_threads(child);
    if (made.ok() && !over_)
      made = make_communicator(child, parent_.parts().config, parent_.parts().options);
    if (over_) return status_;
    // Also whoever could not make it says so, in the place of what would have come next.
    const Status agreed = agree(made.ok() ? kWell : 0, {}).status();
    if (!made.ok()) return made;
    if (!agreed.ok()) return agreed;
    return made;
  }

  // Somebody died meanwhile: another attempt may go better.
  bool somebody_died() const { return somebody_died_; }
  const Decision& last() const { return last_; }

 private:
  Members members() {
    Members child = parent_.parts().members;
    child.context = child_context(child.context, number_);
    child.size = 0;
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < parent_.size(); ++rank) {
      if (lost_[at(rank)]) continue;
      if (rank == parent_.rank()) child.rank = child.size;
      ++child.size;
      ranks.push_back(rank);
    }
    child.choose_job_ranks(parent_.parts().members, ranks);
    child.exchange = [this](const std::string& mine) { return agree(kWell, mine); };
    child.bad_news = [this, ranks] { return of_child(parent_.look_for_deaths(lost_), ranks); };
    return child;
  }

  // Ranks that are threads share their new world, which the first makes and holds out until all
  // have it.
  Made share_threads(Members& child) {
    Made fine = std::shared_ptr<CommunicatorState>();
    if (!child.threads) return fine;
    std::optional<WorldOffer> offer;
    if (child.rank == 0) {
      child.threads = transport::MemoryWorld::make(
          transport_options(parent_.parts().config, child, parent_.parts().ranks_share_cores));
      offer.emplace(child.threads);
    }
    const auto tickets = agree(kWell, offer ? offer->ticket() : std::string());
    TUTTI_TRY(tickets);
    if (!offer) child.threads = WorldOffer::take(tickets->front());
    TUTTI_TRY(agree(child.threads ? kWell : 0, {}));
    return fine;
  }

  // The survivors' blobs, when all of them are well.
  Result<Blobs> agree(std::uint64_t flags, const std::string& mine) {
    if (over_) return status_;
    auto decision =
        agree_to(parent_, Purpose::shrink, flags, mine, parent_.parts().config.setup_timeout);
    status_ = judge(decision);
    over_ = !status_.ok();
    if (over_) return status_;
    Blobs blobs;
    for (Rank rank = 0; rank < parent_.size(); ++rank)
      if (!lost_[at(rank)]) blobs.push_back(std::move(decision->blobs[at(rank)]));
    return blobs;
  }

  Status judge(const Result<Decision>& decision) {
    if (!decision.ok()) return decision.status();
    for (Rank rank = 0; rank < parent_.size(); ++rank) {
      if (lost_[at(rank)] || !decision->lost[at(rank)]) continue;
      somebody_died_ = true;
      last_ = *decision;
      return Status(StatusCode::peer_lost, fmt::format("rank {} was lost while shrinking", rank),
                    rank);
    }
    if ((decision->flags & kWell) != 0) return Status();
    return Status(
        StatusCode::system_error,
        fmt::format("rank {}: shrink: a rank could not make the new communicator", parent_.rank()));
  }

  CommunicatorState& parent_;
  std::uint32_t number_;
  std::vector<bool> lost_;
  Decision last_;
  bool over_ = false;
  bool somebody_died_ = false;
  Status status_;
};

}  // namespace

Status revoked_by(Rank rank) {
  return Status(StatusCode::revoked, fmt::format("rank {} revoked the communicator", rank), rank);
}

Made shrink(CommunicatorState& parent, const std::vector<Rank>& excluded) {
  TUTTI_TRY(parent.revoke(revoked_by(parent.rank())));
  parent.hold_for_lost(excluded);
  auto decision = agree_to(parent, Purpose::shrink, kWell, {}, parent.parts().timeout);
  if (!decision.ok()) return decision.status();
  Decision base = *std::move(decision);
  while (true) {
    Attempt attempt(parent, base);
    Made made = attempt.make();
    if (made.ok() || !attempt.somebody_died()) return made;
    base = attempt.last();
  }
}

}  // namespace tutti::runtime
