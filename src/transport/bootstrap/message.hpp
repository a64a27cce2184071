// message.hpp: the messages by which the ranks of a job meet, and the parser that finds them in a
// stream of untrusted bytes.
//
// Message on the wire: u32 length of the body, u8 kind, body. Knows nothing of who says what when
// (hub.hpp, spoke.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

inline constexpr std::size_t kBlobBytesMax = 64 * 1024;
inline constexpr std::size_t kStrangerBodyBytesMax = 1024;
inline constexpr std::size_t kReasonBytesMax = 16 * 1024;  // texts, from rank 0 only
inline constexpr std::size_t kMemberBodyBytesMax = kBlobBytesMax + 64;
inline constexpr std::size_t kJobBytesMax = 256;

enum class MessageKind : std::uint8_t {
  hello = 1,      // spoke: who I claim to be, and my nonce
  challenge = 2,  // hub: its nonce
  proof = 3,      // spoke: proves that it knows the secret
  welcome = 4,    // hub: proves the same
  ready = 5,      // hub: everybody has arrived
  blob = 6,       // both ways: one rank's part of an exchange
  failure = 7,    // both ways: why it is over
};

struct Message {
  MessageKind kind{};
  std::string body;
};

std::string encode_message(MessageKind kind, std::string_view body);

// Cuts a stream into messages, holding at most one message and what was appended last.
class MessageParser {
 public:
  explicit MessageParser(std::size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

  void append(std::string_view bytes) { buffer_.append(bytes); }

  // The next whole message, or none yet. Errors  corrupt_data for an unknown kind or a body longer
  // than allowed; sticky.
  Result<std::optional<Message>> next();

  void set_body_bytes_max(std::size_t bytes) { body_bytes_max_ = bytes; }

 private:
  std::size_t body_bytes_max_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of what was not parsed yet
};

// What a spoke says first.
struct Hello {
  Rank rank = 0;
  int size = 0;
  std::string job;
  std::string nonce;
};

std::string encode_hello(const Hello& hello);
std::optional<Hello> parse_hello(std::string_view body);

// What the proofs of both sides are about.
std::string handshake_statement(const Hello& hello, std::string_view hub_nonce);
inline constexpr std::string_view kSpokePurpose = "tutti rendezvous 1: rank to rank 0";
inline constexpr std::string_view kHubPurpose = "tutti rendezvous 1: rank 0 to rank";

// One rank's part of the exchange `sequence` of `context`.
struct Blob {
  std::uint64_t sequence = 0;
  std::uint64_t context = 0;
  Rank rank = 0;
  std::string bytes;
};

std::string encode_blob(const Blob& blob);
std::optional<Blob> parse_blob(std::string_view body);

// A Status on the wire. An unknown code or an ok reads as corrupt_data.
std::string encode_failure(const Status& status);
Status parse_failure(std::string_view body);

}  // namespace tutti::transport
