// bootstrap_simulation_test.cc: whole jobs that meet in a simulated network, by seed: the right
// result or the right error, never a hang, and the same events when the seed is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "bootstrap_network.hpp"

namespace tutti::transport {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

#if defined(TUTTI_SANITIZED)
constexpr int kSeeds = 2;
#else
constexpr int kSeeds = 12;
#endif

int log2_up(int size) { return static_cast<int>(std::bit_width(static_cast<unsigned>(size))); }

void expect_success(const Network& network, int size, const std::string& what) {
  for (Rank rank = 0; rank < size; ++rank) {
    EXPECT_TRUE(network.node(rank).ended) << what << " rank " << rank;
    EXPECT_TRUE(network.node(rank).status.ok())
        << what << " rank " << rank << ": " << network.node(rank).status.to_string();
    EXPECT_TRUE(network.node(rank).right) << what << " rank " << rank;
  }
}

TEST(RendezvousSimulation, EveryWorldMeetsAndExchanges) {
  int worlds = 0;
  for (int size = 1; size <= 33; ++size) {
    for (int seed = 0; seed < kSeeds; ++seed) {
      NetworkOptions options;
      options.size = size;
      options.seed = static_cast<std::uint64_t>(1000 * size + seed);
      options.strangers = seed % 3 * 10;
      options.local_names = seed % 4 != 3;
      options.ranks_per_host = seed % 2 == 0 ? size : 1 + seed % 5;
      Network network(options);
      ASSERT_TRUE(network.run());
      const std::string what = "size " + std::to_string(size) + " seed " + std::to_string(seed);
      expect_success(network, size, what);
      for (Rank rank = 0; rank < size; ++rank)
        EXPECT_LE(network.node(rank).degree, 1U + 2U * static_cast<unsigned>(log2_up(size)))
            << what << " rank " << rank;
      ++worlds;
    }
  }
  std::printf("%d worlds\n", worlds);
}

TEST(RendezvousSimulation, LargeWorldsMeetWithFewConnections) {
  for (const int per_host : {300, 16}) {
    NetworkOptions options;
    options.size = 300;
    options.ranks_per_host = per_host;
    options.start_spread_ms = 80;
    options.rounds = 1;
    Network network(options);
    ASSERT_TRUE(network.run());
    expect_success(network, options.size, "300 ranks");
    const std::size_t hosts = static_cast<std::size_t>((300 + per_host - 1) / per_host);
    std::printf("%zu hosts: rank 0 has %zu connections and saw %zu introductions\n", hosts,
                network.node(0).degree, network.node(0).meeting->introductions());
    EXPECT_LE(network.node(0).meeting->introductions(), 4 * hosts);
    for (Rank rank = 0; rank < options.size; ++rank)
      EXPECT_LE(network.node(rank).degree, 18U) << rank;
  }
}

TEST(RendezvousSimulation, ASeedReplays) {
  const auto hash = [](std::uint64_t seed) {
    NetworkOptions options;
    options.size = 13;
    options.seed = seed;
    options.strangers = 20;
    options.deaths = {{5, 150}};
    Network network(options);
    EXPECT_TRUE(network.run());
    return network.hash();
  };
  EXPECT_EQ(hash(7), hash(7));
  EXPECT_NE(hash(7), hash(8));
}

// Whoever survives has the results that it should have, or an error that names the dead; a rank
// that never reached rank 0, which is dead, says so.
TEST(RendezvousSimulation, ADeathAtAnyMomentIsNamed) {
  int named = 0, unreached = 0, unharmed = 0;
  for (const int size : {2, 3, 5, 8, 13, 33}) {
    for (int seed = 0; seed < 6 * kSeeds; ++seed) {
      NetworkOptions options;
      options.size = size;
      options.seed = static_cast<std::uint64_t>(seed);
      options.ranks_per_host = seed % 2 == 0 ? size : 4;
      const Rank dead = seed % size;
      const std::int64_t when = (seed * 37) % 400;
      options.deaths = {{dead, when}};
      Network network(options);
      ASSERT_TRUE(network.run());
      for (Rank rank = 0; rank < size; ++rank) {
        if (rank == dead) continue;
        const Network::Node& node = network.node(rank);
        ASSERT_TRUE(node.ended) << size << ' ' << seed << ' ' << rank;
        EXPECT_TRUE(node.right);
        if (node.status.ok()) {
          ++unharmed;
        } else if (node.status.message().find("rank 0 did not answer") != std::string::npos) {
          ++unreached;
          EXPECT_EQ(dead, 0) << "size " << size << " seed " << seed << " rank " << rank;
        } else {
          ++named;
          EXPECT_THAT(node.status.message(), AnyOf(HasSubstr("rank " + std::to_string(dead)),
                                                   HasSubstr("ranks " + std::to_string(dead))))
              << "size " << size << " seed " << seed << " rank " << rank;
          EXPECT_EQ(node.status.culprit(), dead) << node.status.to_string();
        }
      }
    }
  }
  std::printf("%d named the dead, %d found nobody to ask, %d were done\n", named, unreached,
              unharmed);
  EXPECT_GT(named, unreached);
}

TEST(RendezvousSimulation, ADeathInAnExchangeIsKnownToAllAtOnce) {
  for (int seed = 0; seed < 3 * kSeeds; ++seed) {
    NetworkOptions options;
    options.size = 33;
    options.seed = static_cast<std::uint64_t>(seed);
    options.start_spread_ms = 20;
    options.rounds = 1000;  // they are in the middle of it
    const Rank dead = (7 * seed) % 33;
    options.deaths = {{dead, 600}};
    Network network(options);
    ASSERT_TRUE(network.run());
    for (Rank rank = 0; rank < 33; ++rank) {
      if (rank == dead) continue;
      EXPECT_EQ(network.node(rank).status.code(), StatusCode::peer_lost);
      EXPECT_EQ(network.node(rank).status.culprit(), dead);
      EXPECT_GT(network.node(rank).round, 0);
      EXPECT_LE(network.node(rank).ended_ms, 700) << "seed " << seed << " rank " << rank;
    }
  }
}

TEST(RendezvousSimulation, AbsentRanksAreNamedToAll) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    NetworkOptions options;
    options.size = 17;
    options.seed = static_cast<std::uint64_t>(seed);
    options.ranks_per_host = seed % 2 == 0 ? 17 : 4;
    options.absent = {2, 8, 13};
    Network network(options);
    ASSERT_TRUE(network.run());
    for (Rank rank = 0; rank < 17; ++rank) {
      if (options.absent.contains(rank)) continue;
      EXPECT_EQ(network.node(rank).status.message(), "ranks 2, 8, 13 did not arrive within 5 s")
          << "seed " << seed << " rank " << rank;
    }
  }
}

TEST(RendezvousSimulation, AWrongSecretIsNamedAndTheOthersMissItsRank) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    NetworkOptions options;
    options.size = 9;
    options.seed = static_cast<std::uint64_t>(seed);
    options.secrets = {{6, "guess"}};
    Network network(options);
    ASSERT_TRUE(network.run());
    EXPECT_THAT(network.node(6).status.message(), HasSubstr("different job secrets"));
    for (Rank rank = 0; rank < 9; ++rank) {
      if (rank == 6) continue;
      EXPECT_EQ(network.node(rank).status.code(), StatusCode::timeout);
      EXPECT_THAT(network.node(rank).status.message(),
                  HasSubstr("rank 6 did not arrive within 5 s; a process at origin that calls "
                            "itself rank 6 has another job secret"));
    }
  }
}

TEST(RendezvousSimulation, MismatchesReachAllWithinMoments) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    NetworkOptions options;
    options.size = 20;
    options.start_spread_ms = 50;
    options.seed = static_cast<std::uint64_t>(seed);
    const bool sizes = seed % 2 == 0;
    if (sizes)
      options.sizes = {{11, 21}};
    else
      options.contexts = {{11, 4}};
    Network network(options);
    ASSERT_TRUE(network.run());
    for (Rank rank = 0; rank < 20; ++rank) {
      const Network::Node& node = network.node(rank);
      EXPECT_EQ(node.status.code(), StatusCode::mismatch) << node.status.to_string();
      EXPECT_EQ(node.status.culprit(), 11);
      EXPECT_LE(node.ended_ms, 1000);
    }
    EXPECT_EQ(network.node(0).status.code(), StatusCode::mismatch);
  }
}

}  // namespace
}  // namespace tutti::transport
