// mesh.cc: see mesh.hpp.
#include "transport/ucx/mesh.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "base/try.hpp"
#include "transport/ucx/ring.hpp"

namespace tutti::transport::ucx {
namespace {

Status check_settings(const Card& card, const Card& mine, std::string_view who, Rank rank) {
  if (card.frame_bytes_max == mine.frame_bytes_max && card.ring_bytes == mine.ring_bytes &&
      card.channel_count == mine.channel_count && card.context == mine.context)
    return Status();
  return Status(StatusCode::mismatch,
                fmt::format("{} has other settings than rank {}: frames of {} against {} bytes, "
                            "rings of {} against {}, {} against {} channels, context {} against {}",
                            who, rank, card.frame_bytes_max, mine.frame_bytes_max, card.ring_bytes,
                            mine.ring_bytes, card.channel_count, mine.channel_count, card.context,
                            mine.context));
}

}  // namespace

Status Mesh::start(const std::string& transports, ucp_am_recv_callback_t receiver, void* argument) {
  auto context = Context::get(transports);
  TUTTI_TRY(context);
  auto worker = Worker::make(*std::move(context), receiver, argument);
  TUTTI_TRY(worker);
  worker_ = *std::move(worker);
  nonce_ = random_nonce();
  return watch_.start(worker_->event_descriptor());
}

Card Mesh::card() const {
  Card card;
  card.address = worker_->address();
  card.nonce = nonce_;
  card.host = process_world();
  card.process = static_cast<std::uint32_t>(::getpid());
  card.frame_bytes_max = options_.frame_bytes_max;
  card.ring_bytes = ring_bytes();
  card.channel_count = static_cast<std::uint32_t>(options_.channel_count);
  card.context = options_.context;
  return card;
}

Status Mesh::learn(const std::vector<std::string>& cards) {
  if (cards.size() != static_cast<std::size_t>(options_.size))
    return Status(StatusCode::internal, "the exchange did not bring one card from each rank");
  const Card mine = card();
  for (Rank rank = 0; rank < options_.size; ++rank) {
    Result<Card> card = parse_card(cards[static_cast<std::size_t>(rank)]);
    const std::string who = fmt::format("rank {}", rank);
    if (!card.ok()) return card.status().with_context(who);
    TUTTI_TRY(check_settings(*card, mine, who, options_.rank));
    if (card->host != mine.host && options_.job_secret.empty())
      return Status(StatusCode::invalid_argument,
                    fmt::format("{} is on another host and the job has no secret; set "
                                "TUTTI_JOB_SECRET_FILE on all ranks, or start them with "
                                "`tutti run`",
                                who));
    cards_.push_back(*std::move(card));
  }
  return Status();
}

std::size_t Mesh::ring_bytes() const {
  return ucx::ring_bytes(options_.queue_bytes, options_.frame_bytes_max);
}

bool Mesh::is_near(Rank peer) const {
  return !all_remote_ && card_of(peer).host == card_of(options_.rank).host;
}

Key Mesh::key(Rank from, Rank to) const {
  return key_of({options_.context, from, to}, authenticator_, card_of(from).nonce,
                card_of(to).nonce);
}

}  // namespace tutti::transport::ucx
