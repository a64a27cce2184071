// mesh.cc: see mesh.hpp.
#include "transport/tcp/mesh.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::transport::tcp {
namespace {

constexpr std::size_t kHeaderRoom = 4096;

}  // namespace

Status Mesh::learn(const std::vector<std::string>& cards) {
  if (cards.size() != static_cast<std::size_t>(options_.size))
    return Status(StatusCode::internal, "the exchange did not bring one card from each rank");
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Result<Card> card = parse_card(cards[rank]);
    const std::string who = fmt::format("rank {}", rank);
    if (!card.ok()) return card.status().with_context(who);
    const bool agreed = card->frame_bytes_max == options_.frame_bytes_max &&
                        card->channel_count == static_cast<std::uint32_t>(options_.channel_count) &&
                        card->context == options_.context;
    if (!agreed)
      return Status(
          StatusCode::mismatch,
          fmt::format("{} has other settings than rank {}: frames of {} against {} bytes, "
                      "{} against {} channels, context {} against {}",
                      who, options_.rank, card->frame_bytes_max, options_.frame_bytes_max,
                      card->channel_count, options_.channel_count, card->context,
                      options_.context));
    const Result<SocketAddress> address = parse_address(card->host, card->port);
    if (!address.ok()) return address.status().with_context(who);
    addresses_.push_back(*address);
    nonces_.push_back(card->nonce);
  }
  return Status();
}

std::size_t Mesh::ring_bytes() const {
  return std::max(options_.queue_bytes, padded(options_.frame_bytes_max)) + kHeaderRoom;
}

// The sender's ring holds all that a queue must, and the socket is another one: an eighth less here
// keeps a peer with two channels within a mebibyte.
std::size_t Mesh::receive_ring_bytes() const {
  const std::size_t most = options_.queue_bytes - options_.queue_bytes / 8;
  return std::max(most, padded(options_.frame_bytes_max)) + kHeaderRoom;
}

Opening Mesh::opening(Rank to, int channel, Purpose purpose, const SocketAddress& origin) const {
  const Greeting greeting{options_.context, options_.rank, to, channel, purpose};
  return {encode_greeting(greeting, authenticator_, ends(greeting, origin)),
          last_words_key(greeting, authenticator_, ends(greeting, origin))};
}

std::optional<Mesh::Met> Mesh::recognise(std::string_view bytes, const SocketAddress& origin) {
  const std::optional<Greeting> greeting = parse_greeting(bytes);
  if (!greeting || greeting->context != options_.context || greeting->to != options_.rank ||
      greeting->from < 0 || greeting->from >= options_.size || greeting->from == options_.rank ||
      greeting->channel < 0 || greeting->channel >= options_.channel_count)
    return std::nullopt;
  if (!genuine(bytes, *greeting, authenticator_, ends(*greeting, origin))) return std::nullopt;
  if (!met_.emplace(greeting->from, greeting->channel, greeting->purpose).second)
    return std::nullopt;
  return Met{*greeting, last_words_key(*greeting, authenticator_, ends(*greeting, origin))};
}

}  // namespace tutti::transport::tcp
