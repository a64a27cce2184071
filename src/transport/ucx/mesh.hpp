// mesh.hpp: what the connections of one rank share: the worker, what the others' cards say, proofs,
// who has something to say, the first failure.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/options.hpp"
#include "transport/ucx/death_watch.hpp"
#include "transport/ucx/lent_memory.hpp"
#include "transport/ucx/wire.hpp"
#include "transport/ucx/worker.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::ucx {

class UcxEndpoint;

class Mesh {
 public:
  Mesh(const TransportOptions& options, bool all_remote)
      : options_(options), all_remote_(all_remote), authenticator_(options.job_secret) {}

  // Makes the worker. `receiver` and `argument` as for Worker::make.
  Status start(const std::string& transports, ucp_am_recv_callback_t receiver, void* argument);
  Card card() const;
  // Reads the cards of all ranks. Errors  name the rank.
  Status learn(const std::vector<std::string>& cards);

  const TransportOptions& options() const { return options_; }
  Worker& worker() { return *worker_; }
  DeathWatch& watch() { return watch_; }
  LentRegions& lent() { return lent_; }
  std::size_t ring_bytes() const;

  const Card& card_of(Rank rank) const { return cards_[static_cast<std::size_t>(rank)]; }
  // Whether its death is seen through its process (death_watch.hpp), on both sides alike.
  bool is_near(Rank peer) const;
  Key key(Rank from, Rank to) const;

  // Endpoints with something to say that could not be said at once; each once.
  std::vector<UcxEndpoint*>& talkative() { return talkative_; }
  bool all_said() const { return talkative_.empty(); }

  // Messages that UCX still has, to all peers.
  std::size_t& unfinished() { return unfinished_; }
  std::size_t unfinished() const { return unfinished_; }

  // A connection has ended, and nobody has looked yet what that means.
  bool ends() const { return ends_; }
  void note_ends(bool ends) { ends_ = ends; }

  // The first failure of any connection; sticky.
  const Status& status() const { return status_; }
  void fail(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  // Before the memory that messages lie in is freed.
  void end_worker() {
    worker_.reset();
    lent_.end();
  }
  // In a child of fork(), which the worker does not belong to.
  void forget_worker() {
    lent_.keep_all();
    static_cast<void>(worker_.release());
  }

 private:
  TransportOptions options_;
  bool all_remote_;
  Authenticator authenticator_;
  std::unique_ptr<Worker> worker_;
  DeathWatch watch_;
  LentRegions lent_;
  std::string nonce_;
  std::vector<Card> cards_;
  std::vector<UcxEndpoint*> talkative_;
  std::size_t unfinished_ = 0;
  bool ends_ = false;
  Status status_;
};

}  // namespace tutti::transport::ucx
