// meeting_exchange.cc: exchanges over the tree: contributions gather on their way up, and rank 0
// sends all of them down; see meeting.hpp.
#include <fmt/format.h>

#include "base/assert.hpp"
#include "transport/bootstrap/meeting.hpp"

namespace tutti::transport {

void Meeting::begin_exchange(std::uint64_t context, const std::string& mine) {
  TUTTI_ASSERT(!exchanging_ && !exchanged_, "an exchange began inside another");
  if (!status_.ok()) return;
  TUTTI_ASSERT(ready_, "an exchange began before the join ended");
  exchanging_ = true;
  context_ = context;
  blobs_.assign(static_cast<std::size_t>(self_.size), {});
  for (const Lost& each : lost_)
    if (!contributed_.contains_all(each.ranks))
      return fail(
          Status(StatusCode::peer_lost, fmt::format("rank {} hung up", each.rank), each.rank));
  contributed_.add(self_.rank);
  contribute({{self_.rank, mine}});
  for (Early& each : std::exchange(early_, {}))
    if (exchanging_ && fits(each.from, each.blobs)) contribute(std::move(each.blobs.parts));
}

void Meeting::handle_blobs_from_child(Link& link, const std::string& body) {
  auto blobs = parse_blobs(body);
  bool sensible = blobs.has_value();
  for (std::size_t i = 0; sensible && i < blobs->parts.size(); ++i) {
    const Rank rank = blobs->parts[i].rank;
    sensible = link.ranks.contains(rank) && contributed_.add(rank) < 0;
  }
  if (!sensible)
    return fail(Status(StatusCode::corrupt_data,
                       fmt::format("rank {} sent a blob that makes no sense", link.rank),
                       link.rank));
  if (!exchanging_)
    early_.push_back({link.rank, std::move(*blobs)});
  else if (fits(link.rank, *blobs))
    contribute(std::move(blobs->parts));
}

bool Meeting::fits(Rank from, const Blobs& blobs) {
  if (blobs.sequence == sequence_ && blobs.context == context_) return true;
  fail(Status(StatusCode::mismatch,
              fmt::format("rank {} is in exchange {} of context {}, rank {} in {} of {}", from,
                          blobs.sequence, blobs.context, self_.rank, sequence_, context_),
              from));
  return false;
}

void Meeting::contribute(std::vector<Blob> parts) {
  if (self_.rank != 0) {
    for (Blob& part : parts) contributions_.push_back(std::move(part));
    return wait_for_more();
  }
  for (Blob& part : parts) {
    blobs_here_.add(part.rank);
    blobs_[static_cast<std::size_t>(part.rank)] = std::move(part.bytes);
  }
  if (blobs_here_.count() < static_cast<std::size_t>(self_.size)) return;
  Blobs all{sequence_, context_, {}};
  for (Rank rank = 0; rank < self_.size; ++rank)
    all.parts.push_back({rank, blobs_[static_cast<std::size_t>(rank)]});
  for (const std::string& body : encode_blobs(all)) send_to_children(MessageKind::blobs, body);
  finish_exchange();
}

void Meeting::send_contributions() {
  const Blobs blobs{sequence_, context_, std::exchange(contributions_, {})};
  for (const std::string& body : encode_blobs(blobs))
    send(*parent_link(), MessageKind::blobs, body);
}

void Meeting::handle_blobs_from_parent(const std::string& body) {
  auto blobs = parse_blobs(body);
  bool sensible = blobs && blobs->sequence == sequence_ && blobs->context == context_;
  for (std::size_t i = 0; sensible && i < blobs->parts.size(); ++i) {
    const Rank rank = blobs->parts[i].rank;
    sensible = rank >= 0 && rank < self_.size && blobs_here_.add(rank) < 0;
  }
  if (!sensible) {
    const Rank parent = parent_link()->rank;
    return fail(Status(StatusCode::corrupt_data,
                       fmt::format("rank {} sent a blob that makes no sense", parent), parent));
  }
  send_to_children(MessageKind::blobs, body);
  for (Blob& part : blobs->parts)
    blobs_[static_cast<std::size_t>(part.rank)] = std::move(part.bytes);
  if (blobs_here_.count() == static_cast<std::size_t>(self_.size)) finish_exchange();
}

void Meeting::finish_exchange() {
  exchanged_ = std::exchange(blobs_, {});
  blobs_here_.clear();
  contributed_.clear();
  contributions_.clear();
  unsent_since_ms_.reset();
  exchanging_ = false;
  ++sequence_;
}

std::optional<std::vector<std::string>> Meeting::take_exchanged() {
  return std::exchange(exchanged_, std::nullopt);
}

}  // namespace tutti::transport
