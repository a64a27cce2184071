// mesh.hpp: what the endpoints of one rank share: the device, where the others listen, proofs, the
// first failure.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/bootstrap/authentication.hpp"
#include "transport/net_plugin/plugin.hpp"
#include "transport/net_plugin/wire.hpp"
#include "transport/options.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::net_plugin {

class Mesh {
 public:
  Mesh(const TransportOptions& options, std::unique_ptr<Device> device)
      : options_(options), authenticator_(options.job_secret), device_(std::move(device)) {}

  // Reads the cards of all ranks. Errors  name the rank.
  Status learn(const std::vector<std::string>& cards);

  const TransportOptions& options() const { return options_; }
  const Authenticator& authenticator() const { return authenticator_; }
  Device& device() { return *device_; }

  // How many frames a receiver has room for.
  std::size_t frames() const;

  // Where the peer listens for this rank.
  const Handle& handle(Rank peer, int channel) const;
  Nonces nonces(Rank from, Rank to) const { return {nonce(from), nonce(to)}; }

  // The first failure of any connection; sticky.
  const Status& status() const { return status_; }
  void fail(const Status& status) {
    if (status_.ok()) status_ = status;
  }

 private:
  const std::string& nonce(Rank rank) const { return nonces_[static_cast<std::size_t>(rank)]; }

  TransportOptions options_;
  Authenticator authenticator_;
  std::unique_ptr<Device> device_;
  std::vector<std::string> nonces_;
  std::vector<Handle> handles_;  // by peer * channel_count + channel
  Status status_;
};

}  // namespace tutti::transport::net_plugin
