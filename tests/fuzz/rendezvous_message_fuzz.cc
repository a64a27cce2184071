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

constexpr int kSize = 1000;

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
  if (const auto blobs = parse_blobs(body); blobs && body.size() <= kMemberBodyBytesMax)
    TUTTI_ASSERT(encode_blobs(*blobs) == std::vector{body}, "blobs print to what was read");
  if (const auto listening = parse_listening(body))
    TUTTI_ASSERT(encode_listening(*listening) == body, "a place prints to what was read");
  if (const auto parent = parse_parent(body))
    TUTTI_ASSERT(encode_parent(*parent) == body, "a parent prints to what was read");
  if (const auto runs = parse_arrived(body, kSize)) {
    RankSet ranks;
    for (const RankRun& run : *runs) TUTTI_ASSERT(ranks.add(run) < 0, "runs do not overlap");
    TUTTI_ASSERT(ranks.count() <= kSize, "only ranks that can be arrive");
    TUTTI_ASSERT(encode_arrived(ranks) == body, "arrivals print to what was read");
  }
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
  const std::string hello = encode_hello({CallPurpose::attach, 1, 0, 4, "job", nonce});
  const std::string blob = encode_blobs({3, 7, {{2, "some bytes"}, {3, ""}}}).front();
  const std::string failure = encode_failure(Status(StatusCode::peer_lost, "rank 1 hung up", 1));
  const std::string listening = encode_listening({true, "127.0.0.1", 4711});
  const std::string parent = encode_parent({2, "::1", 4711});
  RankSet ranks;
  for (const Rank rank : {2, 3, 7}) ranks.add(rank);
  const std::string arrived = encode_arrived(ranks);
  const std::string stream = encode_message(MessageKind::hello, hello) +
                             encode_message(MessageKind::proof, std::string(kProofBytes, 'p')) +
                             encode_message(MessageKind::blobs, blob) +
                             encode_message(MessageKind::ready, "") +
                             encode_message(MessageKind::failure, failure);
  return {"\1" + stream,
          "\6" + stream,
          "\1" + hello,
          "\1" + blob,
          "\1" + failure,
          "\1" + listening,
          "\1" + parent,
          "\1" + arrived,
          "\1" + encode_message(MessageKind::blobs, std::string(kStrangerBodyBytesMax + 1, 'x'))};
}

}  // namespace tutti::fuzz
