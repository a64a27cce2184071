// tcp_flow_test.cc: long frames that are read where they are wanted, whatever pieces the network
// makes of them, and wherever it ends. What peers do with them is in tcp_transport_test.cc.
#include "transport/tcp/flow.hpp"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "conformance.hpp"

namespace tutti::transport::tcp {
namespace {

using conformance::expected_byte;

constexpr std::size_t kFrameMax = 4096;
constexpr std::byte kUntouched{0xee};

std::string payload_of(std::uint64_t number, std::size_t bytes) {
  std::string payload;
  for (std::size_t i = 0; i < bytes; ++i) payload += static_cast<char>(expected_byte(3, number, i));
  return payload;
}

std::string header_of(std::uint32_t bytes, std::uint32_t tag) {
  const FrameHeader header{bytes, tag};
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

// The frame of that number, which is its tag, too.
std::string frame(std::uint32_t number, std::size_t bytes) {
  return header_of(static_cast<std::uint32_t>(bytes), number) + payload_of(number, bytes) +
         std::string(padded(bytes) - bytes, '\0');
}

// A receiver, and the socket that its frames come from.
struct Wire {
  explicit Wire(bool may_move = false) {
    int pair[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    theirs = Socket(pair[1]);
    EXPECT_TRUE(receiver.attach(Socket(pair[0]), "key", kFrameMax, kFrameMax, may_move).ok());
  }
  void say(std::string_view bytes) {
    ASSERT_EQ(::send(theirs.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    receiver.on_events(EPOLLIN);
  }
  void hang_up() {
    theirs.close();
    receiver.on_events(EPOLLIN | EPOLLRDHUP);
  }
  Taken take(std::uint32_t tag, std::size_t bytes, std::size_t head = 0) {
    if (place.size() != bytes) place.assign(bytes, kUntouched);
    return receiver.take(tag, head, place, false);
  }
  bool holds(std::uint64_t number) const {
    return std::string(reinterpret_cast<const char*>(place.data()), place.size()) ==
           payload_of(number, place.size());
  }

  Socket theirs;
  FrameReceiver receiver;
  std::vector<std::byte> place;
};

// Three frames, of which the middle one is taken, cut at every byte.
TEST(TcpFlow, AFrameIsTakenWhereverTheStreamIsCut) {
  for (const std::size_t bytes : {64U, 65U, 71U}) {
    const std::string all = frame(1, 9) + frame(2, bytes) + frame(3, 30);
    for (std::size_t cut = 0; cut <= all.size(); ++cut) {
      Wire wire;
      wire.say(all.substr(0, cut));
      Frame shown;
      const auto first = [&] {
        return wire.receiver.peek(shown) || (wire.receiver.wants_to_receive() &&
                                             wire.receiver.receive() && wire.receiver.peek(shown));
      };
      const bool early = first();
      if (early) wire.receiver.release();
      const bool taken = early && wire.take(2, bytes) == Taken::frame;
      wire.say(all.substr(cut));
      if (!early) {
        ASSERT_TRUE(first()) << cut;
        wire.receiver.release();
      }
      Taken then = taken ? Taken::frame : wire.take(2, bytes);
      if (then == Taken::other) {  // all of it had been read before it was asked for
        ASSERT_TRUE(wire.receiver.peek(shown)) << cut;
        ASSERT_EQ(shown.tag, 2U);
        std::memcpy(wire.place.data(), shown.payload.data(), bytes);
        wire.receiver.release();
        then = Taken::frame;
      }
      ASSERT_EQ(then, Taken::frame) << cut;
      ASSERT_TRUE(wire.holds(2)) << cut;
      ASSERT_TRUE(first()) << cut;
      ASSERT_EQ(shown.tag, 3U);
      ASSERT_EQ(shown.payload.size(), 30U);
    }
  }
}

TEST(TcpFlow, FramesAreTakenByteByByte) {
  Wire wire;
  for (std::uint32_t number = 1; number < 20; ++number) {
    const std::size_t bytes = 40 + number;
    wire.place.clear();
    const std::string all = frame(number, bytes);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(wire.take(number, bytes), Taken::nothing) << number << " " << i;
      Frame shown;
      ASSERT_FALSE(i > kHeaderBytes && wire.receiver.peek(shown));
      wire.say(all.substr(i, 1));
    }
    ASSERT_EQ(wire.take(number, bytes), Taken::frame) << number;
    ASSERT_TRUE(wire.holds(number)) << number;
  }
}

// Its head is seen first, wherever the stream is cut, and not put where the rest goes.
TEST(TcpFlow, AFrameIsTakenBehindItsHead) {
  constexpr std::size_t kHead = 40;
  for (const std::size_t bytes : {41U, 64U, 103U}) {
    const std::size_t whole = frame(1, bytes).size();
    const std::string all = frame(1, bytes) + frame(2, 9);
    const std::string payload = payload_of(1, bytes);
    for (std::size_t cut = 0; cut <= all.size(); ++cut) {
      Wire wire;
      Frame shown;
      wire.say(all.substr(0, cut));
      const bool early = wire.receiver.peek_head(kHead, shown, false);
      ASSERT_EQ(early, cut >= kHeaderBytes + kHead) << cut;
      if (early) {
        ASSERT_EQ(shown.tag, 1U);
        ASSERT_EQ(std::memcmp(shown.payload.data(), payload.data(), kHead), 0) << cut;
      }
      ASSERT_FALSE(wire.receiver.wants_to_receive()) << "who reads ahead spoils it";
      const Taken first = wire.take(1, bytes - kHead, kHead);
      ASSERT_EQ(first == Taken::frame, cut >= whole) << cut;
      wire.say(all.substr(cut));
      const Taken then = first == Taken::frame ? first : wire.take(1, bytes - kHead, kHead);
      ASSERT_EQ(then, Taken::frame) << cut;
      ASSERT_EQ(std::memcmp(wire.place.data(), payload.data() + kHead, bytes - kHead), 0) << cut;
      while (wire.receiver.wants_to_receive()) wire.receiver.receive();
      ASSERT_TRUE(wire.receiver.peek(shown)) << cut;
      ASSERT_EQ(shown.tag, 2U);
    }
  }
}

// What is no longer than what is asked for is shown whole.
TEST(TcpFlow, TheHeadOfAShortFrameIsAllOfIt) {
  for (const std::size_t bytes : {0U, 9U, 40U}) {
    Wire wire;
    wire.say(frame(1, bytes) + frame(2, 50));
    Frame shown;
    ASSERT_TRUE(wire.receiver.peek_head(40, shown, false));
    EXPECT_EQ(shown.payload.size(), bytes);
    wire.receiver.release();
    ASSERT_TRUE(wire.receiver.peek_head(40, shown, false));
    EXPECT_EQ(shown.tag, 2U);
    EXPECT_EQ(wire.take(2, 10, 40), Taken::frame);
  }
  Wire wire;
  wire.say(header_of(kGoodbyeBytes, kGoodbyeAlone));
  Frame shown;
  EXPECT_FALSE(wire.receiver.peek_head(40, shown, false));
  EXPECT_EQ(wire.receiver.end(), End::goodbye);
}

TEST(TcpFlow, AFrameThatWasNotAskedForIsShown) {
  for (const auto& [tag, bytes] : {std::pair(7U, 100U), std::pair(8U, 99U), std::pair(7U, 0U)}) {
    Wire wire;
    wire.say(frame(tag, bytes) + frame(8, 100));
    ASSERT_EQ(wire.take(8, 100), Taken::other);
    EXPECT_EQ(wire.place, std::vector<std::byte>(100, kUntouched));
    Frame shown;
    while (wire.receiver.wants_to_receive()) wire.receiver.receive();
    ASSERT_TRUE(wire.receiver.peek(shown));
    EXPECT_EQ(shown.tag, tag);
    EXPECT_EQ(shown.payload.size(), bytes);
  }
}

// The stream ends at every byte of a frame that is being taken.
TEST(TcpFlow, WhoHangsUpWhileAFrameIsTakenIsLost) {
  const std::string all = frame(1, 100);
  for (std::size_t end = 0; end < all.size(); ++end) {
    Wire wire;
    ASSERT_EQ(wire.take(1, 100), Taken::nothing);
    wire.say(all.substr(0, end));
    ASSERT_EQ(wire.take(1, 100), Taken::nothing) << end;
    wire.hang_up();
    ASSERT_EQ(wire.take(1, 100), Taken::nothing) << end;
    EXPECT_EQ(wire.receiver.end(), End::lost) << end;
    EXPECT_EQ(wire.take(1, 100), Taken::nothing) << end;
  }
}

TEST(TcpFlow, AGoodbyeBehindAFrameThatIsTakenIsHeard) {
  Wire wire;
  ASSERT_EQ(wire.take(1, 100), Taken::nothing);
  wire.say(frame(1, 100) + header_of(kGoodbyeBytes, kGoodbyeInPair));
  EXPECT_EQ(wire.take(1, 100), Taken::frame);
  wire.hang_up();
  while (wire.receiver.wants_to_receive()) wire.receiver.receive();
  EXPECT_EQ(wire.receiver.end(), End::goodbye);
}

// Frames, the word that the sender moves, and frames on the other connection, read byte by byte.
TEST(TcpFlow, FramesAreFollowedToTheOtherConnection) {
  for (const bool early : {false, true}) {
    Wire wire(true);
    const std::string first = frame(1, 50) + header_of(kMovedBytes, 0);
    for (std::size_t i = 0; i < first.size(); ++i) wire.say(first.substr(i, 1));
    while (wire.receiver.wants_to_receive()) wire.receiver.receive();
    if (early) wire.hang_up();
    while (wire.receiver.wants_to_receive()) wire.receiver.receive();
    Frame shown;
    ASSERT_TRUE(wire.receiver.peek(shown));
    wire.receiver.release();
    EXPECT_EQ(wire.receiver.stranded(), early);
    ASSERT_FALSE(wire.receiver.peek(shown));
    EXPECT_TRUE(wire.receiver.stranded());
    EXPECT_FALSE(wire.receiver.wants_to_receive());
    EXPECT_EQ(wire.receiver.end(), End::none);
    // The way back of a connection of our own, as far as the receiver knows.
    int pair[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    const Socket mine(pair[0]);
    const Socket theirs(pair[1]);
    wire.receiver.follow(mine, false);
    const std::string second = frame(2, 60);
    for (const char byte : second) {
      EXPECT_FALSE(wire.receiver.peek(shown));
      ASSERT_EQ(::send(theirs.number(), &byte, 1, MSG_NOSIGNAL), 1);
      wire.receiver.on_events(EPOLLIN);
      while (wire.receiver.wants_to_receive()) wire.receiver.receive();
    }
    ASSERT_TRUE(wire.receiver.peek(shown));
    EXPECT_EQ(shown.tag, 2U);
    EXPECT_EQ(shown.payload.size(), 60U);
  }
}

TEST(TcpFlow, OnlyWhoMayMoveMoves) {
  Wire wire(false);
  wire.say(header_of(kMovedBytes, 0));
  while (wire.receiver.wants_to_receive()) wire.receiver.receive();
  Frame shown;
  EXPECT_FALSE(wire.receiver.peek(shown));
  EXPECT_TRUE(wire.receiver.corrupt());
}

TEST(TcpFlow, WhyOneThatMovedGaveUpIsHeard) {
  const auto failed = failed_words(Status(StatusCode::peer_lost, "gone", 3));
  for (const bool at_once : {false, true}) {
    Wire wire(true);
    const std::string words = header_of(kGoodbyeBytes, failed);
    wire.say(header_of(kMovedBytes, 0) + (at_once ? words : ""));
    while (wire.receiver.wants_to_receive()) wire.receiver.receive();
    Frame shown;
    EXPECT_FALSE(wire.receiver.peek(shown));
    if (!at_once) wire.say(words);
    wire.receiver.hear_apart();
    EXPECT_EQ(wire.receiver.failed_words(), failed);
  }
}

}  // namespace
}  // namespace tutti::transport::tcp
