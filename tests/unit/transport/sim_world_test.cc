// sim_world_test.cc: the simulated network reorders, delays and fills up, never loses, repeats
// itself exactly, and says when nothing is in flight.
#include "transport/sim/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>

#include "transport/sim/transport.hpp"

namespace tutti::transport {
namespace {

using testing::HasSubstr;

struct Ranks {
  explicit Ranks(const SimOptions& options) : world(options) {
    for (Rank rank = 0; rank < options.size; ++rank)
      transports.push_back(make_sim_transport(world, rank));
  }
  Endpoint& at(Rank from, Rank to, int channel = 0) {
    return *transports[static_cast<std::size_t>(from)]->endpoint(to, channel).value();
  }
  bool send(Rank from, Rank to, std::uint32_t tag, std::size_t bytes = 8) {
    Endpoint& endpoint = at(from, to);
    const std::span<std::byte> room = endpoint.reserve(bytes);
    if (room.data() == nullptr) return false;
    if (bytes > 0) std::memset(room.data(), static_cast<int>(tag), bytes);
    endpoint.commit(tag, bytes);
    return true;
  }
  void settle() {
    while (world.step()) {
    }
  }
  SimWorld world;
  std::vector<std::unique_ptr<Transport>> transports;
};

SimOptions with_seed(std::uint64_t seed, int size = 3) {
  SimOptions options;
  options.size = size;
  options.seed = seed;
  return options;
}

// Everybody sends 20 frames to everybody; whoever can read, reads. The tags that each rank read,
// in the order of arrival over all peers.
std::vector<std::uint32_t> traffic(Ranks& ranks, int frames = 20) {
  const int size = ranks.world.options().size;
  std::map<std::pair<Rank, Rank>, int> sent;
  std::vector<std::uint32_t> read;
  do {
    for (Rank from = 0; from < size; ++from) {
      for (Rank to = 0; to < size; ++to) {
        if (from == to) continue;
        int& count = sent[{from, to}];
        const auto tag = static_cast<std::uint32_t>(from * 10000 + to * 1000 + count);
        if (count < frames && ranks.send(from, to, tag)) count += 1;
        Frame frame;
        if (!ranks.at(to, from).peek(frame)) continue;
        read.push_back(frame.tag);
        ranks.at(to, from).release();
      }
    }
  } while (ranks.world.step());
  return read;
}

TEST(SimWorld, DeliversEverythingInTheOrderOfItsConnection) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Ranks ranks(with_seed(seed));
    const auto read = traffic(ranks);
    ASSERT_EQ(read.size(), 6U * 20U) << "seed " << seed;
    std::map<std::uint32_t, std::uint32_t> next;
    for (const std::uint32_t tag : read) ASSERT_EQ(next[tag / 1000]++, tag % 1000);
  }
}

TEST(SimWorld, TheSameSeedRepeatsAndAnotherDoesNot) {
  Ranks first(with_seed(7));
  Ranks second(with_seed(7));
  Ranks other(with_seed(8));
  const auto read = traffic(first);
  EXPECT_EQ(read, traffic(second));
  EXPECT_NE(read, traffic(other));  // the connections were reordered against each other
  EXPECT_EQ(first.world.event_hash(), second.world.event_hash());
  EXPECT_NE(first.world.event_hash(), other.world.event_hash());
  EXPECT_EQ(first.world.event_count(), second.world.event_count());
  EXPECT_EQ(first.world.now_ns(), second.world.now_ns());
}

TEST(SimWorld, TheHashSeesTheContents) {
  std::array<std::uint64_t, 2> hashes{};
  for (const int change : {0, 1}) {
    Ranks ranks(with_seed(1));
    ranks.send(0, 1, 0);
    ranks.settle();
    const std::span<std::byte> room = ranks.at(0, 1).reserve(9);
    std::memset(room.data(), 0, 9);
    room[8] = static_cast<std::byte>(change);
    ranks.at(0, 1).commit(1, 9);
    ranks.settle();
    hashes[static_cast<std::size_t>(change)] = ranks.world.event_hash();
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST(SimWorld, QueuesAreSmallAndRoomComesBackLate) {
  bool two = false;
  bool more = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Ranks ranks(with_seed(seed, 2));
    EXPECT_FALSE(ranks.send(0, 1, 0));  // connects on first use
    ranks.settle();
    std::uint32_t sent = 0;
    while (ranks.send(0, 1, sent)) sent += 1;
    EXPECT_GE(sent, 2U);
    EXPECT_LE(sent, 4U);
    two = two || sent == 2;
    more = more || sent > 2;
    ranks.settle();
    EXPECT_FALSE(ranks.send(0, 1, 9));  // delivered, but not released
    ranks.at(1, 0).release();
    EXPECT_FALSE(ranks.send(0, 1, 9));  // released, but the sender does not know
    EXPECT_TRUE(ranks.world.step());
    EXPECT_TRUE(ranks.send(0, 1, 9));
  }
  EXPECT_TRUE(two && more);
}

TEST(SimWorld, SaysWhenNothingIsInFlight) {
  Ranks ranks(with_seed(1));
  EXPECT_FALSE(ranks.world.step());
  EXPECT_FALSE(ranks.send(0, 1, 0));
  EXPECT_EQ(ranks.world.in_flight(), 1U);
  EXPECT_TRUE(ranks.world.step());
  EXPECT_EQ(ranks.world.last_event().kind, SimEventKind::connected);
  EXPECT_FALSE(ranks.world.step());
  EXPECT_GT(ranks.world.now_ns(), 0U);
}

TEST(SimWorld, PollReportsEachDeliveryOnce) {
  Ranks ranks(with_seed(1));
  ranks.send(0, 1, 0);
  ranks.settle();
  EXPECT_TRUE(ranks.transports[0]->poll().value());  // connected
  EXPECT_FALSE(ranks.transports[0]->poll().value());
  ranks.send(0, 1, 5);
  EXPECT_FALSE(ranks.transports[1]->poll().value());
  ranks.settle();
  EXPECT_TRUE(ranks.transports[1]->poll().value());
  EXPECT_FALSE(ranks.transports[1]->poll().value());
  EXPECT_EQ(
      to_string(ranks.world.last_event()),
      std::to_string(ranks.world.now_ns()) + " ns: frame 0 -> 1 on channel 0, tag 5, 8 bytes");
}

TEST(SimWorld, SignalsOvertakeFramesAndEachOtherButNeverFall) {
  bool overtook = false;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Ranks ranks(with_seed(seed));
    ranks.send(0, 1, 0);
    ranks.settle();
    ranks.send(0, 1, 1);
    for (std::uint64_t value = 1; value <= 10; ++value)
      ranks.at(0, 1).signal(Signal::produced, value);
    std::uint64_t seen = 0;
    Frame frame;
    while (ranks.world.step()) {
      const std::uint64_t now = ranks.at(1, 0).signalled(Signal::produced);
      EXPECT_GE(now, seen);
      seen = now;
      overtook = overtook || (seen > 0 && !ranks.at(1, 0).peek(frame));
    }
    EXPECT_EQ(seen, 10U);
    EXPECT_EQ(ranks.at(1, 0).signalled(Signal::granted), 0U);
  }
  EXPECT_TRUE(overtook);
}

TEST(SimWorld, AKilledRankIsNamedToItsPeersAndToThoseWhoComeLater) {
  Ranks ranks(with_seed(1));
  ranks.send(0, 1, 0);
  ranks.settle();
  ranks.send(0, 1, 1);
  ranks.at(1, 0);
  ranks.world.kill(0);
  EXPECT_TRUE(ranks.world.killed(0));
  EXPECT_EQ(ranks.transports[0]->poll().status().code(), StatusCode::aborted);
  EXPECT_TRUE(ranks.transports[1]->poll().ok());  // not yet
  ranks.settle();
  Frame frame;
  EXPECT_FALSE(ranks.at(1, 0).peek(frame));
  EXPECT_EQ(ranks.transports[1]->poll().status(),
            Status(StatusCode::peer_lost, "rank 0 hung up", 0));
  EXPECT_TRUE(ranks.transports[2]->poll().ok());
  EXPECT_TRUE(ranks.at(2, 0).status().ok());
  ranks.settle();
  EXPECT_THAT(to_string(ranks.world.last_event()), HasSubstr("rank 2 hears that rank 0 died"));
  EXPECT_EQ(ranks.at(2, 0).status().code(), StatusCode::peer_lost);
  EXPECT_TRUE(ranks.at(2, 1).status().ok());
}

TEST(SimWorld, OnlyRanksOfOneHostShareMemory) {
  SimOptions options = with_seed(1, 4);
  options.ranks_per_host = 2;
  Ranks ranks(options);
  void* memory = ranks.transports[0]->allocate_shareable(100);
  const MemoryReference reference = ranks.at(0, 1).export_memory(memory, 100);
  EXPECT_EQ(ranks.at(1, 0).import_memory(reference, 100), memory);
  EXPECT_EQ(ranks.at(1, 0).import_memory(reference, 101), nullptr);
  EXPECT_FALSE(ranks.at(0, 2).export_memory(memory, 100).addressable());
  EXPECT_EQ(ranks.at(2, 0).import_memory(reference, 100), nullptr);
  std::byte plain{};
  EXPECT_FALSE(ranks.at(0, 1).export_memory(&plain, 1).addressable());
  ranks.transports[0]->release_shareable(memory);
  EXPECT_EQ(ranks.at(1, 0).import_memory(reference, 1), nullptr);
}

TEST(SimWorld, WhatAPeerStoresToWithdrawnMemoryIsLost) {
  SimOptions options = with_seed(4, 2);
  options.ranks_per_host = 2;
  Ranks ranks(options);
  Transport& owner = *ranks.transports[0];
  auto* memory = static_cast<std::byte*>(owner.allocate_shareable(32));
  std::memset(memory, 1, 32);
  const MemoryReference reference = ranks.at(0, 1).export_memory(memory, 32);
  std::byte* seen = ranks.at(1, 0).import_memory(reference, 32);
  ASSERT_NE(seen, nullptr);
  const auto store_as_peer = [&](int value) {
    ranks.world.begin_stores(1);
    std::memset(seen, value, 32);
    ranks.world.end_stores(1);
  };
  store_as_peer(2);
  EXPECT_EQ(memory[0], std::byte{2}) << "it is the peer's, too, until it is withdrawn";
  owner.withdraw_memory(memory + 8, 16);
  store_as_peer(3);
  EXPECT_EQ(memory[7], std::byte{3});
  EXPECT_EQ(memory[8], std::byte{2});
  EXPECT_EQ(memory[23], std::byte{2});
  EXPECT_EQ(memory[24], std::byte{3});
  memory[8] = std::byte{5};
  store_as_peer(4);
  EXPECT_EQ(memory[8], std::byte{5}) << "the owner's stores stay";
  owner.withdraw_memory(memory, 32);
  store_as_peer(6);
  EXPECT_EQ(memory[0], std::byte{4});
  owner.release_shareable(memory);
  store_as_peer(7);
  EXPECT_EQ(ranks.world.region_count(), 0U);
}

TEST(SimWorld, WhoMapsWithdrawnMemoryDoesNotReachIt) {
  SimOptions options = with_seed(4, 2);
  options.ranks_per_host = 2;
  Ranks ranks(options);
  Transport& owner = *ranks.transports[0];
  auto* memory = static_cast<std::byte*>(owner.allocate_shareable(8));
  std::memset(memory, 1, 8);
  const MemoryReference reference = ranks.at(0, 1).export_memory(memory, 8);
  owner.withdraw_memory(memory, 8);
  ranks.world.begin_stores(1);
  std::byte* seen = ranks.at(1, 0).import_memory(reference, 8);
  ASSERT_NE(seen, nullptr);
  std::memset(seen, 2, 8);
  ranks.world.end_stores(1);
  EXPECT_EQ(memory[0], std::byte{1});
  owner.release_shareable(memory);
}

TEST(SimWorld, KnowsWhatARankWasTold) {
  Ranks ranks(with_seed(5));
  ranks.at(0, 1).signal(Signal::failed, 9);
  EXPECT_EQ(ranks.world.told(0, 0, 1, 0, Signal::failed), 0U) << "under way";
  ranks.settle();
  EXPECT_EQ(ranks.world.told(0, 0, 1, 0, Signal::failed), 9U);
  EXPECT_EQ(ranks.world.told(0, 1, 0, 0, Signal::failed), 0U);
  EXPECT_EQ(ranks.world.told(0, 0, 2, 0, Signal::failed), 0U);
}

TEST(SimWorld, TheDriversChoicesDoNotDisturbTheNetwork) {
  Ranks first(with_seed(5));
  Ranks second(with_seed(5));
  const std::uint64_t drawn = second.world.random(1000);
  EXPECT_LT(drawn, 1000U);
  EXPECT_EQ(first.world.random(1000), drawn);
  second.world.random(10);
  traffic(first);
  traffic(second);
  EXPECT_EQ(first.world.event_hash(), second.world.event_hash());
}

}  // namespace
}  // namespace tutti::transport
