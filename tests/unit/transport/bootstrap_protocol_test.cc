// bootstrap_protocol_test.cc: the rendezvous' state machines and parsers, without a socket: what
// they agree on, whom they turn away, and that no bytes from outside upset them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "transport/bootstrap/hub.hpp"
#include "transport/bootstrap/spoke.hpp"

namespace tutti::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

NonceSource counting_nonces() {
  return [count = 0]() mutable { return std::string(kNonceBytes, static_cast<char>(++count)); };
}

// A hub and spokes joined by perfect wires; connection i is spokes[i].
struct Wires {
  explicit Wires(int size, const std::string& secret = "s3cret")
      : hub(size, "job", Authenticator(secret), counting_nonces()) {}

  int add(Rank rank, int size, const std::string& secret = "s3cret",
          const std::string& job = "job") {
    const int id = static_cast<int>(spokes.size());
    spokes.emplace_back(rank, size, job, "hub:1", Authenticator(secret), counting_nonces());
    hub.opened(id, "origin", 0);
    run();
    return id;
  }

  // Moves bytes in pieces of `piece` until nothing moves.
  void run(std::size_t piece = 7) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < spokes.size(); ++i) {
        const int id = static_cast<int>(i);
        const std::string up(spokes[i].outgoing().substr(0, piece));
        if (!up.empty()) {
          spokes[i].sent(up.size());
          hub.received(id, up);
        }
        const std::string down(hub.outgoing(id).substr(0, piece));
        if (!down.empty()) {
          hub.sent(id, down.size());
          spokes[i].received(down);
        }
        moved = moved || !up.empty() || !down.empty();
      }
    }
  }

  RendezvousHub hub;
  std::vector<RendezvousSpoke> spokes;
};

TEST(Rendezvous, ThreeRanksMeetAndExchangeTwice) {
  Wires wires(3);
  wires.add(2, 3);
  EXPECT_FALSE(wires.hub.joined());
  EXPECT_EQ(wires.hub.missing(), "rank 1");
  wires.add(1, 3);
  EXPECT_TRUE(wires.hub.joined());
  for (std::uint64_t context : {0U, 7U}) {
    wires.spokes[0].begin_exchange(context, "two");
    wires.run();
    EXPECT_FALSE(wires.hub.take_exchanged());
    wires.hub.begin_exchange(context, "zero");
    wires.spokes[1].begin_exchange(context, "");
    wires.run();
    EXPECT_THAT(wires.hub.take_exchanged().value(), ElementsAre("zero", "", "two"));
    for (auto& spoke : wires.spokes)
      EXPECT_THAT(spoke.take_exchanged().value(), ElementsAre("zero", "", "two"));
  }
}

TEST(Rendezvous, AWrongSecretIsTurnedAwayAndDoesNotDisturb) {
  Wires wires(2);
  wires.add(1, 2, "guess");
  EXPECT_EQ(wires.spokes[0].status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(wires.spokes[0].status().message(), HasSubstr("rank 1"));
  EXPECT_THAT(wires.spokes[0].status().message(), HasSubstr("TUTTI_JOB_SECRET_FILE"));
  EXPECT_TRUE(wires.hub.finished(0));
  EXPECT_THAT(wires.hub.notes(), HasSubstr("rank 1 has another job secret"));
  wires.add(1, 2);
  EXPECT_TRUE(wires.hub.joined());
  EXPECT_TRUE(wires.spokes[1].joined());
}

TEST(Rendezvous, ARankChecksThatRankZeroKnowsTheSecretToo) {
  // A hub that lets everybody in: it answers the proof with a proof of another secret.
  RendezvousSpoke spoke(1, 2, "job", "hub:1", Authenticator("s3cret"), counting_nonces());
  spoke.received(encode_message(MessageKind::challenge, std::string(kNonceBytes, 'n')));
  const Hello hello{1, 2, "job", std::string(kNonceBytes, '\1')};
  const std::string statement = handshake_statement(hello, std::string(kNonceBytes, 'n'));
  spoke.received(
      encode_message(MessageKind::welcome, Authenticator("other").prove(kHubPurpose, statement)));
  EXPECT_FALSE(spoke.joined());
  EXPECT_EQ(spoke.status().code(), StatusCode::invalid_argument);
}

TEST(Rendezvous, AProofDoesNotServeForAnotherRankOrDirection) {
  const Authenticator authenticator("s3cret");
  const std::string nonce(kNonceBytes, 'n');
  const std::string one = handshake_statement({1, 4, "job", nonce}, nonce);
  const std::string two = handshake_statement({2, 4, "job", nonce}, nonce);
  const std::string proof = authenticator.prove(kSpokePurpose, one);
  EXPECT_TRUE(authenticator.verify(proof, kSpokePurpose, one));
  EXPECT_FALSE(authenticator.verify(proof, kSpokePurpose, two));
  EXPECT_FALSE(authenticator.verify(proof, kHubPurpose, one));
  EXPECT_FALSE(Authenticator("").verify(proof, kSpokePurpose, one));
}

TEST(Rendezvous, AnotherJobIsTurnedAway) {
  Wires wires(2);
  wires.add(1, 2, "s3cret", "yesterday");
  EXPECT_EQ(wires.spokes[0].status().code(), StatusCode::mismatch);
  EXPECT_TRUE(wires.hub.status().ok());
}

TEST(Rendezvous, WorldSizesThatDifferEndTheJoinForAll) {
  Wires wires(3);
  wires.add(1, 3);
  wires.add(2, 4);
  EXPECT_EQ(wires.hub.status().code(), StatusCode::mismatch);
  for (const auto& spoke : wires.spokes)
    EXPECT_THAT(spoke.status().message(),
                HasSubstr("rank 2 was started with world size 4, rank 0 with 3"));
}

TEST(Rendezvous, TwoProcessesOfOneRankEndTheJoin) {
  for (const Rank twice : {0, 1}) {
    Wires wires(3);
    wires.add(1, 3);
    wires.add(twice, 3);
    EXPECT_EQ(wires.hub.status().code(), StatusCode::mismatch);
    for (const auto& spoke : wires.spokes)
      EXPECT_THAT(spoke.status().message(),
                  HasSubstr("two processes were started as rank " + std::to_string(twice)));
  }
}

TEST(Rendezvous, ARankThatHangsUpIsNamedToTheOthers) {
  Wires wires(3);
  wires.add(1, 3);
  wires.add(2, 3);
  wires.spokes[0].begin_exchange(0, "one");
  wires.hub.begin_exchange(0, "zero");
  wires.run();
  wires.hub.closed(1);
  wires.run();
  EXPECT_EQ(wires.spokes[0].status(), Status(StatusCode::peer_lost, "rank 2 hung up"));
  EXPECT_EQ(wires.hub.status(), Status(StatusCode::peer_lost, "rank 2 hung up"));
}

TEST(Rendezvous, ExchangesOfDifferentContextsAreAMismatch) {
  Wires wires(2);
  wires.add(1, 2);
  wires.spokes[0].begin_exchange(5, "one");
  wires.hub.begin_exchange(6, "zero");
  wires.run();
  EXPECT_EQ(wires.hub.status().code(), StatusCode::mismatch);
  EXPECT_EQ(wires.spokes[0].status().code(), StatusCode::mismatch);
}

TEST(Rendezvous, StrangersThatDawdleAreDroppedAndCountedOut) {
  Wires wires(2);
  for (int id = 100; id < 357; ++id) wires.hub.opened(id, "scanner", id);
  EXPECT_EQ(wires.hub.surplus_stranger(), 100);
  wires.hub.closed(100);
  EXPECT_EQ(wires.hub.surplus_stranger(), std::nullopt);
  wires.hub.tick(5105);
  EXPECT_TRUE(wires.hub.finished(104));
  EXPECT_FALSE(wires.hub.finished(105));
}

TEST(MessageParser, FindsMessagesHoweverTheStreamIsCut) {
  const std::string stream = encode_message(MessageKind::challenge, "abc") +
                             encode_message(MessageKind::ready, "") +
                             encode_message(MessageKind::blob, std::string(1000, 'x'));
  for (std::size_t piece = 1; piece < stream.size(); piece += 13) {
    MessageParser parser(1000);
    std::vector<std::size_t> sizes;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      parser.append(std::string_view(stream).substr(at, piece));
      for (auto next = parser.next(); next.ok() && *next; next = parser.next())
        sizes.push_back((*next)->body.size());
    }
    EXPECT_THAT(sizes, ElementsAre(3, 0, 1000)) << piece;
  }
}

TEST(MessageParser, RefusesWhatIsTooLongOrUnknownBeforeItArrives) {
  MessageParser parser(1000);
  parser.append(encode_message(MessageKind::blob, std::string(1001, 'x')).substr(0, 5));
  EXPECT_EQ(parser.next().status().code(), StatusCode::corrupt_data);
  MessageParser other(1000);
  other.append(std::string(5, '\0'));
  EXPECT_EQ(other.next().status().code(), StatusCode::corrupt_data);
}

TEST(Messages, TruncatedOrPaddedOnesDoNotParse) {
  const std::string hello = encode_hello({3, 8, "job", std::string(kNonceBytes, 'n')});
  ASSERT_TRUE(parse_hello(hello));
  EXPECT_EQ(parse_hello(hello)->rank, 3);
  EXPECT_FALSE(parse_hello(hello + "x"));
  for (std::size_t bytes = 0; bytes < hello.size(); ++bytes)
    EXPECT_FALSE(parse_hello(hello.substr(0, bytes)));
  EXPECT_FALSE(parse_blob("short"));
  EXPECT_FALSE(parse_blob(std::string(20 + kBlobBytesMax + 1, 'x')));
  EXPECT_EQ(parse_failure("").code(), StatusCode::corrupt_data);
  EXPECT_EQ(parse_failure(std::string(1, '\0')).code(), StatusCode::corrupt_data);
}

// Random bytes, and a valid conversation with random bytes changed: the hub never dies, a stranger
// never becomes a member, and a rank that knows the secret still gets in afterwards.
TEST(Rendezvous, NoBytesFromAStrangerDisturbTheJoin) {
  std::mt19937_64 random(42);
  Wires wires(2);
  const std::string honest =
      encode_message(MessageKind::hello, encode_hello({1, 2, "job", std::string(32, 'n')})) +
      encode_message(MessageKind::proof, std::string(kProofBytes, 'p')) +
      encode_message(MessageKind::blob, encode_blob({0, 0, 1, "blob"}));
  for (int id = 1000; id < 6000; ++id) {
    std::string bytes = honest;
    if (id % 2 == 0) {
      bytes.resize(random() % 200);
      for (char& each : bytes) each = static_cast<char>(random());
    } else {
      for (int change = 0; change < id % 5; ++change)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      bytes.resize(random() % (bytes.size() + 1));
    }
    wires.hub.opened(id, "stranger", 0);
    wires.hub.received(id, bytes);
    EXPECT_FALSE(wires.hub.is_member(id));
    wires.hub.closed(id);
    ASSERT_TRUE(wires.hub.status().ok());
  }
  wires.add(1, 2);
  EXPECT_TRUE(wires.hub.joined());
}

TEST(Rendezvous, NoBytesFromAFalseRankZeroGetPastARank) {
  std::mt19937_64 random(43);
  for (int round = 0; round < 5000; ++round) {
    RendezvousSpoke spoke(1, 2, "job", "hub:1", Authenticator("s3cret"), counting_nonces());
    std::string bytes = encode_message(MessageKind::challenge, std::string(kNonceBytes, 'n')) +
                        encode_message(MessageKind::welcome, std::string(kProofBytes, 'p')) +
                        encode_message(MessageKind::ready, "");
    for (int change = 0; change < round % 7; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    spoke.received(bytes);
    EXPECT_FALSE(spoke.joined());
  }
}

}  // namespace
}  // namespace tutti::transport
