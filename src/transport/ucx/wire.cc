// wire.cc: see wire.hpp.
#include "transport/ucx/wire.hpp"

#include <sodium.h>

#include <algorithm>

#include "transport/bootstrap/bytes.hpp"
#include "transport/bootstrap/message.hpp"

namespace tutti::transport::ucx {
namespace {

constexpr std::string_view kMagic = "tuttiucx";
constexpr std::string_view kPurpose = "tutti ucx 1: key of records";
constexpr std::size_t kAddressBytesMax = 32 * 1024;
constexpr std::size_t kHostBytesMax = 256;

}  // namespace

Key key_of(const Direction& direction, const Authenticator& authenticator,
           std::string_view from_nonce, std::string_view to_nonce) {
  const std::string statement = ByteWriter()
                                    .number(direction.context)
                                    .number(static_cast<std::int32_t>(direction.from))
                                    .number(static_cast<std::int32_t>(direction.to))
                                    .text(from_nonce)
                                    .text(to_nonce)
                                    .bytes();
  static_assert(kKeyBytes <= kProofBytes);
  const std::string proof = authenticator.prove(kPurpose, statement);
  Key key;
  std::copy_n(proof.begin(), kKeyBytes, key.begin());
  return key;
}

bool same(const Key& one, const Key& other) {
  return sodium_memcmp(one.data(), other.data(), kKeyBytes) == 0;
}

std::string encode_card(const Card& card) {
  ByteWriter writer;
  writer.raw(kMagic).number(static_cast<std::uint8_t>(card.status.ok()));
  if (!card.status.ok()) return writer.raw(encode_failure(card.status)).bytes();
  return writer.text(card.address)
      .raw(card.nonce)
      .text(std::string_view(card.host).substr(0, kHostBytesMax))
      .number(card.process)
      .number(card.frame_bytes_max)
      .number(card.ring_bytes)
      .number(card.channel_count)
      .number(card.context)
      .bytes();
}

Result<Card> parse_card(std::string_view bytes) {
  const Status bad(StatusCode::corrupt_data, "sent something else than where UCX reaches it");
  ByteReader reader(bytes);
  if (reader.raw(kMagic.size()) != kMagic) return bad;
  const auto ok = reader.number<std::uint8_t>();
  if (ok > 1) return bad;
  if (ok == 0) return parse_failure(reader.rest());
  Card card;
  card.address = reader.text(kAddressBytesMax);
  card.nonce = reader.raw(kNonceBytes);
  card.host = reader.text(kHostBytesMax);
  card.process = reader.number<std::uint32_t>();
  card.frame_bytes_max = reader.number<std::uint64_t>();
  card.ring_bytes = reader.number<std::uint64_t>();
  card.channel_count = reader.number<std::uint32_t>();
  card.context = reader.number<std::uint64_t>();
  if (!reader.complete() || card.address.empty()) return bad;
  return card;
}

}  // namespace tutti::transport::ucx
