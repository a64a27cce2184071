// tcp_wire_test.cc: cards and greetings survive the way there and back, and nothing else does.
#include "transport/tcp/wire.hpp"

#include <gtest/gtest.h>

#include <random>

#include "transport/tcp/mesh.hpp"

namespace tutti::transport::tcp {
namespace {

const std::string kFrom(kNonceBytes, 'f');
const std::string kTo(kNonceBytes, 't');
const Ends kEnds{kFrom, kTo, "origin"};

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
  const std::string bytes = encode_greeting(greeting, authenticator, kEnds);
  ASSERT_EQ(bytes.size(), kGreetingBytes);
  const auto read = parse_greeting(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->context, 7U);
  EXPECT_EQ(read->from, 2);
  EXPECT_EQ(read->to, 5);
  EXPECT_EQ(read->channel, 1);
  EXPECT_EQ(read->purpose, Purpose::signals);
  EXPECT_TRUE(genuine(bytes, *read, authenticator, kEnds));
  EXPECT_FALSE(genuine(bytes, *read, Authenticator("other"), kEnds));
  EXPECT_FALSE(genuine(bytes, *read, authenticator, {kTo, kFrom, "origin"}));
  EXPECT_FALSE(genuine(bytes, *read, authenticator, {kFrom, kTo, "elsewhere"}));
}

TEST(TcpGreeting, NoChangedByteGoesUnnoticed) {
  const Authenticator authenticator("s3cret");
  const std::string bytes = encode_greeting({7, 2, 5, 1, Purpose::frames}, authenticator, kEnds);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    const auto read = parse_greeting(changed);
    EXPECT_FALSE(read && genuine(changed, *read, authenticator, kEnds)) << i;
    EXPECT_FALSE(parse_greeting(bytes.substr(0, i)));
  }
}

// Whatever came before: the system copies memory from multiples of 16 quickly to such.
TEST(TcpFrames, StandAtMultiplesOfSixteenInTheStream) {
  std::size_t at = 0;
  for (std::size_t bytes = 0; bytes < 100; ++bytes) {
    EXPECT_EQ((at + kHeaderBytes) % 16, 0U) << "the payload before which " << bytes << " went";
    at += frame_span(bytes);
  }
  EXPECT_EQ(encode_last_words(kMoved, "key").size(), kLastWordsBytes);
}

TEST(TcpLastWords, OnlyTheGreetedCanSayThem) {
  const std::string words = encode_last_words(kGoodbyeFailed | 3, "key");
  ASSERT_EQ(words.size(), kLastWordsBytes);
  EXPECT_EQ(read_last_words(words, "key"), kGoodbyeFailed | 3);
  EXPECT_FALSE(read_last_words(words, "another"));
  EXPECT_FALSE(read_last_words(words + "x", "key"));
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string changed = words;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(read_last_words(changed, "key")) << i;
    EXPECT_FALSE(read_last_words(words.substr(0, i), "key"));
  }
}

#if defined(TUTTI_SANITIZED)
constexpr int kAttacks = 5'000;
#else
constexpr int kAttacks = 100'000;
#endif

// All ranks of one communicator, with a nonce for each.
Mesh mesh_of(Rank rank, char nonce, std::uint64_t context, const std::string& secret = "s3cret") {
  TransportOptions options;
  options.rank = rank;
  options.size = 4;
  options.channel_count = 2;
  options.context = context;
  options.job_secret = secret;
  Mesh mesh(options, std::move(Poller::make()).value());
  std::vector<std::string> cards;
  for (Rank each = 0; each < 4; ++each) {
    Card made = card();
    made.nonce = std::string(kNonceBytes, static_cast<char>(nonce + each));
    made.frame_bytes_max = options.frame_bytes_max;
    made.channel_count = 2;
    made.context = context;
    cards.push_back(encode_card(made));
  }
  EXPECT_TRUE(mesh.learn(cards).ok());
  return mesh;
}

SocketAddress place(int port) { return parse_address("127.0.0.1", port).value(); }

TEST(TcpGreeting, NoFalseOneIsAcceptedAndAGenuineOneOnlyOnce) {
  std::mt19937 random(21);
  Mesh target = mesh_of(2, 'a', 7);
  const Mesh peer = mesh_of(1, 'a', 7);     // its greetings are heard on the wire
  const Mesh earlier = mesh_of(1, 'k', 7);  // of an earlier communicator of the same number
  const Mesh other = mesh_of(1, 'a', 8);    // of another communicator
  const Mesh stranger = mesh_of(1, 'a', 7, "guess");
  const Mesh open = mesh_of(1, 'a', 7, "");
  const std::string genuine_one = peer.opening(2, 0, Purpose::frames, place(100)).greeting;
  ASSERT_TRUE(target.recognise(genuine_one, place(100)));
  int accepted = 0;
  for (int i = 0; i < kAttacks; ++i) {
    const auto channel = static_cast<int>(random() % 2);
    const Purpose purpose = random() % 2 == 0 ? Purpose::frames : Purpose::signals;
    std::string heard = peer.opening(2, channel, purpose, place(101)).greeting;
    SocketAddress from = place(102);  // not where it was said
    switch (i % 10) {
      case 0:  // replayed from the very same place
        heard = genuine_one;
        from = place(100);
        break;
      case 1:  // sent back to who said it, or to a third
        heard = target.opening(1 + 2 * channel, channel, purpose, place(102)).greeting;
        break;
      case 2:
        heard = earlier.opening(2, channel, purpose, from).greeting;
        break;
      case 3:
        heard = other.opening(2, channel, purpose, from).greeting;
        break;
      case 4:
        heard = stranger.opening(2, channel, purpose, from).greeting;
        break;
      case 5:  // downgraded: as if there were no secret
        heard = open.opening(2, channel, purpose, from).greeting;
        break;
      case 6:  // truncated
        heard.resize(random() % heard.size());
        from = place(101);
        break;
      case 7:  // changed
        heard[random() % heard.size()] ^= static_cast<char>(1 << random() % 8);
        from = place(101);
        break;
      case 8:
        for (char& each : heard) each = static_cast<char>(random());
        break;
      default:  // replayed from elsewhere
        break;
    }
    if (target.recognise(heard, from)) ++accepted;
  }
  std::printf("%d false greetings, %d accepted\n", kAttacks, accepted);
  EXPECT_EQ(accepted, 0);
  EXPECT_TRUE(target.recognise(peer.opening(2, 1, Purpose::frames, place(9)).greeting, place(9)));
}

TEST(TcpLastWords, NoFalseOnesAreBelieved) {
  std::mt19937 random(22);
  Mesh target = mesh_of(2, 'a', 7);
  const Mesh peer = mesh_of(1, 'a', 7);
  int believed = 0;
  for (int i = 0; i < kAttacks; ++i) {
    const Opening opening = peer.opening(2, 0, Purpose::frames, place(1 + i % 60'000));
    // What was said on another connection, sent back, made with another secret, or cut.
    std::string key = peer.opening(2, 1, Purpose::frames, place(1 + i % 60'000)).last_words_key;
    if (i % 5 == 1)
      key = peer.opening(2, 0, Purpose::frames, place(1 + i % 50'000 + 1)).last_words_key;
    if (i % 5 == 2)
      key = target.opening(1, 0, Purpose::frames, place(1 + i % 60'000)).last_words_key;
    if (i % 5 == 3) key = "guess";
    std::string words = encode_last_words(kGoodbyeAlone, key);
    if (i % 5 == 4)
      words = encode_last_words(kGoodbyeAlone, opening.last_words_key)
                  .substr(0, random() % kLastWordsBytes);
    if (read_last_words(words, opening.last_words_key)) ++believed;
  }
  std::printf("%d false last words, %d believed\n", kAttacks, believed);
  EXPECT_EQ(believed, 0);
}

}  // namespace
}  // namespace tutti::transport::tcp
