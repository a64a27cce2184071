// spoke.hpp: the rendezvous as every rank but 0 sees it, as a state machine over bytes.
//
// As hub.hpp: no clock, no socket, no blocking. One Spoke is one connection; when the connection
// ends before rank 0 answered, the driver makes another and tries again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/message.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

class RendezvousSpoke {
 public:
  // `hub_name` is where rank 0 was looked for, for texts.
  RendezvousSpoke(Rank rank, int size, std::string job, std::string hub_name,
                  Authenticator authenticator, const NonceSource& nonces);

  void received(std::string_view bytes);
  void closed();

  std::string_view outgoing() const { return std::string_view(outgoing_).substr(sent_); }
  void sent(std::size_t bytes);

  bool answered() const { return phase_ != Phase::greeting; }
  bool joined() const { return phase_ == Phase::joined && status_.ok(); }

  // Starts the next all-gather. Requires  joined(), none in progress.
  void begin_exchange(std::uint64_t context, const std::string& mine);
  std::optional<std::vector<std::string>> take_exchanged();

  void fail(const Status& status);
  const Status& status() const { return status_; }

 private:
  enum class Phase { greeting, proving, welcomed, joined };
  void handle(const Message& message);
  void handle_challenge(const std::string& body);
  void handle_welcome(const std::string& body);
  void handle_blob(const std::string& body);
  void handle_failure(const std::string& body);
  Status secrets_differ() const;

  Hello hello_;
  std::string hub_name_;
  Authenticator authenticator_;
  MessageParser parser_;
  Phase phase_ = Phase::greeting;
  std::string hub_nonce_;
  std::string outgoing_;
  std::size_t sent_ = 0;
  bool exchanging_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t context_ = 0;
  std::vector<std::string> blobs_;
  Status status_;
};

}  // namespace tutti::transport
