// bootstrap_network.hpp: a job's ranks and the network between them, simulated: bytes arrive late
// and cut anywhere, ranks start when they like, die when they are told to, and strangers call. The
// same seed gives the same world, event by event.
//
// Drives the production Meeting as group.cc does; knows no test.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/bootstrap/meeting.hpp"

namespace tutti::transport {

struct NetworkOptions {
  int size = 1;
  std::uint64_t seed = 1;
  int ranks_per_host = 1 << 20;
  bool local_names = true;
  int rounds = 2;  // exchanges
  int start_spread_ms = 200;
  int delay_ms = 5;   // at most, for a piece
  int strangers = 0;  // connections that send junk to rank 0
  std::int64_t deadline_ms = 5000;
  std::map<Rank, std::int64_t> deaths;  // when
  std::map<Rank, std::string> secrets;  // other than the job's
  std::map<Rank, int> sizes;            // other than the world's
  std::map<Rank, std::uint64_t> contexts;
  std::set<Rank> absent;
};

class Network {
 public:
  struct Node {
    std::unique_ptr<Meeting> meeting;
    bool running = false;
    bool killed = false;
    bool ended = false;
    std::int64_t start_ms = 0;
    std::int64_t ended_ms = 0;
    std::int64_t step_start_ms = 0;  // of the join, or the exchange in progress
    int round = -1;                  // -1: joining
    bool right = true;               // all exchanges brought what they should
    Status status;
    std::size_t messages_sent = 0;
    std::size_t degree = 0;
    std::optional<std::int64_t> pump_at;
  };

  explicit Network(const NetworkOptions& options) : options_(options), random_(options.seed) {
    for (Rank rank = 0; rank < options_.size; ++rank) {
      nodes_.emplace_back();
      if (options_.absent.contains(rank)) continue;
      nodes_.back().start_ms = below(options_.start_spread_ms);
      at(nodes_.back().start_ms, [this, rank] { start(rank); });
    }
    for (const auto& [rank, when] : options_.deaths) {
      const Rank who = rank;
      at(when, [this, who] { kill(who); });
    }
    for (int i = 0; i < options_.strangers; ++i)
      at(below(options_.start_spread_ms), [this] { call_as_stranger(); });
  }

  // Runs until nothing is left to happen. False when that does not come about.
  bool run() {
    for (std::size_t steps = 0; !events_.empty(); ++steps) {
      if (steps > 3'000'000) return false;
      const auto first = events_.begin();
      now_ = first->first.first;
      const std::function<void()> event = std::move(first->second);
      hash_ =
          (hash_ ^ static_cast<std::uint64_t>(now_) ^ (first->first.second << 20)) * 0x100000001b3U;
      events_.erase(first);
      event();
    }
    return true;
  }

  const Node& node(Rank rank) const { return nodes_[static_cast<std::size_t>(rank)]; }
  std::uint64_t hash() const { return hash_; }
  static std::string blob(Rank rank, int round) {
    return "blob " + std::to_string(round) + std::string(static_cast<std::size_t>(rank % 50), 'x');
  }

 private:
  static constexpr Rank kStranger = -1;
  struct Wire {
    Rank ends[2];
    std::int64_t free_at[2] = {0, 0};  // when the last piece that way arrives
    bool open = true;
  };

  int below(int limit) {
    return limit <= 0 ? 0 : static_cast<int>(random_() % static_cast<unsigned>(limit));
  }
  void at(std::int64_t when, std::function<void()> what) {
    events_.emplace(std::make_pair(when, next_event_++), std::move(what));
  }
  template <typename T>
  static T find_or(const std::map<Rank, T>& map, Rank rank, T otherwise) {
    const auto found = map.find(rank);
    return found == map.end() ? otherwise : found->second;
  }
  int host(Rank rank) const { return rank / options_.ranks_per_host; }
  Node& at_rank(Rank rank) { return nodes_[static_cast<std::size_t>(rank)]; }
  bool listens(Rank rank) {
    return rank >= 0 && rank < options_.size && at_rank(rank).running &&
           at_rank(rank).meeting->open();
  }

  // ---- A process ----

  void start(Rank rank) {
    Node& node = at_rank(rank);
    if (node.killed) return;
    const NonceSource nonces = [this] {
      std::string nonce(kNonceBytes, '\0');
      for (char& each : nonce) each = static_cast<char>(random_());
      return nonce;
    };
    node.running = true;
    node.step_start_ms = now_;
    node.meeting = std::make_unique<Meeting>(
        Meeting::Identity{rank, find_or(options_.sizes, rank, options_.size), "job", "zero:1"},
        Authenticator(secret_of(rank)), nonces, ParentSearch(rank, options_.local_names, 100));
    pump(rank);
  }

  std::string secret_of(Rank rank) const {
    return find_or<std::string>(options_.secrets, rank, "s3cret");
  }

  void kill(Rank rank) {
    Node& node = at_rank(rank);
    node.killed = true;
    if (node.running) end(rank, Status(StatusCode::internal, "killed"));
  }

  void end(Rank rank, const Status& status) {
    Node& node = at_rank(rank);
    node.degree = node.meeting->degree();
    node.running = false;
    node.ended = true;
    node.ended_ms = now_;
    node.status = status;
    for (std::size_t i = 0; i < wires_.size(); ++i)
      for (const int side : {0, 1})
        if (wires_[i].open && wires_[i].ends[side] == rank) hang_up(static_cast<int>(i), side);
  }

  // What group.cc does in a turn.
  void pump(Rank rank) {
    Node& node = at_rank(rank);
    if (!node.running) return;
    Meeting& meeting = *node.meeting;
    meeting.tick(now_);
    if (meeting.status().ok()) take_step(rank);
    if (!node.running) return;
    make_calls(rank);
    check_deadline(rank);
    send_all(rank);
    if (!meeting.status().ok() && !meeting.answering() && !meeting.awaits_more())
      return end(rank, meeting.status());
    std::int64_t next = deadline_of(rank);
    if (!meeting.status().ok()) next = now_ + 10;
    if (const auto due = meeting.due_ms()) next = std::min(next, *due);
    pump_later(rank, std::max(next, now_ + 1));
  }

  void pump_later(Rank rank, std::int64_t when) {
    Node& node = at_rank(rank);
    if (node.pump_at && *node.pump_at <= when) return;
    node.pump_at = when;
    at(when, [this, rank, when] {
      if (at_rank(rank).pump_at == when) at_rank(rank).pump_at.reset();
      pump(rank);
    });
  }

  std::int64_t deadline_of(Rank rank) {
    const bool waits_longer = rank != 0 && at_rank(rank).meeting->attached();
    return at_rank(rank).step_start_ms + options_.deadline_ms + (waits_longer ? 1000 : 0);
  }

  void check_deadline(Rank rank) {
    Node& node = at_rank(rank);
    if (!node.meeting->status().ok()) {
      // Whoever is still arriving is told for a while.
      if (!farewell_.contains(rank)) farewell_[rank] = now_ + 800;
      if (now_ >= farewell_[rank]) end(rank, node.meeting->status());
      return;
    }
    if (now_ >= deadline_of(rank)) node.meeting->time_out("5 s");
  }

  void take_step(Rank rank) {
    Node& node = at_rank(rank);
    Meeting& meeting = *node.meeting;
    if (node.round < 0 && !meeting.joined()) return;
    if (node.round >= 0) {
      const auto all = meeting.take_exchanged();
      if (!all) return;
      for (Rank of = 0; of < options_.size; ++of)
        node.right = node.right && (*all)[static_cast<std::size_t>(of)] == blob(of, node.round);
    }
    ++node.round;
    node.step_start_ms = now_;
    if (node.round == options_.rounds) {
      send_all(rank);
      return end(rank, Status());
    }
    meeting.begin_exchange(find_or<std::uint64_t>(options_.contexts, rank, 0),
                           blob(rank, node.round));
  }

  // ---- The network ----

  void make_calls(Rank rank) {
    while (const auto call = at_rank(rank).meeting->next_call()) {
      const Call wanted = *call;
      at(now_ + 1 + below(options_.delay_ms), [this, rank, wanted] { connect(rank, wanted); });
    }
  }

  void connect(Rank rank, const Call& call) {
    Node& node = at_rank(rank);
    if (!node.running) return;
    Rank callee = call.where == Call::Where::assigned ? Rank{call.port} : call.to;
    const bool local = call.where == Call::Where::local;
    if (local && (host(callee) != host(rank) || secret_of(callee) != secret_of(rank)))
      callee = kStranger;
    node.meeting->tick(now_);
    if (!listens(callee)) {
      node.meeting->not_reached(Status(StatusCode::peer_lost, "refused"));
    } else {
      const int id = add_wire(rank, callee);
      node.meeting->called(id, call, {false, "host", static_cast<std::uint16_t>(rank)});
    }
    pump(rank);
  }

  int add_wire(Rank caller, Rank callee) {
    const int id = static_cast<int>(wires_.size());
    wires_.push_back({{caller, callee}});
    at_rank(callee).meeting->accepted(id, "origin");
    pump_later(callee, now_ + 1);
    return id;
  }

  void send_all(Rank rank) {
    Meeting& meeting = *at_rank(rank).meeting;
    for (std::size_t i = 0; i < wires_.size(); ++i) {
      const int id = static_cast<int>(i);
      for (const int side : {0, 1}) {
        if (!wires_[i].open || wires_[i].ends[side] != rank) continue;
        while (!meeting.outgoing(id).empty()) {
          const std::string piece(
              meeting.outgoing(id).substr(0, 1 + random_() % (random_() % 2 == 0 ? 8 : 4096)));
          meeting.sent(id, piece.size());
          send_piece(id, side, piece);
          ++at_rank(rank).messages_sent;
        }
        if (meeting.finished(id)) {
          hang_up(id, side);
          meeting.closed(id);
        }
      }
    }
  }

  void send_piece(int id, int side, const std::string& piece) {
    Wire& wire = wires_[static_cast<std::size_t>(id)];
    std::int64_t& free_at = wire.free_at[side];
    free_at = std::max(free_at, now_ + 1 + below(options_.delay_ms));
    at(free_at, [this, id, side, piece] {
      const Rank to = wires_[static_cast<std::size_t>(id)].ends[1 - side];
      if (to == kStranger || !at_rank(to).running) return;
      at_rank(to).meeting->tick(now_);
      at_rank(to).meeting->received(id, piece);
      pump_later(to, now_);
    });
  }

  // What was sent before still arrives, unless the end is a hard one.
  void hang_up(int id, int side) {
    Wire& wire = wires_[static_cast<std::size_t>(id)];
    wire.open = false;
    at(std::max(wire.free_at[side], now_) + 1, [this, id, side] {
      const Rank to = wires_[static_cast<std::size_t>(id)].ends[1 - side];
      if (to == kStranger || !at_rank(to).running) return;
      at_rank(to).meeting->tick(now_);
      at_rank(to).meeting->closed(id);
      pump_later(to, now_);
    });
  }

  void call_as_stranger() {
    if (!listens(0)) return;
    at_rank(0).meeting->tick(now_);
    const int id = add_wire(kStranger, 0);
    std::string junk(random_() % 200, '\0');
    for (char& each : junk) each = static_cast<char>(random_());
    if (random_() % 2 == 0)
      junk = encode_message(MessageKind::hello,
                            encode_hello({CallPurpose::introduce, 1, 0, options_.size, "job",
                                          std::string(kNonceBytes, 'j')})) +
             encode_message(MessageKind::proof, junk);
    if (!junk.empty()) send_piece(id, 0, junk);
    if (random_() % 2 == 0) hang_up(id, 0);
  }

  NetworkOptions options_;
  std::mt19937_64 random_;
  std::int64_t now_ = 0;
  std::uint64_t next_event_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> events_;
  std::vector<Node> nodes_;
  std::vector<Wire> wires_;
  std::map<Rank, std::int64_t> farewell_;
};

}  // namespace tutti::transport
