// The rendezvous of a job, attacked from both ends: strangers and members send rank 0 what they
// like, and what a rank takes for rank 0 sends it what it likes. Inputs are scripts of events;
// some events are honest steps, made with the secret, so that the attack reaches every phase.
//
// Beyond not crashing: nobody becomes a member, and no hub is trusted, without a proof of the
// secret; failures are sticky and have a reason; a finished exchange has one blob for each rank;
// answers are bounded.
#include <optional>
#include <set>

#include "fuzz.hpp"
#include "transport/bootstrap/hub.hpp"
#include "transport/bootstrap/spoke.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport;

constexpr int kSize = 3;
constexpr int kConnections = 4;
constexpr std::size_t kEventsMax = 64;

const Authenticator& secret() {
  static const Authenticator authenticator("s3cret");
  return authenticator;
}

NonceSource counting_nonces() {
  return [count = 0]() mutable { return std::string(kNonceBytes, static_cast<char>(++count)); };
}

enum Event { open, raw, message, honest_hello, honest_proof, honest_blob, close, tick, exchange };
constexpr int kEventKinds = 9;

MessageKind some_kind(Decisions& decisions) {
  return static_cast<MessageKind>(1 + decisions.number<std::uint8_t>() % 7);
}

// Rank 0 and what connects to it.
class HubWorld {
 public:
  HubWorld() : hub_(kSize, "job", secret(), counting_nonces()) {}

  void event(int kind, Decisions& decisions) {
    const int id = decisions.number<std::uint8_t>() % kConnections;
    if (kind == tick) return hub_.tick(now_ms_ += decisions.number<std::uint16_t>());
    if (kind == exchange) return begin_exchange(decisions);
    if (kind == open) return connect(id);
    if (!open_.contains(id)) return;
    if (kind == close) return disconnect(id);
    hub_.received(id, bytes(kind, id, decisions));
    drain();
  }

  void check() {
    TUTTI_ASSERT(status_.ok() || status_ == hub_.status(), "the first failure stays");
    status_ = hub_.status();
    for (const int id : open_)
      TUTTI_ASSERT(!hub_.is_member(id) || proven_.contains(id), "members have proved the secret");
    if (auto all = hub_.take_exchanged()) {
      TUTTI_ASSERT(all->size() == kSize && (*all)[0] == "mine", "an exchange has all blobs");
      exchanging_ = false;
    }
    TUTTI_ASSERT(hub_.notes().size() < 64 * 1024, "notes are bounded");
    static_cast<void>(hub_.missing());
  }

 private:
  void connect(int id) {
    if (!open_.insert(id).second) return;
    hello_[id] = {};
    hub_.opened(id, "origin", now_ms_);
  }

  void disconnect(int id) {
    hub_.closed(id);
    open_.erase(id);
    proven_.erase(id);
  }

  void begin_exchange(Decisions& decisions) {
    if (!hub_.joined() || exchanging_) return;
    exchanging_ = true;
    hub_.begin_exchange(decisions.number<std::uint8_t>() % 2, "mine");
  }

  // Takes what the hub says, as the network would; the last challenge is remembered.
  void drain() {
    for (const int id : std::set(open_)) {
      while (!hub_.outgoing(id).empty()) {
        const std::string_view answer = hub_.outgoing(id);
        if (answer.size() == 5 + kNonceBytes && answer[4] == static_cast<char>(2))
          nonce_[id] = answer.substr(5);
        hub_.sent(id, answer.size());
      }
      if (hub_.finished(id)) disconnect(id);
    }
  }

  std::string bytes(int kind, int id, Decisions& decisions) {
    switch (kind) {
      case honest_hello: {
        const Rank rank = decisions.number<std::int8_t>();
        hello_[id] = {rank, kSize, "job", std::string(kNonceBytes, 'h')};
        return encode_message(MessageKind::hello, encode_hello(hello_[id]));
      }
      case honest_proof:
        proven_.insert(id);
        return encode_message(
            MessageKind::proof,
            secret().prove(kSpokePurpose, handshake_statement(hello_[id], nonce_[id])));
      case honest_blob:
        return encode_message(
            MessageKind::blob,
            encode_blob({decisions.number<std::uint8_t>(), decisions.number<std::uint8_t>(),
                         hello_[id].rank, std::string(decisions.text())}));
      case message: {
        const MessageKind what = some_kind(decisions);
        return encode_message(what, decisions.text());
      }
      default:
        return std::string(decisions.text());
    }
  }

  RendezvousHub hub_;
  std::int64_t now_ms_ = 0;
  std::set<int> open_;
  std::set<int> proven_;
  Hello hello_[kConnections];
  std::string nonce_[kConnections];
  bool exchanging_ = false;
  Status status_;
};

// Rank 1, and somebody who answers in the place of rank 0.
class SpokeWorld {
 public:
  SpokeWorld() : spoke_(1, kSize, "job", "hub:1", secret(), counting_nonces()) {}

  void event(int kind, Decisions& decisions) {
    if (kind == close) return spoke_.closed();
    if (kind == exchange) return begin_exchange(decisions);
    spoke_.received(bytes(kind, decisions));
    if (decisions.number<std::uint8_t>() % 2 == 0) spoke_.sent(spoke_.outgoing().size());
  }

  void check() {
    TUTTI_ASSERT(status_.ok() || status_ == spoke_.status(), "the first failure stays");
    status_ = spoke_.status();
    TUTTI_ASSERT(!spoke_.joined() || welcomed_, "only a proven rank 0 is joined");
    TUTTI_ASSERT(spoke_.outgoing().size() < 128 * 1024, "answers are bounded");
    if (auto all = spoke_.take_exchanged()) {
      TUTTI_ASSERT(all->size() == kSize, "an exchange has all blobs");
      exchanging_ = false;
    }
  }

 private:
  void begin_exchange(Decisions& decisions) {
    if (!spoke_.joined() || exchanging_) return;
    exchanging_ = true;
    spoke_.begin_exchange(decisions.number<std::uint8_t>() % 2, "mine");
  }

  std::string bytes(int kind, Decisions& decisions) {
    const std::string nonce(kNonceBytes, 'h');
    const Hello hello{1, kSize, "job", std::string(kNonceBytes, '\1')};
    switch (kind) {
      case honest_hello:
        return encode_message(MessageKind::challenge, nonce);
      case honest_proof:
        welcomed_ = true;
        return encode_message(MessageKind::welcome,
                              secret().prove(kHubPurpose, handshake_statement(hello, nonce)));
      case honest_blob:
        return encode_message(
            MessageKind::blob,
            encode_blob({decisions.number<std::uint8_t>(), decisions.number<std::uint8_t>(),
                         decisions.number<std::int8_t>(), "blob"}));
      case message: {
        const MessageKind what = some_kind(decisions);
        return encode_message(what, decisions.text());
      }
      default:
        return std::string(decisions.text());
    }
  }

  RendezvousSpoke spoke_;
  bool welcomed_ = false;
  bool exchanging_ = false;
  Status status_;
};

template <typename World>
void play(Decisions decisions) {
  World world;
  for (std::size_t i = 0; i < kEventsMax && !decisions.done(); ++i) {
    const int kind = decisions.number<std::uint8_t>() % kEventKinds;
    world.event(kind, decisions);
    world.check();
  }
}

// Connections 0 and 1 join as ranks 1 and 2.
Script joined_hub() {
  Script script;
  script.byte(0);
  for (const int id : {0, 1})
    script.byte(open).byte(id).byte(honest_hello).byte(id).byte(id + 1).byte(honest_proof).byte(id);
  return script;
}

Script joined_spoke() {
  const auto ready = static_cast<int>(MessageKind::ready) - 1;
  return Script()
      .byte(1)
      .byte(honest_hello)
      .byte(0)
      .byte(honest_proof)
      .byte(0)
      .byte(message)
      .byte(ready)
      .byte(0)
      .byte(0);
}

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  const AllocationLimit limit(1024 * 1024);
  Decisions decisions(input);
  if (decisions.number<std::uint8_t>() % 2 == 0)
    play<HubWorld>(decisions);
  else
    play<SpokeWorld>(decisions);
}

std::vector<std::string> seeds() {
  const auto hub_blob = [](Script& script, int id) -> Script& {
    return script.byte(honest_blob).byte(id).byte(0).byte(0).text("blob");
  };
  Script exchanging = joined_hub().byte(exchange).byte(0).byte(0);
  Script early = joined_hub();
  Script failing = joined_hub();
  failing.byte(message).byte(0).byte(6).text(
      encode_failure(Status(StatusCode::timeout, "rank 2 is late")));
  Script spoke = joined_spoke().byte(exchange).byte(0);
  for (const int rank : {0, 1, 2}) spoke.byte(honest_blob).byte(0).byte(0).byte(rank).byte(0);
  return {hub_blob(hub_blob(exchanging, 0), 1),
          hub_blob(early, 1).byte(close).byte(1).byte(exchange).byte(0).byte(0),
          failing,
          Script().byte(0).byte(open).byte(2).byte(raw).byte(2).text("GET / HTTP/1.1\r\n\r\n"),
          Script().byte(0).byte(open).byte(1).byte(tick).byte(0).number(std::uint16_t{60'000}),
          spoke,
          joined_spoke().byte(close)};
}

}  // namespace tutti::fuzz
