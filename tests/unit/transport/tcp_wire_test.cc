// tcp_wire_test.cc: cards and greetings survive the way there and back, and nothing else does.
#include "transport/tcp/wire.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tutti::transport::tcp {
namespace {

const std::string kFrom(kNonceBytes, 'f');
const std::string kTo(kNonceBytes, 't');

Card card() {
  Card made;
  made.host = "127.0.0.1";
  made.port = 4711;
  made.nonce = kFrom;
  made.frame_bytes_max = 65536;
  made.channel_count = 4;
  made.context = 99;
  return made;
}

TEST(TcpCard, RoundTrips) {
  const Result<Card> read = parse_card(encode_card(card()));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->host, "127.0.0.1");
  EXPECT_EQ(read->port, 4711);
  EXPECT_EQ(read->nonce, kFrom);
  EXPECT_EQ(read->frame_bytes_max, 65536U);
  EXPECT_EQ(read->channel_count, 4U);
  EXPECT_EQ(read->context, 99U);
}

TEST(TcpCard, CarriesTheReasonWhyThereIsNone) {
  Card failed;
  failed.status = Status(StatusCode::system_error, "no ports left");
  EXPECT_EQ(parse_card(encode_card(failed)).status(), failed.status);
}

TEST(TcpCard, TruncatedPaddedOrRandomBytesAreNone) {
  const std::string bytes = encode_card(card());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(parse_card(bytes.substr(0, length)).ok());
  EXPECT_FALSE(parse_card(bytes + "x").ok());
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string junk = bytes;
    junk.resize(random() % 120);
    for (std::size_t i = round % 2 == 0 ? 0 : 9; i < junk.size(); ++i)
      junk[i] = static_cast<char>(random());
    const auto read = parse_card(junk);
    EXPECT_TRUE(!read.ok() || read->host.size() <= 64U);
  }
}

TEST(TcpGreeting, IsRecognisedOnlyAsWhatItIs) {
  const Authenticator authenticator("s3cret");
  const Greeting greeting{7, 2, 5, 1, Purpose::signals};
  const std::string bytes = encode_greeting(greeting, authenticator, kFrom, kTo);
  ASSERT_EQ(bytes.size(), kGreetingBytes);
  const auto read = parse_greeting(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->context, 7U);
  EXPECT_EQ(read->from, 2);
  EXPECT_EQ(read->to, 5);
  EXPECT_EQ(read->channel, 1);
  EXPECT_EQ(read->purpose, Purpose::signals);
  EXPECT_TRUE(genuine(bytes, *read, authenticator, kFrom, kTo));
  EXPECT_FALSE(genuine(bytes, *read, Authenticator("other"), kFrom, kTo));
  EXPECT_FALSE(genuine(bytes, *read, authenticator, kTo, kFrom));
}

TEST(TcpGreeting, NoChangedByteGoesUnnoticed) {
  const Authenticator authenticator("s3cret");
  const std::string bytes =
      encode_greeting({7, 2, 5, 1, Purpose::frames}, authenticator, kFrom, kTo);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    const auto read = parse_greeting(changed);
    EXPECT_FALSE(read && genuine(changed, *read, authenticator, kFrom, kTo)) << i;
    EXPECT_FALSE(parse_greeting(bytes.substr(0, i)));
  }
}

}  // namespace
}  // namespace tutti::transport::tcp
