// bootstrap_meeting_test.cc: one rank's part of the rendezvous as a state machine, joined to others
// by perfect wires: whom it lets in, whom it turns away, and what it says when it goes wrong.
#include "transport/bootstrap/meeting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

namespace tutti::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

NonceSource counting_nonces(char start = 0) {
  return [count = start]() mutable { return std::string(kNonceBytes, ++count); };
}

constexpr Rank kNobody = -1;

// Meetings joined by wires that lose nothing. Calls go to whoever the test says is reachable.
class Wires {
 public:
  explicit Wires(int size) : size_(size) {}

  // Adds a process; it may lie about everything.
  int add(Rank rank, int size, const std::string& secret = "s3cret",
          const std::string& job = "job") {
    nodes_.push_back(std::make_unique<Meeting>(
        Meeting::Identity{rank, size, job, "zero:1"}, Authenticator(secret),
        counting_nonces(static_cast<char>(16 * nodes_.size())), ParentSearch(rank, true, 100)));
    ranks_.push_back(rank);
    nodes_.back()->tick(now_);
    return static_cast<int>(nodes_.size()) - 1;
  }
  int add(Rank rank) { return add(rank, size_); }

  Meeting& node(int index) { return *nodes_[static_cast<std::size_t>(index)]; }

  // What of a call arrives: the first process of that rank, unless it is said to be hidden.
  int find(const Call& call) const {
    if (call.where == Call::Where::local && call.to == hidden_) return kNobody;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (ranks_[i] == call.to && nodes_[i]->open()) return static_cast<int>(i);
    return kNobody;
  }
  void hide_locally(Rank rank) { hidden_ = rank; }

  // Moves bytes in pieces until nothing moves, and time by `ms` in between.
  void run(int ms = 400, std::size_t piece = 7) {
    for (const std::int64_t end = now_ + ms; now_ <= end; now_ += 5) {
      for (auto& node : nodes_) node->tick(now_);
      for (std::size_t i = 0; i < nodes_.size(); ++i) make_calls(static_cast<int>(i));
      while (move(piece)) {
      }
    }
  }
  void cut(int a, int b) {
    for (Wire& wire : wires_)
      if (wire.open && ((wire.a == a && wire.b == b) || (wire.a == b && wire.b == a)))
        hang_up(wire);
  }

 private:
  struct Wire {
    int a, b;
    bool open = true;
  };
  void make_calls(int caller) {
    while (const auto call = node(caller).next_call()) {
      const int callee = find(*call);
      if (callee == kNobody) {
        node(caller).not_reached(Status(StatusCode::peer_lost, "refused"));
        continue;
      }
      const int id = static_cast<int>(wires_.size());
      wires_.push_back({caller, callee});
      node(callee).accepted(id, "origin");
      node(caller).called(id, *call, {false, "host", static_cast<std::uint16_t>(caller)});
    }
  }
  bool move(std::size_t piece) {
    bool moved = false;
    for (std::size_t i = 0; i < wires_.size(); ++i) {
      const int id = static_cast<int>(i);
      if (!wires_[i].open) continue;
      moved = pass(id, wires_[i].a, wires_[i].b, piece) || moved;
      moved = pass(id, wires_[i].b, wires_[i].a, piece) || moved;
      if (node(wires_[i].a).finished(id) || node(wires_[i].b).finished(id)) {
        hang_up(wires_[i]);
        moved = true;
      }
    }
    return moved;
  }
  bool pass(int id, int from, int to, std::size_t piece) {
    const std::string bytes(node(from).outgoing(id).substr(0, piece));
    if (bytes.empty()) return false;
    node(from).sent(id, bytes.size());
    node(to).received(id, bytes);
    return true;
  }
  void hang_up(Wire& wire) {
    const int id = static_cast<int>(&wire - wires_.data());
    wire.open = false;
    node(wire.a).closed(id);
    node(wire.b).closed(id);
  }

  int size_;
  std::int64_t now_ = 0;
  Rank hidden_ = kNobody;
  std::vector<std::unique_ptr<Meeting>> nodes_;
  std::vector<Rank> ranks_;
  std::vector<Wire> wires_;
};

TEST(Meeting, FiveRanksMeetAndExchangeTwice) {
  Wires wires(5);
  for (const Rank rank : {3, 1, 2, 4}) wires.add(rank);
  wires.run();
  const int zero = wires.add(0);
  wires.run();
  for (int i = 0; i <= zero; ++i) EXPECT_TRUE(wires.node(i).joined());
  EXPECT_EQ(wires.node(zero).degree(), 3U);
  for (std::uint64_t context : {0U, 7U}) {
    const std::vector<std::string> blobs = {"three", "one", "", "four", "zero"};
    for (int i : {4, 0, 2, 3})
      wires.node(i).begin_exchange(context, blobs[static_cast<std::size_t>(i)]);
    wires.run();
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(wires.node(i).take_exchanged());
    wires.node(1).begin_exchange(context, blobs[1]);
    wires.run();
    for (int i = 0; i < 5; ++i)
      EXPECT_THAT(wires.node(i).take_exchanged().value(),
                  ElementsAre("zero", "one", "", "three", "four"));
  }
}

TEST(Meeting, WhoDoesNotFindItsParentIsIntroducedToOne) {
  Wires wires(8);
  wires.hide_locally(2);  // as if it were on another host
  wires.add(0);
  for (const Rank rank : {2, 1, 3, 4, 5, 6, 7}) wires.add(rank);
  wires.run();
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(wires.node(i).joined()) << i;
  EXPECT_EQ(wires.node(0).introductions(), 1U);
}

TEST(Meeting, AWrongSecretIsTurnedAwayAndDoesNotDisturb) {
  Wires wires(2);
  wires.add(0);
  wires.add(1, 2, "guess");
  wires.run();
  EXPECT_EQ(wires.node(1).status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(wires.node(1).status().message(), HasSubstr("rank 1 and rank 0 at zero:1"));
  EXPECT_THAT(wires.node(1).status().message(), HasSubstr("TUTTI_JOB_SECRET_FILE"));
  EXPECT_EQ(wires.node(0).turned_away(), 1U);
  wires.add(1);
  wires.run();
  EXPECT_TRUE(wires.node(0).joined());
  EXPECT_TRUE(wires.node(2).joined());
}

TEST(Meeting, TheTimeOutOfRankZeroNamesTheMissingAndTheStrange) {
  Wires wires(9);
  for (const Rank rank : {0, 1, 4, 7}) wires.add(rank);  // 7 has no parent but rank 0's help
  wires.add(2, 9, "guess");
  wires.run();
  wires.node(0).time_out("3 s");
  wires.run();
  for (int i : {0, 1, 2, 3}) {
    EXPECT_EQ(wires.node(i).status().code(), StatusCode::timeout);
    EXPECT_EQ(wires.node(i).status().message(),
              "ranks 2, 3, 5, 6, 8 did not arrive within 3 s; a process at origin that calls "
              "itself rank 2 has another job secret");
    EXPECT_EQ(wires.node(i).status().culprit(), 2);
  }
}

TEST(Meeting, AnotherJobIsTurnedAway) {
  Wires wires(2);
  wires.add(0);
  wires.add(1, 2, "s3cret", "yesterday");
  wires.run();
  EXPECT_EQ(wires.node(1).status().code(), StatusCode::mismatch);
  EXPECT_THAT(wires.node(1).status().message(), HasSubstr("this is job 'job', not 'yesterday'"));
  EXPECT_TRUE(wires.node(0).status().ok());
}

TEST(Meeting, WorldSizesThatDifferEndTheJoinForAll) {
  Wires wires(4);
  for (const Rank rank : {0, 1, 2}) wires.add(rank);
  wires.add(3, 5);
  wires.run();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(wires.node(i).status().code(), StatusCode::mismatch);
    EXPECT_THAT(wires.node(i).status().message(),
                HasSubstr("rank 3 was started with world size 5, rank 2 with 4"));
  }
}

TEST(Meeting, TwoProcessesOfOneRankEndTheJoin) {
  for (const Rank twice : {0, 1, 3}) {
    Wires wires(5);
    for (const Rank rank : {0, 1, 2, 3}) wires.add(rank);
    wires.run();
    const int second = wires.add(twice);
    wires.run(50);
    if (twice == 0) continue;  // two that listen; nobody sees both
    for (int i = 0; i <= second; ++i) {
      EXPECT_EQ(wires.node(i).status().code(), StatusCode::mismatch) << i << ' ' << twice;
      EXPECT_THAT(wires.node(i).status().message(),
                  HasSubstr("two processes were started as rank " + std::to_string(twice)));
    }
  }
}

TEST(Meeting, TwoProcessesOfOneRankInDifferentPlacesAreSeenAbove) {
  Wires wires(8);
  for (const Rank rank : {0, 2, 3}) wires.add(rank);
  wires.run();
  wires.hide_locally(2);  // the second 3 is on another host
  wires.add(3);
  wires.run();
  for (int i = 0; i < 4; ++i)
    EXPECT_THAT(wires.node(i).status().message(),
                HasSubstr("two processes were started as rank 3"));
}

TEST(Meeting, ARankThatHangsUpIsNamedToTheOthers) {
  Wires wires(5);
  for (const Rank rank : {0, 1, 2, 3, 4}) wires.add(rank);
  wires.run();
  for (int i : {0, 1, 2, 4}) wires.node(i).begin_exchange(0, "blob");
  wires.run();
  wires.cut(2, 3);
  wires.run();
  for (int i : {0, 1, 2, 4})
    EXPECT_EQ(wires.node(i).status(), Status(StatusCode::peer_lost, "rank 3 hung up", 3));
}

TEST(Meeting, ExchangesOfDifferentContextsAreAMismatch) {
  for (const bool early : {false, true}) {
    Wires wires(4);
    for (const Rank rank : {0, 1, 2, 3}) wires.add(rank);
    wires.run();
    if (early) wires.node(3).begin_exchange(5, "three");
    wires.run();
    for (int i : {0, 1, 2}) wires.node(i).begin_exchange(6, "other");
    if (!early) wires.node(3).begin_exchange(5, "three");
    wires.run();
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(wires.node(i).status().code(), StatusCode::mismatch);
      EXPECT_THAT(wires.node(i).status().message(),
                  HasSubstr("rank 3 is in exchange 0 of context 5, rank 2 in 0 of 6"));
    }
  }
}

TEST(Meeting, WhoTakesNoPartInAnExchangeIsNamed) {
  Wires wires(8);
  for (Rank rank = 0; rank < 8; ++rank) wires.add(rank);
  wires.run();
  for (int i : {0, 1, 2, 3, 5, 7}) wires.node(i).begin_exchange(0, "blob");
  wires.run();
  wires.node(0).time_out("3 s");
  EXPECT_EQ(wires.node(0).status().message(),
            "rank 4 did not take part in an exchange within 3 s; nothing came from ranks 5, 6, 7 "
            "behind");
}

TEST(Meeting, StrangersThatDawdleAreDroppedAndCounted) {
  Meeting zero({0, 2, "job", "zero:1"}, Authenticator("s3cret"), counting_nonces(),
               ParentSearch(0, true, 0));
  for (int id = 100; id < 357; ++id) {
    zero.tick(id);
    zero.accepted(id, "scanner");
  }
  EXPECT_EQ(zero.surplus_stranger(), 100);
  zero.closed(100);
  EXPECT_EQ(zero.surplus_stranger(), std::nullopt);
  zero.tick(5105);
  EXPECT_TRUE(zero.finished(104));
  EXPECT_FALSE(zero.finished(105));
  EXPECT_EQ(zero.turned_away(), 5U);
}

// Random bytes, and a valid conversation with random bytes changed: the meeting never dies, and a
// rank that knows the secret still gets in afterwards.
TEST(Meeting, NoBytesFromAStrangerDisturbTheJoin) {
  std::mt19937_64 random(42);
  Wires wires(2);
  Meeting& zero = wires.node(wires.add(0));
  const Hello hello{CallPurpose::attach, 1, 0, 2, "job", std::string(kNonceBytes, 'n')};
  const std::string honest =
      encode_message(MessageKind::hello, encode_hello(hello)) +
      encode_message(MessageKind::proof, std::string(kProofBytes, 'p')) +
      encode_message(MessageKind::blobs, encode_blobs({0, 0, {{1, "blob"}}}).front());
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
    zero.accepted(id, "stranger");
    zero.received(id, bytes);
    EXPECT_EQ(zero.degree(), 0U);
    zero.closed(id);
    ASSERT_TRUE(zero.status().ok());
  }
  EXPECT_EQ(zero.turned_away(), 5000U);
  wires.add(1);
  wires.run();
  EXPECT_TRUE(zero.joined());
}

TEST(Meeting, NoBytesFromAFalseRankZeroGetPastARank) {
  std::mt19937_64 random(43);
  for (int round = 0; round < 5000; ++round) {
    Meeting one({1, 2, "job", "zero:1"}, Authenticator("s3cret"), counting_nonces(),
                ParentSearch(1, true, 0));
    one.tick(0);
    one.called(1, one.next_call().value(), {});
    std::string bytes = encode_message(MessageKind::challenge, std::string(kNonceBytes, 'n')) +
                        encode_message(MessageKind::welcome, std::string(kProofBytes, 'p')) +
                        encode_message(MessageKind::ready, "");
    for (int change = 0; change < round % 7; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    one.received(1, bytes);
    EXPECT_FALSE(one.joined());
    EXPECT_FALSE(one.attached());
  }
}

TEST(ParentSearch, LooksLocallyThenAsksRankZeroAndKeepsItsWord) {
  ParentSearch search(6, true, 100);
  const Status refused(StatusCode::peer_lost, "refused");
  std::int64_t now = 0;
  auto call = search.next(now);
  int looks = 0;
  for (; call->where == Call::Where::local; ++looks) {
    EXPECT_EQ(call->to, 4);
    EXPECT_FALSE(search.next(now));  // one at a time
    search.failed(refused, now);
    now = std::max(now, search.due_ms().value());
    call = search.next(now);
  }
  EXPECT_GE(looks, 5);
  EXPECT_GE(now, 100);
  EXPECT_EQ(call->where, Call::Where::zero);
  EXPECT_EQ(call->purpose, CallPurpose::introduce);
  search.introduced();
  search.assigned({3, "host", 5}, now);
  for (int i = 0; i < 3; ++i) {
    now = search.due_ms().value();
    call = search.next(now);
    EXPECT_EQ(call->where, Call::Where::assigned);
    EXPECT_EQ(call->to, 3);
    search.failed(refused, now);
  }
  call = search.next(search.due_ms().value());
  EXPECT_EQ(call->where, Call::Where::zero);
  EXPECT_TRUE(search.directly());
}

}  // namespace
}  // namespace tutti::transport
