// Anybody who reaches rank 0's port can send these bytes, before any proof.
//
// Beyond not crashing: how the bytes are cut into pieces does not matter; an error is sticky; what
// parses prints to what was read; a failure is never "ok"; memory stays within the message limit.
#include <algorithm>
#include <optional>
#include <utility>

#include "fuzz.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/message.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport;

struct Cut {
  std::vector<std::pair<MessageKind, std::string>> messages;
  bool failed = false;
};

// What a parser makes of a stream that arrives in pieces of `piece` bytes.
Cut cut(std::string_view stream, std::size_t piece, std::size_t body_bytes_max) {
  MessageParser parser(body_bytes_max);
  Cut found;
  while (!stream.empty()) {
    parser.append(stream.substr(0, piece));
    stream.remove_prefix(std::min(piece, stream.size()));
    while (!found.failed) {
      const auto next = parser.next();
      found.failed = !next.ok();
      if (!next.ok() || !next->has_value()) break;
      TUTTI_ASSERT((*next)->body.size() <= body_bytes_max, "a body is within its limit");
      found.messages.emplace_back((*next)->kind, (*next)->body);
    }
    if (found.failed) TUTTI_ASSERT(!parser.next().ok(), "an error is sticky");
  }
  return found;
}

void check_body(const std::string& body) {
  if (const auto hello = parse_hello(body)) {
    TUTTI_ASSERT(encode_hello(*hello) == body, "a greeting prints to what was read");
    TUTTI_ASSERT(hello->job.size() <= kJobBytesMax, "a job's name is within its limit");
  }
  if (const auto blob = parse_blob(body))
    TUTTI_ASSERT(encode_blob(*blob) == body, "a blob prints to what was read");
  const Status failure = parse_failure(body);
  TUTTI_ASSERT(!failure.ok(), "a failure is one");
  TUTTI_ASSERT(parse_failure(encode_failure(failure)).code() == failure.code(),
               "a failure can be passed on");
}

}  // namespace

std::size_t input_bytes_max() { return 2048; }

void run(std::string_view input) {
  Decisions decisions(input);
  const std::size_t piece = 1 + decisions.number<std::uint8_t>();
  const AllocationLimit limit(16 * input.size() + 32 * 1024);
  const Cut whole = cut(decisions.rest(), input.size() + 1, kStrangerBodyBytesMax);
  const Cut pieces = cut(decisions.rest(), piece, kStrangerBodyBytesMax);
  TUTTI_ASSERT(whole.messages == pieces.messages && whole.failed == pieces.failed,
               "pieces do not matter");
  for (const auto& [kind, body] : whole.messages) check_body(body);
  check_body(std::string(decisions.rest()));
}

std::vector<std::string> seeds() {
  const std::string nonce(kNonceBytes, 'n');
  const std::string hello = encode_hello({1, 4, "job", nonce});
  const std::string blob = encode_blob({3, 7, 2, "some bytes"});
  const std::string failure = encode_failure(Status(StatusCode::peer_lost, "rank 1 hung up"));
  const std::string stream = encode_message(MessageKind::hello, hello) +
                             encode_message(MessageKind::proof, std::string(kProofBytes, 'p')) +
                             encode_message(MessageKind::blob, blob) +
                             encode_message(MessageKind::ready, "") +
                             encode_message(MessageKind::failure, failure);
  return {"\1" + stream,
          "\6" + stream,
          "\1" + hello,
          "\1" + blob,
          "\1" + failure,
          "\1" + encode_message(MessageKind::blob, std::string(kStrangerBodyBytesMax + 1, 'x'))};
}

}  // namespace tutti::fuzz
