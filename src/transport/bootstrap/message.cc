// message.cc: see message.hpp.
#include "transport/bootstrap/message.hpp"

#include "base/assert.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/bytes.hpp"

namespace tutti::transport {
namespace {

constexpr std::string_view kMagic = "tutti-rv";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 5;

}  // namespace

std::string encode_message(MessageKind kind, std::string_view body) {
  return ByteWriter()
      .number(static_cast<std::uint32_t>(body.size()))
      .number(kind)
      .raw(body)
      .bytes();
}

Result<std::optional<Message>> MessageParser::next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() < kHeaderBytes) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    return std::optional<Message>();
  }
  ByteReader reader(rest);
  const auto bytes = reader.number<std::uint32_t>();
  const auto kind = reader.number<std::uint8_t>();
  if (bytes > body_bytes_max_ || kind < static_cast<std::uint8_t>(MessageKind::hello) ||
      kind > static_cast<std::uint8_t>(MessageKind::failure))
    return Status(StatusCode::corrupt_data, "not a message of Tutti's rendezvous");
  if (rest.size() < kHeaderBytes + bytes) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    return std::optional<Message>();
  }
  begin_ += kHeaderBytes + bytes;
  return std::optional<Message>(
      Message{static_cast<MessageKind>(kind), std::string(reader.raw(bytes))});
}

std::string encode_hello(const Hello& hello) {
  return ByteWriter()
      .raw(kMagic)
      .number(kVersion)
      .number(static_cast<std::int32_t>(hello.rank))
      .number(static_cast<std::int32_t>(hello.size))
      .raw(hello.nonce)
      .text(hello.job)
      .bytes();
}

std::optional<Hello> parse_hello(std::string_view body) {
  ByteReader reader(body);
  if (reader.raw(kMagic.size()) != kMagic) return std::nullopt;
  if (reader.number<std::uint32_t>() != kVersion) return std::nullopt;
  Hello hello;
  hello.rank = reader.number<std::int32_t>();
  hello.size = reader.number<std::int32_t>();
  hello.nonce = reader.raw(kNonceBytes);
  hello.job = reader.text(kJobBytesMax);
  if (!reader.complete()) return std::nullopt;
  return hello;
}

std::string handshake_statement(const Hello& hello, std::string_view hub_nonce) {
  return ByteWriter().text(encode_hello(hello)).text(hub_nonce).bytes();
}

std::string encode_blob(const Blob& blob) {
  TUTTI_ASSERT(blob.bytes.size() <= kBlobBytesMax, "an exchanged blob is too long");
  return ByteWriter()
      .number(blob.sequence)
      .number(blob.context)
      .number(static_cast<std::int32_t>(blob.rank))
      .raw(blob.bytes)
      .bytes();
}

std::optional<Blob> parse_blob(std::string_view body) {
  ByteReader reader(body);
  Blob blob;
  blob.sequence = reader.number<std::uint64_t>();
  blob.context = reader.number<std::uint64_t>();
  blob.rank = reader.number<std::int32_t>();
  blob.bytes = reader.rest();
  if (!reader.complete() || blob.bytes.size() > kBlobBytesMax) return std::nullopt;
  return blob;
}

std::string encode_failure(const Status& status) {
  const std::string_view text = status.message();
  return ByteWriter()
      .number(static_cast<std::uint8_t>(status.code()))
      .raw(text.substr(0, kReasonBytesMax - 1))
      .bytes();
}

Status parse_failure(std::string_view body) {
  ByteReader reader(body);
  const auto code = reader.number<std::uint8_t>();
  const std::string_view text = reader.rest();
  if (!reader.complete() || code == 0 || code > static_cast<std::uint8_t>(StatusCode::internal))
    return Status(StatusCode::corrupt_data, "a peer reported a failure that cannot be read");
  return Status(static_cast<StatusCode>(code), std::string(text));
}

}  // namespace tutti::transport
