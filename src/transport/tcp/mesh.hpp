// mesh.hpp: what the endpoints of one rank share: addresses, proofs, the epoll set, the first
// failure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "transport/bootstrap/authentication.hpp"
#include "transport/options.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/tcp/wire.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::tcp {

class Mesh {
 public:
  Mesh(const TransportOptions& options, Poller poller)
      : options_(options), authenticator_(options.job_secret), poller_(std::move(poller)) {}

  // Reads the cards of all ranks. Errors  name the rank.
  Status learn(const std::vector<std::string>& cards);

  const TransportOptions& options() const { return options_; }
  Poller& poller() { return poller_; }
  const SocketAddress& address(Rank rank) const {
    return addresses_[static_cast<std::size_t>(rank)];
  }

  // Room of a ring: what the options ask for, at least one frame, and headers.
  std::size_t ring_bytes() const;  // of what is sent
  std::size_t receive_ring_bytes() const;

  // How this rank opens a connection that comes from `origin`.
  Opening opening(Rank to, int channel, Purpose purpose, const SocketAddress& origin) const;
  // Reads a greeting that came from `origin`. Nothing unless it is genuine, meant for this rank,
  // and the first of its kind: a connection that is lost does not come again.
  struct Met {
    Greeting greeting;
    std::string last_words_key;
  };
  std::optional<Met> recognise(std::string_view bytes, const SocketAddress& origin);

  // While few endpoints are waited for, asking their sockets is quicker than asking epoll. Between
  // two polls this many may be asked.
  bool take_glance() {
    if (glances_ == 0) return false;
    --glances_;
    return true;
  }
  void allow_glances() { glances_ = kGlances; }

  // Whether something may be waiting to be sent: who asks looks at all endpoints only then, and
  // notes that nothing was.
  bool any_unsent() const { return any_unsent_; }
  void note_unsent() { any_unsent_ = true; }
  void note_all_sent() const { any_unsent_ = false; }

  // The first failure of any connection; sticky.
  const Status& status() const { return status_; }
  void fail(const Status& status) {
    if (status_.ok()) status_ = status;
  }

 private:
  const std::string& nonce(Rank rank) const { return nonces_[static_cast<std::size_t>(rank)]; }
  Ends ends(const Greeting& greeting, const SocketAddress& origin) const {
    return {nonce(greeting.from), nonce(greeting.to), origin.identity()};
  }

  TransportOptions options_;
  Authenticator authenticator_;
  Poller poller_;
  std::vector<SocketAddress> addresses_;
  static constexpr int kGlances = 2;

  std::vector<std::string> nonces_;
  std::set<std::tuple<Rank, int, Purpose>> met_;
  int glances_ = kGlances;
  mutable bool any_unsent_ = false;
  Status status_;
};

}  // namespace tutti::transport::tcp
