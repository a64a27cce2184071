// Ids: what they carry survives the trip, anything else is refused, and their port is rank 0's.
#include "nccl/unique_id.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

namespace tutti::nccl::test {
namespace {

UniqueId made() {
  const auto id = make_unique_id("lo");
  EXPECT_TRUE(id.ok()) << id.status().to_string();
  return id.ok() ? *id : UniqueId();
}

TEST(UniqueId, SurvivesTheTrip) {
  const UniqueId id = made();
  EXPECT_EQ(id.address, "127.0.0.1");
  char bytes[kUniqueIdBytes];
  id.write(bytes);
  const auto read = UniqueId::read(bytes);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->address, id.address);
  EXPECT_EQ(read->port, id.port);
  EXPECT_EQ(read->secret, id.secret);
}

TEST(UniqueId, IsNeverTheSame) {
  const UniqueId a = made();
  const UniqueId b = made();
  EXPECT_NE(a.secret, b.secret);
  EXPECT_NE(a.port, b.port);
}

TEST(UniqueId, OfTheLongestAddressFits) {
  UniqueId id = made();
  id.address = "fd00:1234:5678:9abc:def0:1234:5678:9abc";
  char bytes[kUniqueIdBytes];
  id.write(bytes);
  const auto read = UniqueId::read(bytes);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->address, id.address);
  EXPECT_EQ(read->secret, id.secret);
}

TEST(UniqueId, OfOtherBytesIsRefused) {
  char bytes[kUniqueIdBytes] = {};
  EXPECT_EQ(UniqueId::read(bytes).status().code(), StatusCode::corrupt_data);
  std::mt19937 random(1);
  const UniqueId id = made();
  for (int round = 0; round < 10'000; ++round) {
    id.write(bytes);
    // The head, where every byte counts.
    const std::size_t where = random() % 15;
    bytes[where] = static_cast<char>(random());
    const auto read = UniqueId::read(bytes);
    if (!read.ok()) continue;
    EXPECT_LE(read->address.size(), 64U);
    EXPECT_EQ(read->secret.size(), UniqueId::kSecretBytes);
  }
}

TEST(UniqueId, OfAnInterfaceThatThereIsNotIsNotMade) {
  const auto id = make_unique_id("=nowhere7");
  EXPECT_EQ(id.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(id.status().message().find("nowhere7"), std::string::npos);
}

TEST(UniqueId, KeepsItsPortForRankZero) {
  const UniqueId id = made();
  const auto listener = listen_for(id);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const auto address = transport::local_address(*listener);
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->port(), id.port);
  EXPECT_TRUE(address->loopback());
}

TEST(UniqueId, OfAnotherHostSaysWhereToMakeIt) {
  UniqueId id = made();
  id.address = "192.0.2.1";  // nobody's, by RFC 5737
  const auto listener = listen_for(id);
  EXPECT_EQ(listener.status().code(), StatusCode::unsupported);
  EXPECT_NE(listener.status().message().find("rank 0"), std::string::npos);
}

}  // namespace
}  // namespace tutti::nccl::test
