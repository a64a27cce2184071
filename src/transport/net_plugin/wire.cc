// wire.cc: see wire.hpp.
#include "transport/net_plugin/wire.hpp"

#include <algorithm>

#include "transport/bootstrap/bytes.hpp"
#include "transport/bootstrap/message.hpp"

namespace tutti::transport::net_plugin {
namespace {

constexpr std::string_view kMagic = "tuttinet";
constexpr std::string_view kHelloPurpose = "tutti net plugin 1: hello";
constexpr std::size_t kPluginBytesMax = 64;

std::string claim(const Hello& hello) {
  return ByteWriter()
      .raw(kMagic)
      .number(hello.context)
      .number(static_cast<std::int32_t>(hello.from))
      .number(static_cast<std::int32_t>(hello.to))
      .number(hello.channel)
      .bytes();
}

std::string statement(const Hello& hello, const Nonces& nonces) {
  return ByteWriter().text(claim(hello)).text(nonces.from).text(nonces.to).bytes();
}

// Most plugins leave most of a handle zero, and a card has many.
std::string_view trimmed(const Handle& handle) {
  const std::string_view all(reinterpret_cast<const char*>(handle.bytes.data()),
                             handle.bytes.size());
  return all.substr(0, all.find_last_not_of('\0') + 1);
}

}  // namespace

std::string encode_hello(const Hello& hello, const Authenticator& authenticator,
                         const Nonces& nonces) {
  return claim(hello) + authenticator.prove(kHelloPurpose, statement(hello, nonces));
}

bool genuine(std::string_view bytes, const Hello& hello, const Authenticator& authenticator,
             const Nonces& nonces) {
  if (bytes.size() != kHelloBytes) return false;
  const std::size_t claimed = kHelloBytes - kProofBytes;
  return bytes.substr(0, claimed) == claim(hello) &&
         authenticator.verify(bytes.substr(claimed), kHelloPurpose, statement(hello, nonces));
}

std::string encode_card(const Card& card) {
  ByteWriter writer;
  writer.raw(kMagic).number(static_cast<std::uint8_t>(card.status.ok()));
  if (!card.status.ok()) return writer.raw(encode_failure(card.status)).bytes();
  writer.text(std::string_view(card.plugin).substr(0, kPluginBytesMax))
      .raw(card.nonce)
      .number(card.frame_bytes_max)
      .number(card.frames)
      .number(card.channel_count)
      .number(card.context)
      .number(static_cast<std::uint32_t>(card.handles.size()));
  for (const Handle& handle : card.handles) writer.text(trimmed(handle));
  return writer.bytes();
}

Result<Card> parse_card(std::string_view bytes) {
  const Status bad(StatusCode::corrupt_data, "sent something else than where it listens");
  ByteReader reader(bytes);
  if (reader.raw(kMagic.size()) != kMagic) return bad;
  const auto ok = reader.number<std::uint8_t>();
  if (ok > 1) return bad;
  if (ok == 0) return parse_failure(reader.rest());
  Card card;
  card.plugin = reader.text(kPluginBytesMax);
  card.nonce = reader.raw(kNonceBytes);
  card.frame_bytes_max = reader.number<std::uint64_t>();
  card.frames = reader.number<std::uint64_t>();
  card.channel_count = reader.number<std::uint32_t>();
  card.context = reader.number<std::uint64_t>();
  const auto handles = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < handles && !reader.failed(); ++i) {
    const std::string_view text = reader.text(abi::kHandleBytes);
    Handle& handle = card.handles.emplace_back();
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(handle.bytes.data()));
  }
  if (!reader.complete()) return bad;
  return card;
}

}  // namespace tutti::transport::net_plugin
