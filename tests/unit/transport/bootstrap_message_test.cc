// bootstrap_message_test.cc: the rendezvous' messages and sets of ranks survive the way there and
// back, however the stream is cut, and nothing else is taken for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/message.hpp"

namespace tutti::transport {
namespace {

using testing::ElementsAre;

TEST(MessageParser, FindsMessagesHoweverTheStreamIsCut) {
  const std::string stream = encode_message(MessageKind::challenge, "abc") +
                             encode_message(MessageKind::ready, "") +
                             encode_message(MessageKind::blobs, std::string(1000, 'x'));
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
  parser.append(encode_message(MessageKind::blobs, std::string(1001, 'x')).substr(0, 5));
  EXPECT_EQ(parser.next().status().code(), StatusCode::corrupt_data);
  MessageParser other(1000);
  other.append(std::string(5, '\0'));
  EXPECT_EQ(other.next().status().code(), StatusCode::corrupt_data);
}

TEST(Messages, TruncatedOrPaddedOnesDoNotParse) {
  const Hello said{CallPurpose::introduce, 3, 0, 8, "job", std::string(kNonceBytes, 'n')};
  const std::string hello = encode_hello(said);
  ASSERT_TRUE(parse_hello(hello));
  EXPECT_EQ(parse_hello(hello)->from, 3);
  EXPECT_EQ(parse_hello(hello)->purpose, CallPurpose::introduce);
  EXPECT_FALSE(parse_hello(hello + "x"));
  for (std::size_t bytes = 0; bytes < hello.size(); ++bytes)
    EXPECT_FALSE(parse_hello(hello.substr(0, bytes)));
  EXPECT_FALSE(parse_blobs("short"));
  const std::string listening = encode_listening({true, "127.0.0.1", 4711});
  const std::string parent = encode_parent({5, "127.0.0.1", 4711});
  for (std::size_t bytes = 0; bytes < listening.size(); ++bytes)
    EXPECT_FALSE(parse_listening(listening.substr(0, bytes)));
  for (std::size_t bytes = 0; bytes < parent.size(); ++bytes)
    EXPECT_FALSE(parse_parent(parent.substr(0, bytes)));
  EXPECT_TRUE(parse_listening(listening)->directly);
  EXPECT_EQ(parse_parent(parent)->port, 4711);
}

TEST(Messages, AFailureCarriesCodeTextAndCulprit) {
  const Status status(StatusCode::peer_lost, "rank 2 hung up", 2);
  EXPECT_EQ(parse_failure(encode_failure(status)), status);
  EXPECT_EQ(parse_failure("").code(), StatusCode::corrupt_data);
  EXPECT_EQ(parse_failure(std::string(5, '\0')).code(), StatusCode::corrupt_data);
}

TEST(Messages, BlobsAreSpreadOverAsFewMessagesAsHoldThem) {
  Blobs blobs{4, 9, {}};
  for (Rank rank = 0; rank < 40; ++rank)
    blobs.parts.push_back({rank, std::string(rank == 7 ? kBlobBytesMax : 4000, 'b')});
  const std::vector<std::string> bodies = encode_blobs(blobs);
  EXPECT_EQ(bodies.size(), 4U);
  Rank next = 0;
  for (const std::string& body : bodies) {
    EXPECT_LE(body.size(), kMemberBodyBytesMax);
    const auto read = parse_blobs(body);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->sequence, 4U);
    EXPECT_EQ(read->context, 9U);
    for (const Blob& part : read->parts) EXPECT_EQ(part.rank, next++);
  }
  EXPECT_EQ(next, 40);
}

TEST(Messages, ArrivalsAreRunsInOrder) {
  RankSet ranks;
  for (const Rank rank : {5, 3, 4, 9, 11, 10}) ranks.add(rank);
  const std::string body = encode_arrived(ranks);
  EXPECT_TRUE(ranks.empty());
  EXPECT_THAT(parse_arrived(body, 12).value(), ElementsAre(RankRun{3, 5}, RankRun{9, 11}));
  EXPECT_FALSE(parse_arrived(body, 11));
  EXPECT_FALSE(parse_arrived(body + body, 12));
  EXPECT_FALSE(parse_arrived("", 12));
  EXPECT_FALSE(parse_arrived(body.substr(1), 12));
}

TEST(RankSet, KeepsWhatAPlainListKeeps) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    RankSet set;
    std::vector<bool> plain(40, false);
    for (int step = 0; step < 30; ++step) {
      const Rank first = static_cast<Rank>(random() % 40);
      const Rank last = std::min<Rank>(39, first + static_cast<Rank>(random() % 4));
      Rank twice = -1;
      for (Rank rank = first; rank <= last; ++rank)
        if (plain[static_cast<std::size_t>(rank)]) twice = rank;
      EXPECT_EQ(set.add({first, last}) >= 0, twice >= 0);
      for (Rank rank = first; rank <= last && twice < 0; ++rank)
        plain[static_cast<std::size_t>(rank)] = true;
    }
    std::vector<Rank> missing;
    for (Rank rank = 0; rank < 40; ++rank) {
      EXPECT_EQ(set.contains(rank), plain[static_cast<std::size_t>(rank)]);
      if (!plain[static_cast<std::size_t>(rank)]) missing.push_back(rank);
    }
    EXPECT_EQ(set.missing_below(40), missing);
    EXPECT_EQ(set.count(), 40 - missing.size());
  }
}

TEST(BinomialTree, SubtreesAreTheRanksThatLeadThere) {
  for (int size = 1; size <= 40; ++size)
    for (Rank root = 0; root < size; ++root) {
      const RankRun run = binomial_subtree(root, size);
      for (Rank rank = 0; rank < size; ++rank) {
        Rank above = rank;
        while (above > root) above = binomial_parent(above);
        EXPECT_EQ(above == root, rank >= run.first && rank <= run.last) << size << rank << root;
      }
    }
}

}  // namespace
}  // namespace tutti::transport
