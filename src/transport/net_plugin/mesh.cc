// mesh.cc: see mesh.hpp.
#include "transport/net_plugin/mesh.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.hpp"

namespace tutti::transport::net_plugin {
namespace {

// With those beyond frames (inlet.hpp) well below what a plugin must be able to have under way.
constexpr std::size_t kFramesMax = 12;

Status check_settings(const Card& card, const Card& mine, std::string_view who, Rank rank) {
  if (card.plugin != mine.plugin)
    return Status(StatusCode::mismatch, fmt::format("{} uses the net plugin {}, rank {} uses {}",
                                                    who, card.plugin, rank, mine.plugin));
  if (card.frame_bytes_max == mine.frame_bytes_max && card.frames == mine.frames &&
      card.channel_count == mine.channel_count && card.context == mine.context)
    return Status();
  return Status(
      StatusCode::mismatch,
      fmt::format("{} has other settings than rank {}: {} frames of {} against {} of {} "
                  "bytes, {} against {} channels, context {} against {}",
                  who, rank, card.frames, card.frame_bytes_max, mine.frames, mine.frame_bytes_max,
                  card.channel_count, mine.channel_count, card.context, mine.context));
}

}  // namespace

Status Mesh::learn(const std::vector<std::string>& cards) {
  const auto size = static_cast<std::size_t>(options_.size);
  const auto channels = static_cast<std::size_t>(options_.channel_count);
  const auto me = static_cast<std::size_t>(options_.rank);
  if (cards.size() != size)
    return Status(StatusCode::internal, "the exchange did not bring one card from each rank");
  const Result<Card> mine = parse_card(cards[me]);
  TUTTI_TRY(mine);
  for (std::size_t rank = 0; rank < size; ++rank) {
    const Result<Card> card = parse_card(cards[rank]);
    const std::string who = fmt::format("rank {}", rank);
    if (!card.ok()) return card.status().with_context(who);
    TUTTI_TRY(check_settings(*card, *mine, who, options_.rank));
    if (card->handles.size() != size * channels)
      return Status(StatusCode::corrupt_data, who + " does not listen for everybody");
    const auto first = card->handles.begin() + static_cast<std::ptrdiff_t>(me * channels);
    handles_.insert(handles_.end(), first, first + static_cast<std::ptrdiff_t>(channels));
    nonces_.push_back(card->nonce);
  }
  return Status();
}

std::size_t Mesh::frames() const {
  const std::size_t frame = std::max<std::size_t>(options_.frame_bytes_max, 1);
  return std::clamp<std::size_t>(options_.queue_bytes / frame, 2, kFramesMax);
}

const Handle& Mesh::handle(Rank peer, int channel) const {
  return handles_[static_cast<std::size_t>(peer * options_.channel_count + channel)];
}

}  // namespace tutti::transport::net_plugin
