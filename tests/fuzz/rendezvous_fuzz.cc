// The rendezvous of a job, attacked from all sides: strangers and children send a rank what they
// like, and so does what it takes for its parent or for rank 0. Inputs are scripts of events; some
// events are honest steps, made with the secret, so that the attack reaches every phase.
//
// Beyond not crashing: nobody becomes a neighbour without a proof of the secret; failures are
// sticky and have a reason; a finished exchange has one blob for each rank; answers are bounded.
#include <map>
#include <optional>

#include "fuzz.hpp"
#include "transport/bootstrap/meeting.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport;

constexpr int kSize = 8;
constexpr int kConnections = 4;  // of those who call; the calls of the rank itself follow
constexpr std::size_t kEventsMax = 64;

const Authenticator& secret() {
  static const Authenticator authenticator("s3cret");
  return authenticator;
}

NonceSource counting_nonces() {
  return [count = 0]() mutable { return std::string(kNonceBytes, static_cast<char>(++count)); };
}

enum Event {
  open,
  raw,
  message,
  hello,
  proof,
  blob,
  close,
  tick,
  exchange,
  call,
  challenge,
  welcome,
  arrived,
  listening,
  assign,
};
constexpr int kEventKinds = 15;

// The other end of a connection.
struct Peer {
  std::optional<CallerHandshake> caller;  // it called us
  ListenerHandshake listener;             // we called it
  std::string heard;                      // the last challenge
  bool proven = false;
};

// What it says; honest steps are made with the secret.
std::string bytes(int kind, Peer& peer, Decisions& decisions) {
  const auto number = [&] { return decisions.number<std::uint8_t>(); };
  const auto rank = [&] { return Rank{decisions.number<std::int8_t>()}; };
  switch (kind) {
    case hello: {
      const auto purpose = number() % 2 == 0 ? CallPurpose::attach : CallPurpose::introduce;
      const Rank from = rank();
      peer.caller.emplace(
          Hello{purpose, from, rank(), kSize, "job", std::string(kNonceBytes, 'h')});
      return encode_message(MessageKind::hello, encode_hello(peer.caller->hello()));
    }
    case proof: {
      const auto proof = peer.caller ? peer.caller->prove(peer.heard, secret()) : std::nullopt;
      peer.proven = peer.proven || proof.has_value();
      return encode_message(MessageKind::proof, proof.value_or(""));
    }
    case challenge:
      return encode_message(MessageKind::challenge, peer.listener.challenge());
    case welcome:
      peer.proven = peer.proven || !peer.listener.challenge().empty();
      return encode_message(MessageKind::welcome, peer.listener.welcome(secret()));
    case blob: {
      Blobs blobs{number(), number(), {}};
      for (int count = 1 + number() % 8; count > 0; --count)
        blobs.parts.push_back({rank(), "blob"});
      return encode_message(MessageKind::blobs, encode_blobs(blobs).front());
    }
    case arrived: {
      RankSet ranks;
      for (int count = 1 + number() % 4; count > 0; --count) ranks.add(Rank{number()});
      return encode_message(MessageKind::arrived, encode_arrived(ranks));
    }
    case listening:
      return encode_message(MessageKind::listening,
                            encode_listening({number() % 2 == 1, "127.0.0.1", 7}));
    case assign:
      return encode_message(MessageKind::parent, encode_parent({rank(), "::1", 7}));
    case message: {
      const auto what = 1 + number() % static_cast<int>(kMessageKindLast);
      return encode_message(static_cast<MessageKind>(what), decisions.text());
    }
    default:
      return std::string(decisions.text());
  }
}

class World {
 public:
  explicit World(Rank rank)
      : meeting_({rank, kSize, "job", "zero:1"}, secret(), counting_nonces(),
                 ParentSearch(rank, true, 50)) {}

  void event(int kind, Decisions& decisions) {
    if (kind == tick) return meeting_.tick(now_ms_ += decisions.number<std::uint16_t>());
    if (kind == exchange) return begin_exchange(decisions);
    if (kind == call) return make_call(decisions.number<std::uint8_t>() % 2 == 0);
    const int id = decisions.number<std::uint8_t>() % (kConnections + 2);
    if (kind == open) return connect(id);
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return;
    if (kind == close) return disconnect(id);
    meeting_.received(id, bytes(kind, peer->second, decisions));
    drain();
  }

  void check() {
    TUTTI_ASSERT(status_.ok() || status_ == meeting_.status(), "the first failure stays");
    status_ = meeting_.status();
    std::size_t proven = 0;
    for (const auto& [id, peer] : peers_) proven += peer.proven ? 1 : 0;
    TUTTI_ASSERT(meeting_.degree() <= proven, "neighbours have proved the secret");
    if (auto all = meeting_.take_exchanged()) {
      TUTTI_ASSERT(all->size() == kSize, "an exchange has all blobs");
      exchanging_ = false;
    }
  }

 private:
  void connect(int id) {
    if (id >= kConnections || !peers_.try_emplace(id).second) return;
    meeting_.accepted(id, "origin");
  }

  void make_call(bool reached) {
    const auto wanted = meeting_.next_call();
    if (!wanted) return;
    const int id = kConnections + (peers_.contains(kConnections) ? 1 : 0);
    if (!reached || !peers_.try_emplace(id).second)
      return meeting_.not_reached(Status(StatusCode::peer_lost, "refused"));
    meeting_.called(id, *wanted, {false, "127.0.0.1", 1});
    drain();
  }

  void disconnect(int id) {
    meeting_.closed(id);
    peers_.erase(id);
  }

  void begin_exchange(Decisions& decisions) {
    if (!meeting_.joined() || exchanging_) return;
    exchanging_ = true;
    meeting_.begin_exchange(decisions.number<std::uint8_t>() % 2, "mine");
    drain();
  }

  // Takes what the rank says, as the network would, and hears its side of the handshakes.
  void drain() {
    std::vector<int> finished;
    for (auto& [id, peer] : peers_) {
      std::size_t taken = 0;
      while (!meeting_.outgoing(id).empty()) {
        const std::string_view said = meeting_.outgoing(id);
        taken += said.size();
        const auto kind = static_cast<MessageKind>(said.size() < 5 ? 0 : said[4]);
        if (kind == MessageKind::challenge) peer.heard = said.substr(5);
        if (kind == MessageKind::hello) peer.listener.hear(said.substr(5), counting_nonces());
        meeting_.sent(id, said.size());
      }
      TUTTI_ASSERT(taken < 256 * 1024, "answers are bounded");
      if (meeting_.finished(id)) finished.push_back(id);
    }
    for (const int id : finished) disconnect(id);
  }

  Meeting meeting_;
  std::int64_t now_ms_ = 0;
  std::map<int, Peer> peers_;
  bool exchanging_ = false;
  Status status_;
};

// Ranks that attach at connections 0, 1, ...
Script attached(Rank to, const std::vector<Rank>& ranks) {
  Script script;
  script.byte(to);
  int id = 0;
  for (const Rank rank : ranks) {
    script.byte(open).byte(id).byte(hello).byte(id).byte(0).byte(rank).byte(to);
    script.byte(proof).byte(id++);
  }
  return script;
}

// All ranks at rank 0: 1, 2 with 3, 4 with 5 to 7.
Script joined_zero() {
  Script script = attached(0, {1, 2, 4});
  script.byte(arrived).byte(1).byte(0).byte(3);
  return script.byte(arrived).byte(2).byte(2).byte(5).byte(6).byte(7);
}

// Rank 2 with 3 below it, and rank 0 above it.
Script joined_two() {
  const auto ready = static_cast<int>(MessageKind::ready) - 1;
  Script script = attached(2, {3});
  script.byte(call).byte(0).byte(challenge).byte(kConnections).byte(welcome).byte(kConnections);
  return script.byte(message).byte(kConnections).byte(ready).byte(0);
}

Script& add_blobs(Script& script, int id, const std::vector<Rank>& ranks) {
  script.byte(blob).byte(id).byte(0).byte(0).byte(static_cast<int>(ranks.size()) - 1);
  for (const Rank rank : ranks) script.byte(rank);
  return script;
}

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  const AllocationLimit limit(1024 * 1024);
  Decisions decisions(input);
  World world(decisions.number<std::uint8_t>() % kSize);
  for (std::size_t i = 0; i < kEventsMax && !decisions.done(); ++i) {
    const int kind = decisions.number<std::uint8_t>() % kEventKinds;
    world.event(kind, decisions);
    world.check();
  }
}

std::vector<std::string> seeds() {
  const auto failure_kind = static_cast<int>(MessageKind::failure) - 1;
  Script exchanging = joined_zero().byte(exchange).byte(0);
  add_blobs(add_blobs(add_blobs(exchanging, 0, {1}), 1, {2, 3}), 2, {4, 5, 6, 7});
  Script early = joined_zero();
  add_blobs(early, 0, {1}).byte(close).byte(0).byte(exchange).byte(0);
  Script failing = joined_zero()
                       .byte(message)
                       .byte(0)
                       .byte(failure_kind)
                       .text(encode_failure(Status(StatusCode::timeout, "rank 2 is late")));
  Script below = joined_two().byte(exchange).byte(0);
  add_blobs(add_blobs(below, 0, {3}), kConnections, {0, 1, 2, 3, 4, 5, 6, 7});
  Script orphan = Script().byte(6).byte(call).byte(1).byte(tick).number(std::uint16_t{60});
  orphan.byte(call).byte(0).byte(challenge).byte(kConnections).byte(welcome).byte(kConnections);
  orphan.byte(assign).byte(kConnections).byte(3).byte(call).byte(0);
  Script introduced = Script().byte(0).byte(open).byte(0).byte(hello).byte(0).byte(1).byte(6);
  introduced.byte(0).byte(proof).byte(0).byte(listening).byte(0).byte(0);
  return {exchanging,
          early,
          failing,
          below,
          orphan,
          introduced,
          joined_two().byte(close).byte(kConnections),
          Script().byte(0).byte(open).byte(2).byte(raw).byte(2).text("GET / HTTP/1.1\r\n\r\n"),
          Script().byte(0).byte(open).byte(1).byte(tick).number(std::uint16_t{60'000})};
}

}  // namespace tutti::fuzz
