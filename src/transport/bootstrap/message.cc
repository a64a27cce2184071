// message.cc: see message.hpp.
#include "transport/bootstrap/message.hpp"

#include "base/assert.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/bytes.hpp"

namespace tutti::transport {
namespace {

constexpr std::string_view kMagic = "tutti-rv";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 5;
constexpr std::size_t kRunBytes = 8;

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
      kind > static_cast<std::uint8_t>(kMessageKindLast))
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
      .number(hello.purpose)
      .number(static_cast<std::int32_t>(hello.from))
      .number(static_cast<std::int32_t>(hello.to))
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
  const auto purpose = reader.number<std::uint8_t>();
  hello.purpose = static_cast<CallPurpose>(purpose);
  hello.from = reader.number<std::int32_t>();
  hello.to = reader.number<std::int32_t>();
  hello.size = reader.number<std::int32_t>();
  hello.nonce = reader.raw(kNonceBytes);
  hello.job = reader.text(kJobBytesMax);
  if (!reader.complete() || purpose < 1 || purpose > 2) return std::nullopt;
  return hello;
}

std::string encode_listening(const Listening& listening) {
  return ByteWriter()
      .number(static_cast<std::uint8_t>(listening.directly))
      .text(listening.host)
      .number(listening.port)
      .bytes();
}

std::optional<Listening> parse_listening(std::string_view body) {
  ByteReader reader(body);
  Listening listening;
  const auto directly = reader.number<std::uint8_t>();
  listening.directly = directly == 1;
  listening.host = reader.text(kPlaceBytesMax);
  listening.port = reader.number<std::uint16_t>();
  if (!reader.complete() || directly > 1) return std::nullopt;
  return listening;
}

std::string encode_parent(const Parent& parent) {
  return ByteWriter()
      .number(static_cast<std::int32_t>(parent.rank))
      .text(parent.host)
      .number(parent.port)
      .bytes();
}

std::optional<Parent> parse_parent(std::string_view body) {
  ByteReader reader(body);
  Parent parent;
  parent.rank = reader.number<std::int32_t>();
  parent.host = reader.text(kPlaceBytesMax);
  parent.port = reader.number<std::uint16_t>();
  if (!reader.complete()) return std::nullopt;
  return parent;
}

std::string encode_arrived(RankSet& ranks) {
  ByteWriter writer;
  for (std::size_t room = kMemberBodyBytesMax / kRunBytes; room > 0 && !ranks.empty(); --room) {
    const RankRun run = ranks.take_first_run();
    writer.number(static_cast<std::int32_t>(run.first));
    writer.number(static_cast<std::int32_t>(run.last));
  }
  return writer.bytes();
}

std::optional<std::vector<RankRun>> parse_arrived(std::string_view body, int size) {
  if (body.empty() || body.size() % kRunBytes != 0) return std::nullopt;
  ByteReader reader(body);
  std::vector<RankRun> runs;
  for (Rank least = 0; runs.size() < body.size() / kRunBytes; least = runs.back().last + 2) {
    const RankRun run{reader.number<std::int32_t>(), reader.number<std::int32_t>()};
    if (run.first < least || run.last < run.first || run.last >= size) return std::nullopt;
    runs.push_back(run);
  }
  return runs;
}

std::vector<std::string> encode_blobs(const Blobs& blobs) {
  std::vector<std::string> bodies;
  ByteWriter writer;
  const auto start = [&] { writer = ByteWriter().number(blobs.sequence).number(blobs.context); };
  start();
  const std::size_t empty = writer.bytes().size();
  for (const Blob& part : blobs.parts) {
    TUTTI_ASSERT(part.bytes.size() <= kBlobBytesMax, "an exchanged blob is too long");
    if (writer.bytes().size() + part.bytes.size() + 8 > kMemberBodyBytesMax) {
      bodies.push_back(writer.bytes());
      start();
    }
    writer.number(static_cast<std::int32_t>(part.rank)).text(part.bytes);
  }
  if (writer.bytes().size() > empty) bodies.push_back(writer.bytes());
  return bodies;
}

std::optional<Blobs> parse_blobs(std::string_view body) {
  ByteReader reader(body);
  Blobs blobs;
  blobs.sequence = reader.number<std::uint64_t>();
  blobs.context = reader.number<std::uint64_t>();
  do {
    Blob part;
    part.rank = reader.number<std::int32_t>();
    part.bytes = reader.text(kBlobBytesMax);
    blobs.parts.push_back(std::move(part));
  } while (!reader.failed() && !reader.complete());
  if (!reader.complete()) return std::nullopt;
  return blobs;
}

std::string encode_failure(const Status& status) {
  const std::string_view text = status.message();
  return ByteWriter()
      .number(static_cast<std::uint8_t>(status.code()))
      .number(static_cast<std::int32_t>(status.culprit()))
      .raw(text.substr(0, kReasonBytesMax - 8))
      .bytes();
}

Status parse_failure(std::string_view body) {
  ByteReader reader(body);
  const auto code = reader.number<std::uint8_t>();
  const auto culprit = reader.number<std::int32_t>();
  const std::string_view text = reader.rest();
  if (!reader.complete() || code == 0 || code > static_cast<std::uint8_t>(StatusCode::internal))
    return Status(StatusCode::corrupt_data, "a peer reported a failure that cannot be read");
  return Status(static_cast<StatusCode>(code), std::string(text), culprit);
}

}  // namespace tutti::transport
