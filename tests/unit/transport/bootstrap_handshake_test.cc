// bootstrap_handshake_test.cc: handshakes of the rendezvous that were forged, replayed, reflected,
// downgraded or truncated, against both sides of it. None gets in, and none disturbs.
#include "transport/bootstrap/handshake.hpp"

#include <gtest/gtest.h>

#include <random>

#include "transport/bootstrap/bytes.hpp"
#include "transport/bootstrap/meeting.hpp"

namespace tutti::transport {
namespace {

#if defined(TUTTI_SANITIZED)
constexpr int kAttacks = 5'000;
#else
constexpr int kAttacks = 100'000;
#endif

constexpr int kSize = 8;

class Attack : public testing::Test {
 protected:
  std::string nonce() {
    std::string made(kNonceBytes, '\0');
    for (char& each : made) each = static_cast<char>(random_());
    return made;
  }
  NonceSource nonces() {
    return [this] { return nonce(); };
  }
  std::string junk(std::size_t bytes) {
    std::string made(bytes, '\0');
    for (char& each : made) each = static_cast<char>(random_());
    return made;
  }
  Meeting meeting(Rank rank, const std::string& secret = "s3cret") {
    return Meeting({rank, kSize, "job", "zero:1"}, Authenticator(secret), nonces(),
                   ParentSearch(rank, true, 0));
  }
  // The bodies of what `from` has to say, taken from it.
  static std::vector<Message> take(Meeting& from, int id) {
    MessageParser parser(kMemberBodyBytesMax);
    while (!from.outgoing(id).empty()) {
      const std::string bytes(from.outgoing(id));
      parser.append(bytes);
      from.sent(id, bytes.size());
    }
    std::vector<Message> said;
    for (auto next = parser.next(); next.ok() && *next; next = parser.next())
      said.push_back(std::move(**next));
    return said;
  }
  // One of the last few, so that attacks mix what belongs to different conversations.
  static std::string pick(const std::vector<std::string>& from, std::uint64_t which) {
    return from.empty() ? std::string() : from[which % from.size()];
  }

  // A genuine conversation between rank 2 and rank 0, as somebody on the wire hears it.
  struct Recorded {
    std::string hello, challenge, proof, welcome;
  };
  Recorded record(Rank from, Rank to, CallPurpose purpose) {
    const Authenticator authenticator("s3cret");
    CallerHandshake caller(Hello{purpose, from, to, kSize, "job", nonce()});
    ListenerHandshake listener;
    Recorded recorded;
    recorded.hello = encode_hello(caller.hello());
    EXPECT_TRUE(listener.hear(recorded.hello, nonces()));
    recorded.challenge = listener.challenge();
    recorded.proof = caller.prove(recorded.challenge, authenticator).value();
    EXPECT_TRUE(listener.accepts(recorded.proof, authenticator));
    recorded.welcome = listener.welcome(authenticator);
    EXPECT_TRUE(caller.accepts(recorded.welcome, authenticator));
    return recorded;
  }

  std::mt19937_64 random_{20};
};

TEST_F(Attack, AnHonestConversationIsAccepted) {
  Meeting zero = meeting(0);
  Meeting one = meeting(1);
  one.tick(0);
  zero.accepted(5, "origin");
  one.called(5, one.next_call().value(), {});
  for (int turn = 0; turn < 3; ++turn) {
    for (const Message& each : take(one, 5)) zero.received(5, encode_message(each.kind, each.body));
    for (const Message& each : take(zero, 5)) one.received(5, encode_message(each.kind, each.body));
  }
  EXPECT_EQ(zero.degree(), 1U);
  EXPECT_TRUE(one.attached());
}

// Against the side that is called. What an attacker has: everything that was ever on the wire, a
// secret of its own, and a rank that it can make talk to itself.
TEST_F(Attack, NoFalseCallerGetsIn) {
  std::vector<Recorded> heard;
  for (int i = 0; i < 64; ++i)
    heard.push_back(record(1 + static_cast<Rank>(random_() % 7), static_cast<Rank>(random_() % 3),
                           random_() % 2 == 0 ? CallPurpose::attach : CallPurpose::introduce));
  int accepted = 0;
  Meeting target = meeting(2);
  for (int i = 0; i < kAttacks; ++i) {
    const Recorded& past = heard[random_() % heard.size()];
    const Recorded& other = heard[random_() % heard.size()];
    target.accepted(i, "attacker");
    Hello hello = parse_hello(past.hello).value();
    std::string proof;
    std::string greeting = past.hello;
    switch (i % 8) {
      case 0:  // replayed
        proof = past.proof;
        break;
      case 1:  // forged with another secret, for the right rank
        hello.to = 2;
        greeting = encode_hello(hello);
        break;
      case 2:  // another conversation's proof, or the other side's
        hello.to = 2;
        greeting = encode_hello(hello);
        proof = random_() % 2 == 0 ? other.proof : past.welcome;
        break;
      case 3:  // downgraded: an older version, no purpose, no proof, no handshake at all
        greeting[random_() % 2 == 0 ? 8 : 12] = static_cast<char>(random_() % 2 == 0 ? 1 : 0);
        break;
      case 4:  // truncated
        greeting.resize(random_() % greeting.size());
        break;
      case 5:  // junk
        greeting = junk(random_() % 200);
        break;
      case 6:
        proof = junk(random_() % 2 == 0 ? kProofBytes : random_() % 64);
        break;
      default:
        proof = std::string(kProofBytes, '\0');
    }
    target.received(i, encode_message(MessageKind::hello, greeting));
    for (const Message& each : take(target, i)) {
      if (i % 8 != 1) continue;
      CallerHandshake forger(hello);
      proof = forger.prove(each.body, Authenticator(i % 2 == 0 ? "" : "guess")).value_or("");
    }
    if (i % 8 == 4) proof = past.proof.substr(0, random_() % kProofBytes);
    target.received(i,
                    encode_message(i % 16 == 3 ? MessageKind::blobs : MessageKind::proof, proof));
    target.received(i, encode_message(MessageKind::arrived, std::string(8, '\3')));
    if (target.degree() != 0 || target.introductions() != 0 || !target.status().ok()) ++accepted;
    target.closed(i);
  }
  std::printf("%d false callers, %d accepted\n", kAttacks, accepted);
  EXPECT_EQ(accepted, 0);
  EXPECT_EQ(target.turned_away(), static_cast<std::size_t>(kAttacks));
}

// A rank is made to prove itself to itself, or to another rank than the one that it calls.
TEST_F(Attack, WhatIsReflectedOrLedAstrayIsRefused) {
  int accepted = 0;
  const int attacks = kAttacks / 10;
  for (int i = 0; i < attacks; ++i) {
    Meeting caller = meeting(2);
    Meeting elsewhere = meeting(i % 2 == 0 ? 2 : 1);
    Meeting& listener = i % 3 == 0 ? caller : elsewhere;
    caller.tick(0);
    caller.called(1, caller.next_call().value(), {});  // it wants rank 0
    listener.accepted(9, "attacker");
    for (int turn = 0; turn < 3; ++turn) {
      for (const Message& each : take(caller, 1))
        listener.received(9, encode_message(each.kind, each.body));
      for (const Message& each : take(listener, 9)) {
        // Also as if it were a welcome of rank 0.
        const bool turned = turn == 1 && i % 5 == 0;
        caller.received(1, encode_message(turned ? MessageKind::welcome : each.kind, each.body));
      }
    }
    if (listener.degree() != 0 || !listener.status().ok()) ++accepted;
  }
  std::printf("%d reflections and detours, %d accepted\n", attacks, accepted);
  EXPECT_EQ(accepted, 0);
}

// Against the side that calls: whoever answers in the place of its parent.
TEST_F(Attack, NoFalseListenerIsBelieved) {
  std::vector<Recorded> heard;
  for (int i = 0; i < 64; ++i) heard.push_back(record(2, 0, CallPurpose::attach));
  int accepted = 0;
  for (int i = 0; i < kAttacks; ++i) {
    const Recorded& past = heard[random_() % heard.size()];
    Meeting target = meeting(2);
    target.tick(0);
    target.called(1, target.next_call().value(), {});
    const std::string hello = take(target, 1).front().body;
    ListenerHandshake forger;
    forger.hear(hello, nonces());
    const std::string challenge = i % 8 == 0 ? past.challenge : forger.challenge();
    target.received(1, encode_message(MessageKind::challenge, challenge));
    std::string proof;
    for (const Message& each : take(target, 1)) proof = each.body;
    std::string welcome = past.welcome;                                         // replayed
    if (i % 8 == 1) welcome = proof;                                            // reflected
    if (i % 8 == 2) welcome = forger.welcome(Authenticator("guess"));           // forged
    if (i % 8 == 3) welcome = forger.welcome(Authenticator(""));                // downgraded
    if (i % 8 == 4) welcome = past.welcome.substr(0, random_() % kProofBytes);  // truncated
    if (i % 8 == 5) welcome = junk(kProofBytes);
    if (i % 8 == 6) welcome = past.proof;
    // Or the handshake is left out.
    if (i % 8 != 7) target.received(1, encode_message(MessageKind::welcome, welcome));
    target.received(1, encode_message(MessageKind::ready, ""));
    if (target.attached() || target.joined()) ++accepted;
  }
  std::printf("%d false listeners, %d accepted\n", kAttacks, accepted);
  EXPECT_EQ(accepted, 0);
}

}  // namespace
}  // namespace tutti::transport
