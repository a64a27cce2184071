// ucx_wire_test.cc: cards and keys of ranks that talk over UCX.
#include "transport/ucx/wire.hpp"

#include <gtest/gtest.h>

namespace tutti::transport::ucx {
namespace {

Card a_card() {
  Card card;
  card.address = std::string("address\0of ucx", 14);
  card.nonce = std::string(kNonceBytes, 'n');
  card.host = "boot/4026531836";
  card.process = 4711;
  card.frame_bytes_max = 4096;
  card.ring_bytes = 16384;
  card.channel_count = 3;
  card.context = 7;
  return card;
}

TEST(UcxWire, ACardSurvivesTheWay) {
  const Card card = a_card();
  const Result<Card> seen = parse_card(encode_card(card));
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  EXPECT_EQ(seen->address, card.address);
  EXPECT_EQ(seen->nonce, card.nonce);
  EXPECT_EQ(seen->host, card.host);
  EXPECT_EQ(seen->process, 4711u);
  EXPECT_EQ(seen->frame_bytes_max, 4096u);
  EXPECT_EQ(seen->ring_bytes, 16384u);
  EXPECT_EQ(seen->channel_count, 3u);
  EXPECT_EQ(seen->context, 7u);
}

TEST(UcxWire, ACardMaySayWhyThereIsNone) {
  Card card;
  card.status = Status(StatusCode::unsupported, "no UCX here");
  const Result<Card> seen = parse_card(encode_card(card));
  EXPECT_EQ(seen.status().code(), StatusCode::unsupported);
  EXPECT_NE(seen.status().message().find("no UCX here"), std::string::npos);
}

TEST(UcxWire, WhatIsNoCardIsRefused) {
  const std::string right = encode_card(a_card());
  for (std::size_t bytes = 0; bytes < right.size(); ++bytes)
    EXPECT_EQ(parse_card(right.substr(0, bytes)).status().code(), StatusCode::corrupt_data);
  EXPECT_FALSE(parse_card(right + "x").ok());
  std::string other = right;
  other[0] = 'T';
  EXPECT_FALSE(parse_card(other).ok());
  Card nowhere = a_card();
  nowhere.address.clear();
  EXPECT_FALSE(parse_card(encode_card(nowhere)).ok());
  Card vast = a_card();
  vast.address.assign(40'000, 'a');
  EXPECT_FALSE(parse_card(encode_card(vast)).ok());
}

TEST(UcxWire, AKeyIsGoodForOneDirectionOfOneCommunicatorOfOneJob) {
  const std::string from(kNonceBytes, 'f');
  const std::string to(kNonceBytes, 't');
  const Authenticator job("s3cret");
  const Key key = key_of({7, 1, 2}, job, from, to);
  EXPECT_TRUE(same(key, key_of({7, 1, 2}, Authenticator("s3cret"), from, to)));
  EXPECT_FALSE(same(key, key_of({7, 1, 2}, Authenticator("other"), from, to)));
  EXPECT_FALSE(same(key, key_of({8, 1, 2}, job, from, to)));
  EXPECT_FALSE(same(key, key_of({7, 3, 2}, job, from, to)));
  EXPECT_FALSE(same(key, key_of({7, 1, 3}, job, from, to)));
  EXPECT_FALSE(same(key, key_of({7, 2, 1}, job, from, to)));
  EXPECT_FALSE(same(key, key_of({7, 1, 2}, job, to, to)));
  EXPECT_FALSE(same(key, key_of({7, 1, 2}, job, from, from)));
  Key nearly = key;
  nearly.back() = static_cast<char>(nearly.back() ^ 1);
  EXPECT_FALSE(same(key, nearly));
}

}  // namespace
}  // namespace tutti::transport::ucx
