// spoke.cc: see spoke.hpp.
#include "transport/bootstrap/spoke.hpp"

#include <fmt/format.h>

#include "base/assert.hpp"

namespace tutti::transport {

RendezvousSpoke::RendezvousSpoke(Rank rank, int size, std::string job, std::string hub_name,
                                 Authenticator authenticator, const NonceSource& nonces)
    : hello_{rank, size, std::move(job), nonces()},
      hub_name_(std::move(hub_name)),
      authenticator_(std::move(authenticator)),
      parser_(kMemberBodyBytesMax) {
  outgoing_ = encode_message(MessageKind::hello, encode_hello(hello_));
}

void RendezvousSpoke::received(std::string_view bytes) {
  parser_.append(bytes);
  while (status_.ok()) {
    const auto next = parser_.next();
    if (!next.ok())
      return fail(Status(StatusCode::corrupt_data,
                         fmt::format("what answers at {} is not rank 0 of a Tutti job; choose "
                                     "another port, or look who listens there",
                                     hub_name_)));
    if (!next->has_value()) return;
    handle(**next);
  }
}

void RendezvousSpoke::closed() {
  fail(Status(StatusCode::peer_lost, fmt::format("rank 0 at {} hung up", hub_name_)));
}

void RendezvousSpoke::sent(std::size_t bytes) {
  sent_ += bytes;
  if (sent_ < outgoing_.size()) return;
  outgoing_.clear();
  sent_ = 0;
}

void RendezvousSpoke::handle(const Message& message) {
  if (message.kind == MessageKind::failure) return handle_failure(message.body);
  if (phase_ == Phase::greeting && message.kind == MessageKind::challenge)
    return handle_challenge(message.body);
  if (phase_ == Phase::proving && message.kind == MessageKind::welcome)
    return handle_welcome(message.body);
  if (phase_ == Phase::welcomed && message.kind == MessageKind::ready) {
    phase_ = Phase::joined;
    return;
  }
  if (phase_ == Phase::joined && message.kind == MessageKind::blob)
    return handle_blob(message.body);
  fail(Status(StatusCode::corrupt_data, "rank 0 sent a message out of turn"));
}

void RendezvousSpoke::handle_challenge(const std::string& body) {
  if (body.size() != kNonceBytes)
    return fail(Status(StatusCode::corrupt_data, "rank 0 sent a challenge of a wrong length"));
  hub_nonce_ = body;
  phase_ = Phase::proving;
  const std::string statement = handshake_statement(hello_, hub_nonce_);
  outgoing_ += encode_message(MessageKind::proof, authenticator_.prove(kSpokePurpose, statement));
}

void RendezvousSpoke::handle_welcome(const std::string& body) {
  const std::string statement = handshake_statement(hello_, hub_nonce_);
  if (!authenticator_.verify(body, kHubPurpose, statement)) return fail(secrets_differ());
  phase_ = Phase::welcomed;
}

void RendezvousSpoke::handle_failure(const std::string& body) {
  const Status status = parse_failure(body);
  // Until rank 0 has proved itself, its only believable complaint is that we did not convince it.
  if (phase_ == Phase::proving && status.code() == StatusCode::invalid_argument)
    return fail(secrets_differ());
  fail(status);
}

Status RendezvousSpoke::secrets_differ() const {
  return Status(StatusCode::invalid_argument,
                fmt::format("rank {} and rank 0 at {} have different job secrets; give all ranks "
                            "the same TUTTI_JOB_SECRET_FILE (`tutti run` makes one by itself)",
                            hello_.rank, hub_name_));
}

void RendezvousSpoke::begin_exchange(std::uint64_t context, const std::string& mine) {
  TUTTI_ASSERT(!exchanging_, "an exchange began inside another");
  if (!status_.ok()) return;
  exchanging_ = true;
  context_ = context;
  blobs_.clear();
  outgoing_ +=
      encode_message(MessageKind::blob, encode_blob({sequence_, context, hello_.rank, mine}));
}

void RendezvousSpoke::handle_blob(const std::string& body) {
  auto blob = parse_blob(body);
  const bool sensible = blob && exchanging_ && blob->sequence == sequence_ &&
                        blob->context == context_ &&
                        blob->rank == static_cast<Rank>(blobs_.size()) && blob->rank < hello_.size;
  if (!sensible)
    return fail(Status(StatusCode::corrupt_data, "rank 0 sent a blob that makes no sense"));
  blobs_.push_back(std::move(blob->bytes));
}

std::optional<std::vector<std::string>> RendezvousSpoke::take_exchanged() {
  if (!exchanging_ || blobs_.size() < static_cast<std::size_t>(hello_.size)) return std::nullopt;
  exchanging_ = false;
  ++sequence_;
  return std::move(blobs_);
}

void RendezvousSpoke::fail(const Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  if (phase_ == Phase::joined)
    outgoing_ += encode_message(MessageKind::failure, encode_failure(status));
}

}  // namespace tutti::transport
