// hub.cc: see hub.hpp.
#include "transport/bootstrap/hub.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.hpp"

namespace tutti::transport {
namespace {

constexpr std::int64_t kHandshakeMs = 5000;
constexpr std::size_t kNotesMax = 8;
constexpr std::size_t kStrangersMin = 256;

}  // namespace

RendezvousHub::RendezvousHub(int size, std::string job, Authenticator authenticator,
                             NonceSource nonces)
    : size_(size),
      job_(std::move(job)),
      authenticator_(std::move(authenticator)),
      nonces_(std::move(nonces)) {
  TUTTI_ASSERT(size_ >= 1, "a world has at least one rank");
}

void RendezvousHub::opened(ConnectionId id, std::string origin, std::int64_t now_ms) {
  const auto [place, fresh] = connections_.try_emplace(id, std::move(origin));
  TUTTI_ASSERT(fresh, "a connection was opened twice");
  place->second.opened_ms = now_ms;
}

void RendezvousHub::received(ConnectionId id, std::string_view bytes) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.parser.append(bytes);
  while (!connection.closing) {
    const auto next = connection.parser.next();
    if (!next.ok()) {
      if (connection.phase == Phase::member)
        fail(next.status().with_context(fmt::format("rank {}", connection.hello.rank)));
      connection.closing = true;  // without an answer: strangers need none
    } else if (next->has_value()) {
      handle(id, connection, **next);
    } else {
      return;
    }
  }
}

void RendezvousHub::closed(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const bool member = found->second.phase == Phase::member;
  const Rank rank = found->second.hello.rank;
  connections_.erase(found);
  if (!member) return;
  const bool still_joining = !joined();
  members_.erase(rank);
  if (!status_.ok()) return;
  if (still_joining)
    fail(Status(StatusCode::peer_lost, fmt::format("rank {} joined and then hung up", rank)));
  else if (exchanging_ && !blobs_.contains(rank))
    fail(Status(StatusCode::peer_lost, fmt::format("rank {} hung up", rank)));
  else
    lost_ = rank;
}

void RendezvousHub::tick(std::int64_t now_ms) {
  for (auto& [id, connection] : connections_)
    if (connection.phase != Phase::member && now_ms - connection.opened_ms > kHandshakeMs)
      connection.closing = true;
}

std::string_view RendezvousHub::outgoing(ConnectionId id) const {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.outgoing.empty()) return {};
  return std::string_view(*found->second.outgoing.front()).substr(found->second.front_sent);
}

void RendezvousHub::sent(ConnectionId id, std::size_t bytes) {
  Connection& connection = connections_.at(id);
  connection.front_sent += bytes;
  if (connection.front_sent < connection.outgoing.front()->size()) return;
  connection.outgoing.pop_front();
  connection.front_sent = 0;
}

bool RendezvousHub::finished(ConnectionId id) const {
  const auto found = connections_.find(id);
  return found == connections_.end() || (found->second.closing && found->second.outgoing.empty());
}

bool RendezvousHub::is_member(ConnectionId id) const {
  const auto found = connections_.find(id);
  return found != connections_.end() && found->second.phase == Phase::member;
}

bool RendezvousHub::all_sent() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const auto& each) { return each.second.outgoing.empty(); });
}

std::optional<RendezvousHub::ConnectionId> RendezvousHub::surplus_stranger() const {
  const std::size_t strangers = connections_.size() - members_.size();
  if (strangers <= std::max(kStrangersMin, 2 * static_cast<std::size_t>(size_)))
    return std::nullopt;
  std::optional<ConnectionId> oldest;
  for (const auto& [id, connection] : connections_)
    if (connection.phase != Phase::member &&
        (!oldest || connection.opened_ms < connections_.at(*oldest).opened_ms))
      oldest = id;
  return oldest;
}

void RendezvousHub::handle(ConnectionId id, Connection& connection, const Message& message) {
  if (connection.phase == Phase::stranger && message.kind == MessageKind::hello)
    return handle_hello(connection, message.body);
  if (connection.phase == Phase::challenged && message.kind == MessageKind::proof)
    return handle_proof(id, connection, message.body);
  if (connection.phase == Phase::member && message.kind == MessageKind::blob)
    return handle_blob(connection, message.body);
  if (connection.phase == Phase::member && message.kind == MessageKind::failure)
    return fail(parse_failure(message.body));
  connection.closing = true;
  if (connection.phase == Phase::member)
    fail(Status(StatusCode::corrupt_data,
                fmt::format("rank {} sent a message out of turn", connection.hello.rank)));
}

void RendezvousHub::handle_hello(Connection& connection, const std::string& body) {
  const auto hello = parse_hello(body);
  if (!hello) {
    connection.closing = true;
    return;
  }
  connection.hello = *hello;
  connection.nonce = nonces_();
  connection.phase = Phase::challenged;
  send(connection, MessageKind::challenge, connection.nonce);
}

void RendezvousHub::handle_proof(ConnectionId id, Connection& connection, const std::string& body) {
  const Hello& hello = connection.hello;
  const std::string statement = handshake_statement(hello, connection.nonce);
  if (!authenticator_.verify(body, kSpokePurpose, statement)) {
    note(fmt::format("a process at {} that calls itself rank {} has another job secret",
                     connection.origin, hello.rank));
    return refuse(connection, StatusCode::invalid_argument, "the job secrets differ");
  }
  if (hello.job != job_) {
    note(fmt::format("rank {} of another job, '{}', came from {}", hello.rank, hello.job,
                     connection.origin));
    return refuse(connection, StatusCode::mismatch,
                  fmt::format("this is job '{}', not '{}'", job_, hello.job));
  }
  // From here on it is a process of our job: what it gets wrong, waiting does not mend.
  if (hello.size != size_) {
    const Status status(StatusCode::mismatch,
                        fmt::format("rank {} was started with world size {}, rank 0 with {}",
                                    hello.rank, hello.size, size_));
    refuse(connection, status.code(), status.message());
    return fail(status);
  }
  if (hello.rank <= 0 || hello.rank >= size_ || members_.contains(hello.rank)) {
    const Status status(StatusCode::mismatch,
                        fmt::format("two processes were started as rank {} (the second at {})",
                                    hello.rank, connection.origin));
    const Status range(StatusCode::mismatch,
                       fmt::format("there is no rank {} in a world of {}", hello.rank, size_));
    const Status& why = hello.rank < 0 || hello.rank >= size_ ? range : status;
    refuse(connection, why.code(), why.message());
    return fail(why);
  }
  connection.phase = Phase::member;
  connection.parser.set_body_bytes_max(kMemberBodyBytesMax);
  members_[hello.rank] = id;
  send(connection, MessageKind::welcome, authenticator_.prove(kHubPurpose, statement));
  if (joined()) broadcast(MessageKind::ready, {});
}

void RendezvousHub::handle_blob(Connection& connection, const std::string& body) {
  const Rank rank = connection.hello.rank;
  auto blob = parse_blob(body);
  if (!blob || blob->rank != rank || blobs_.contains(rank))
    return fail(Status(StatusCode::corrupt_data,
                       fmt::format("rank {} sent a blob that makes no sense", rank)));
  blobs_[rank] = std::move(*blob);
  complete_exchange();
}

void RendezvousHub::begin_exchange(std::uint64_t context, const std::string& mine) {
  TUTTI_ASSERT(!exchanging_ && !exchanged_, "an exchange began inside another");
  if (!status_.ok()) return;
  exchanging_ = true;
  context_ = context;
  blobs_[0] = Blob{sequence_, context, 0, mine};
  if (lost_ && !blobs_.contains(*lost_))
    return fail(Status(StatusCode::peer_lost, fmt::format("rank {} hung up", *lost_)));
  complete_exchange();
}

void RendezvousHub::complete_exchange() {
  if (!exchanging_ || blobs_.size() < static_cast<std::size_t>(size_)) return;
  for (const auto& [rank, blob] : blobs_)
    if (blob.sequence != sequence_ || blob.context != context_)
      return fail(Status(StatusCode::mismatch,
                         fmt::format("rank {} is in exchange {} of context {}, rank 0 in {} of {}",
                                     rank, blob.sequence, blob.context, sequence_, context_)));
  std::vector<std::string> all;
  for (auto& [rank, blob] : blobs_) {
    broadcast(MessageKind::blob, encode_blob(blob));
    all.push_back(std::move(blob.bytes));
  }
  exchanged_ = std::move(all);
  blobs_.clear();
  exchanging_ = false;
  ++sequence_;
}

std::optional<std::vector<std::string>> RendezvousHub::take_exchanged() {
  return std::exchange(exchanged_, std::nullopt);
}

void RendezvousHub::fail(const Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  broadcast(MessageKind::failure, encode_failure(status));
  for (auto& [id, connection] : connections_) connection.closing = true;
}

void RendezvousHub::refuse(Connection& connection, StatusCode code, const std::string& text) {
  send(connection, MessageKind::failure, encode_failure(Status(code, text)));
  connection.closing = true;
}

void RendezvousHub::send(Connection& connection, MessageKind kind, std::string_view body) {
  connection.outgoing.push_back(std::make_shared<const std::string>(encode_message(kind, body)));
}

void RendezvousHub::broadcast(MessageKind kind, std::string_view body) {
  const auto message = std::make_shared<const std::string>(encode_message(kind, body));
  for (const auto& [rank, id] : members_) connections_.at(id).outgoing.push_back(message);
}

void RendezvousHub::note(const std::string& text) {
  if (notes_.size() < kNotesMax) notes_.push_back(text);
}

std::string RendezvousHub::missing() const {
  std::vector<Rank> ranks;
  for (Rank rank = 1; rank < size_; ++rank)
    if (!members_.contains(rank) || (exchanging_ && !blobs_.contains(rank))) ranks.push_back(rank);
  constexpr std::size_t kShown = 16;
  const std::size_t more = ranks.size() > kShown ? ranks.size() - kShown : 0;
  ranks.resize(ranks.size() - more);
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

std::string RendezvousHub::notes() const {
  std::string text;
  for (const std::string& each : notes_) text += "; " + each;
  return text;
}

}  // namespace tutti::transport
