// wire.cc: see wire.hpp.
#include "transport/tcp/wire.hpp"

#include <fmt/format.h>

#include "transport/bootstrap/bytes.hpp"
#include "transport/bootstrap/message.hpp"

namespace tutti::transport::tcp {
namespace {

constexpr std::uint32_t kCulpritBits = 24;
constexpr std::uint32_t kNobody = (1U << kCulpritBits) - 1;

}  // namespace

std::uint32_t failed_words(const Status& failure) {
  const auto culprit = static_cast<std::uint32_t>(failure.culprit());
  return kGoodbyeFailed | static_cast<std::uint32_t>(failure.code()) << kCulpritBits |
         (failure.culprit() < 0 ? kNobody : culprit & kNobody);
}

std::optional<Status> read_failed_words(std::uint32_t words, Rank from) {
  if ((words & kGoodbyeFailed) == 0) return std::nullopt;
  const std::uint32_t code = (words & ~kGoodbyeFailed) >> kCulpritBits;
  const bool known = code > 0 && code <= static_cast<std::uint32_t>(StatusCode::internal);
  const std::uint32_t culprit = words & kNobody;
  const Rank whom = culprit == kNobody ? Status::kUnknownRank : static_cast<Rank>(culprit);
  const StatusCode what = known ? static_cast<StatusCode>(code) : StatusCode::peer_lost;
  if (what == StatusCode::peer_lost && whom != from && whom >= 0)
    return Status(what, fmt::format("rank {} was lost, says rank {}", whom, from), whom);
  return Status(what, fmt::format("rank {} failed: {}", from, to_string(what)), whom);
}
namespace {

constexpr std::string_view kMagic = "tuttitcp";
constexpr std::string_view kGreetingPurpose = "tutti tcp 3: greeting";
constexpr std::string_view kKeyPurpose = "tutti tcp 3: key of the last words";
constexpr std::string_view kWordsPurpose = "tutti tcp 3: last words";
constexpr std::size_t kHostBytesMax = 64;

std::string claim(const Greeting& greeting) {
  return ByteWriter()
      .raw(kMagic)
      .number(greeting.context)
      .number(static_cast<std::int32_t>(greeting.from))
      .number(static_cast<std::int32_t>(greeting.to))
      .number(greeting.channel)
      .number(greeting.purpose)
      .bytes();
}

std::string statement(const Greeting& greeting, const Ends& ends) {
  return ByteWriter()
      .text(claim(greeting))
      .text(ends.from_nonce)
      .text(ends.to_nonce)
      .text(ends.origin)
      .bytes();
}

}  // namespace

std::string encode_card(const Card& card) {
  ByteWriter writer;
  writer.raw(kMagic).number(static_cast<std::uint8_t>(card.status.ok()));
  if (!card.status.ok()) return writer.raw(encode_failure(card.status)).bytes();
  return writer.text(card.host)
      .number(card.port)
      .raw(card.nonce)
      .number(card.frame_bytes_max)
      .number(card.channel_count)
      .number(card.context)
      .bytes();
}

Result<Card> parse_card(std::string_view bytes) {
  const Status bad(StatusCode::corrupt_data, "sent something else than where it listens");
  ByteReader reader(bytes);
  if (reader.raw(kMagic.size()) != kMagic) return bad;
  const auto ok = reader.number<std::uint8_t>();
  if (ok > 1) return bad;
  if (ok == 0) return parse_failure(reader.rest());
  Card card;
  card.host = reader.text(kHostBytesMax);
  card.port = reader.number<std::uint16_t>();
  card.nonce = reader.raw(kNonceBytes);
  card.frame_bytes_max = reader.number<std::uint64_t>();
  card.channel_count = reader.number<std::uint32_t>();
  card.context = reader.number<std::uint64_t>();
  if (!reader.complete()) return bad;
  return card;
}

std::string encode_last_words(std::uint32_t tag, std::string_view key) {
  const std::string words =
      ByteWriter().number(kGoodbyeBytes).number(tag).number(std::uint64_t{0}).bytes();
  return words + Authenticator(key).prove(kWordsPurpose, words);
}

std::optional<std::uint32_t> read_last_words(std::string_view bytes, std::string_view key) {
  if (bytes.size() != kLastWordsBytes) return std::nullopt;
  const std::string_view words = bytes.substr(0, kHeaderBytes);
  if (!Authenticator(key).verify(bytes.substr(kHeaderBytes), kWordsPurpose, words))
    return std::nullopt;
  const FrameHeader header = read_header(reinterpret_cast<const std::byte*>(words.data()));
  if (header.bytes != kGoodbyeBytes) return std::nullopt;
  return header.tag;
}

std::string encode_greeting(const Greeting& greeting, const Authenticator& authenticator,
                            const Ends& ends) {
  return claim(greeting) + authenticator.prove(kGreetingPurpose, statement(greeting, ends));
}

std::string last_words_key(const Greeting& greeting, const Authenticator& authenticator,
                           const Ends& ends) {
  return authenticator.prove(kKeyPurpose, statement(greeting, ends));
}

std::optional<Greeting> parse_greeting(std::string_view bytes) {
  ByteReader reader(bytes);
  Greeting greeting;
  if (reader.raw(kMagic.size()) != kMagic) return std::nullopt;
  greeting.context = reader.number<std::uint64_t>();
  greeting.from = reader.number<std::int32_t>();
  greeting.to = reader.number<std::int32_t>();
  greeting.channel = reader.number<std::int32_t>();
  const auto purpose = reader.number<std::uint32_t>();
  reader.raw(kProofBytes);
  if (!reader.complete() || purpose < 1 || purpose > 2) return std::nullopt;
  greeting.purpose = static_cast<Purpose>(purpose);
  return greeting;
}

bool genuine(std::string_view bytes, const Greeting& greeting, const Authenticator& authenticator,
             const Ends& ends) {
  if (bytes.size() != kGreetingBytes) return false;
  return authenticator.verify(bytes.substr(kGreetingBytes - kProofBytes), kGreetingPurpose,
                              statement(greeting, ends));
}

}  // namespace tutti::transport::tcp
