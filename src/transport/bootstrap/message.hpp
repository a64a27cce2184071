// message.hpp: the messages by which the ranks of a job meet, and the parser that finds them in a
// stream of untrusted bytes.
//
// Message on the wire: u32 length of the body, u8 kind, body. Knows nothing of who says what when
// (handshake.hpp, meeting.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap/ranks.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

inline constexpr std::size_t kBlobBytesMax = 64 * 1024;
inline constexpr std::size_t kStrangerBodyBytesMax = 1024;
inline constexpr std::size_t kReasonBytesMax = 16 * 1024;  // texts, from ranks of the job only
inline constexpr std::size_t kMemberBodyBytesMax = kBlobBytesMax + 64;
inline constexpr std::size_t kJobBytesMax = 256;
inline constexpr std::size_t kPlaceBytesMax = 256;

enum class MessageKind : std::uint8_t {
  hello = 1,      // caller: who I claim to be, whom I call, what for, and my nonce
  challenge = 2,  // listener: its nonce
  proof = 3,      // caller: proves that it knows the secret
  welcome = 4,    // listener: proves the same
  ready = 5,      // down the tree: everybody has arrived
  blobs = 6,      // up: parts of an exchange; down: all of them
  failure = 7,    // both ways: why it is over
  listening = 8,  // asker to rank 0: where other ranks can reach me
  parent = 9,     // rank 0 to asker: who shall be its parent, and where that one listens
  arrived = 10,   // up: ranks that have newly arrived below me
};
inline constexpr auto kMessageKindLast = MessageKind::arrived;

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

// What a caller wants.
enum class CallPurpose : std::uint8_t {
  attach = 1,     // to be a child of the rank that it calls
  introduce = 2,  // to be told by rank 0 whose child it shall be
};

// What a caller says first.
struct Hello {
  CallPurpose purpose = CallPurpose::attach;
  Rank from = 0;
  Rank to = 0;
  int size = 0;
  std::string job;
  std::string nonce;
};

std::string encode_hello(const Hello& hello);
std::optional<Hello> parse_hello(std::string_view body);

// Where an asker listens: a numeric address. With `directly` it asks to be rank 0's own child,
// because the parent that it was given cannot be reached.
struct Listening {
  bool directly = false;
  std::string host;
  std::uint16_t port = 0;
};

std::string encode_listening(const Listening& listening);
std::optional<Listening> parse_listening(std::string_view body);

// Whose child an asker shall be: rank 0's own, by the connection that they have, or another's.
struct Parent {
  Rank rank = 0;
  std::string host;
  std::uint16_t port = 0;
};

std::string encode_parent(const Parent& parent);
std::optional<Parent> parse_parent(std::string_view body);

// Runs of ranks; as many as fit into a message. Takes them out of `ranks`.
std::string encode_arrived(RankSet& ranks);
// Nothing unless the runs are in order, apart from each other and below `size`.
std::optional<std::vector<RankRun>> parse_arrived(std::string_view body, int size);

// Some ranks' parts of the exchange `sequence` of `context`.
struct Blob {
  Rank rank = 0;
  std::string bytes;
};
struct Blobs {
  std::uint64_t sequence = 0;
  std::uint64_t context = 0;
  std::vector<Blob> parts;
};

// The bodies of as few messages as hold all parts. Requires  no part exceeds kBlobBytesMax.
std::vector<std::string> encode_blobs(const Blobs& blobs);
std::optional<Blobs> parse_blobs(std::string_view body);

// A Status on the wire. An unknown code or an ok reads as corrupt_data.
std::string encode_failure(const Status& status);
Status parse_failure(std::string_view body);

}  // namespace tutti::transport
