// hub.hpp: rank 0's side of the rendezvous, as a state machine over bytes.
//
// The driver (group.cc) tells it what happened (opened, received, closed, tick) and asks what to
// send. It never blocks, reads no clock and opens no socket, so tests and simulations feed it
// anything. Strangers on the port (scanners, other programs, wrong secrets) are turned away and
// do not disturb the join; what a rank of this job gets wrong ends it, with a text for everybody.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/message.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

class RendezvousHub {
 public:
  using ConnectionId = int;

  RendezvousHub(int size, std::string job, Authenticator authenticator, NonceSource nonces);

  // What happened.
  void opened(ConnectionId id, std::string origin, std::int64_t now_ms);
  void received(ConnectionId id, std::string_view bytes);
  void closed(ConnectionId id);
  void tick(std::int64_t now_ms);  // drops strangers that dawdle

  // What to do: send outgoing(id), say how much of it was sent; close the finished ones.
  std::string_view outgoing(ConnectionId id) const;
  void sent(ConnectionId id, std::size_t bytes);
  bool finished(ConnectionId id) const;
  bool is_member(ConnectionId id) const;
  bool all_sent() const;

  // The stranger to close when too many wait; nothing while there is room.
  std::optional<ConnectionId> surplus_stranger() const;

  bool joined() const { return member_count() == size_ && status_.ok(); }

  // Starts the next all-gather. Requires  joined(), none in progress.
  void begin_exchange(std::uint64_t context, const std::string& mine);
  // The blobs by rank, once all are there.
  std::optional<std::vector<std::string>> take_exchanged();

  // Ends everything and tells every connected rank why.
  void fail(const Status& status);
  const Status& status() const { return status_; }

  // Ranks that have not arrived, or whose blob is missing: "ranks 2, 5"; with notes about what
  // was turned away.
  std::string missing() const;
  std::string notes() const;

 private:
  enum class Phase { stranger, challenged, member };
  struct Connection {
    explicit Connection(std::string where)
        : origin(std::move(where)), parser(kStrangerBodyBytesMax) {}
    std::string origin;
    MessageParser parser;
    Phase phase = Phase::stranger;
    std::int64_t opened_ms = 0;
    Hello hello;
    std::string nonce;
    std::deque<std::shared_ptr<const std::string>> outgoing;
    std::size_t front_sent = 0;
    bool closing = false;
  };

  int member_count() const { return static_cast<int>(members_.size()) + 1; }
  void handle(ConnectionId id, Connection& connection, const Message& message);
  void handle_hello(Connection& connection, const std::string& body);
  void handle_proof(ConnectionId id, Connection& connection, const std::string& body);
  void handle_blob(Connection& connection, const std::string& body);
  void refuse(Connection& connection, StatusCode code, const std::string& text);
  void send(Connection& connection, MessageKind kind, std::string_view body);
  void broadcast(MessageKind kind, std::string_view body);
  void complete_exchange();
  void note(const std::string& text);

  int size_;
  std::string job_;
  Authenticator authenticator_;
  NonceSource nonces_;
  std::map<ConnectionId, Connection> connections_;
  std::map<Rank, ConnectionId> members_;  // without rank 0
  std::map<Rank, Blob> blobs_;            // of the exchange in progress, or early ones
  bool exchanging_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t context_ = 0;
  std::optional<std::vector<std::string>> exchanged_;
  std::optional<Rank> lost_;  // hung up while nothing was expected of it
  std::vector<std::string> notes_;
  Status status_;
};

}  // namespace tutti::transport
