// Transfers between pairs of ranks: any group of them comes to an end with the right bytes in the
// right place, whichever way they travel, whoever else is in it, and in whatever order others make
// their calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "exchange_trial.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 3, 17, 127, 128, 511, 512, 513, 1031, 2100, 4099, 7001};

// Slots of 512 bytes, two of each queue.
ControlShape shape_of(std::uint32_t ranks, std::uint32_t channels, std::uint32_t lanes) {
  return {ranks, channels, 2, 512, 256, lanes};
}

// So many, between any two ranks; some go direct.
std::vector<Passing> any_passings(int ranks, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t end) { return random() % end; };
  std::vector<Passing> passings;
  for (std::size_t i = 0; i < count; ++i)
    passings.push_back({static_cast<Rank>(below(static_cast<std::size_t>(ranks))),
                        static_cast<Rank>(below(static_cast<std::size_t>(ranks))),
                        kSizes[below(std::size(kSizes))], below(2) == 0});
  return passings;
}

// The same launches again and again, as a graph does; ranks use their memory as soon as they may.
std::string play(HostWorld& world, ExchangeTrial& trial, std::size_t times = 3) {
  const std::vector<Job> jobs(times, trial.job());
  const auto refill = [](void* context, std::size_t rank, std::size_t) {
    static_cast<ExchangeTrial*>(context)->fill(rank);
  };
  if (!world.run(jobs, refill, &trial)) return "it failed";
  return trial.judge();
}

TEST(Exchange, AnyGroupOfAnyRanksComesToItsEnd) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (unsigned seed = 0; seed < 6; ++seed) {
      const std::uint32_t channels = 1 + seed % 3;
      HostWorld world(shape_of(static_cast<std::uint32_t>(ranks), channels, 1 + seed / 2),
                      1 + seed % 2);
      const std::size_t count = seed == 0 ? 1 : static_cast<std::size_t>(ranks) * (1 + seed);
      ExchangeTrial trial(world, any_passings(ranks, count, 100 * seed + unsigned(ranks)));
      EXPECT_EQ(play(world, trial), "") << ranks << " ranks, seed " << seed;
    }
}

TEST(Exchange, EverySizeGoesEitherWay) {
  for (const bool offered : {false, true}) {
    HostWorld world(shape_of(2, 2, 3), 2);
    std::vector<Passing> passings;
    for (const std::size_t bytes : kSizes) passings.push_back({0, 1, bytes, offered});
    ExchangeTrial trial(world, passings);
    EXPECT_EQ(play(world, trial), "") << offered;
  }
}

// What is offered takes one message of each lane, whatever its size.
TEST(Exchange, OfferedMemoryIsReadWhereItLies) {
  for (const bool offered : {false, true}) {
    HostWorld world(shape_of(2, 2, 3), 2);
    ExchangeTrial trial(world, {{0, 1, 6000, offered}});
    EXPECT_EQ(play(world, trial, 1), "");
    for (const std::uint32_t lane : {0U, 1U, 2U})
      EXPECT_EQ(world.messages_sent(0, 1, lane), offered ? 1U : 4U) << lane;
  }
}

TEST(Exchange, WhatIsSmallTakesOneLane) {
  HostWorld world(shape_of(2, 2, 3), 2);
  ExchangeTrial trial(world, {{0, 1, 5, true}, {0, 1, 6000, true}, {0, 1, 900, true}});
  EXPECT_EQ(play(world, trial, 1), "");
  for (const std::uint32_t lane : {0U, 1U, 2U})
    EXPECT_EQ(world.messages_sent(0, 1, lane), 3U - lane) << lane;
}

// It is taken piece by piece.
TEST(Exchange, LargeMemoryIsOfferedAtOnce) {
  HostWorld world(shape_of(2, 1, 1), 2);
  ExchangeTrial trial(world, {{1, 0, 2 * kTakenAtOnce + 5, true}, {0, 1, 700, false}});
  EXPECT_EQ(play(world, trial, 2), "");
  EXPECT_EQ(world.messages_sent(1, 0, 0), 2U);
}

TEST(Exchange, ARankMayTalkToItself) {
  for (const bool offered : {false, true}) {
    HostWorld world(shape_of(1, 2, 2), 2);
    ExchangeTrial trial(world, {{0, 0, 5000, offered}, {0, 0, 0, offered}, {0, 0, 77, !offered}});
    EXPECT_EQ(play(world, trial), "") << offered;
  }
}

// Everybody waits for everybody else, more rows than a block looks at once.
TEST(Exchange, ABlockTakesMoreRowsThanItLooksAtOnce) {
  constexpr int kRanks = 18;
  for (const bool offered : {false, true}) {
    HostWorld world(shape_of(kRanks, 1, 2), 1);
    std::vector<Passing> passings;
    for (Rank from = 0; from < kRanks; ++from)
      for (Rank to = 0; to < kRanks; ++to) passings.push_back({from, to, 1500, offered});
    ExchangeTrial trial(world, passings);
    const Job job = trial.job();
    ASSERT_GT(job.exchanges[0]->row_count, kRowsAtOnce);
    EXPECT_EQ(play(world, trial, 2), "") << offered;
  }
}

// A chain in which who comes first in each rank's order is who can be served last.
TEST(Exchange, NoOrderHoldsABlockUp) {
  constexpr int kRanks = 6;
  HostWorld world(shape_of(kRanks, 1, 1), 2);
  std::vector<Passing> passings;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    passings.push_back({rank, (rank + 1) % kRanks, 4000, false});
    passings.push_back({(rank + 1) % kRanks, rank, 4000, true});
    passings.push_back({rank, (rank + 2) % kRanks, 3000, rank % 2 == 0});
  }
  ExchangeTrial trial(world, passings);
  EXPECT_EQ(play(world, trial), "");
}

// Pairs count their own messages, and nothing that all ranks count.
TEST(Exchange, OthersMayMakeOtherCallsMeanwhile) {
  constexpr int kRanks = 3;
  const auto schedule =
      build(**collectives::find_algorithm(Collective::all_reduce, "ring"), kRanks, 0);
  const auto programs = encode(collectives::lower_all(*schedule));
  const CallCase what{DataType::int32, ReduceOp::sum, 300, false, Travels::staged, 2, 5};
  std::vector<std::vector<std::byte>> arenas(
      kRanks, std::vector<std::byte>(Trial::bytes_needed(schedule->shape, what)));
  HostWorld world(shape_of(kRanks, 2, 2), 2);
  Trial reduced(schedule->shape, *programs, what, arenas, 0);
  for (std::size_t rank = 0; rank < kRanks; ++rank) reduced.fill(rank);
  ExchangeTrial pair(world, {{0, 1, 3000, true}, {1, 0, 900, false}});
  // Room for it is in the slots: rank 2 sends before the call that rank 0 receives behind.
  ExchangeTrial late(world, {{2, 0, 800, false}});
  Job sends = late.job();
  Job receives = sends;
  sends.exchanges[0] = nullptr;
  receives.exchanges[2] = nullptr;
  const Job both = pair.job();
  const Job& all = reduced.job();
  const std::vector<Job> jobs{both, sends, all, both, receives, both, all};
  ASSERT_TRUE(world.run(jobs));
  EXPECT_EQ(pair.judge(), "");
  EXPECT_EQ(late.judge(), "");
  EXPECT_EQ(reduced.judge(), "");
}

// Both ends cut alike; rows are dealt out to as many blocks as there may be, those that receive
// first.
TEST(Exchange, TransfersAreCutByTheirSize) {
  const std::vector<GpuTransfer> asked{{true, 1, nullptr, 0},
                                       {false, 1, nullptr, 1400},
                                       {true, 2, nullptr, 10'000},
                                       {true, 1, nullptr, 701}};
  const std::vector<MemoryRef> shared(asked.size());
  for (const std::uint32_t blocks : {2U, 100U}) {
    const std::vector<std::byte> written = write_exchange(asked, shared, {3, 700, blocks, 5});
    const auto& exchange = *reinterpret_cast<const DeviceExchange*>(written.data());
    EXPECT_EQ(exchange.timeout_ns, 5U);
    ASSERT_EQ(exchange.row_count, 2U + 2U + 3U);
    EXPECT_EQ(exchange.blocks, std::min(blocks, exchange.row_count));
    EXPECT_LE(written.size(), exchange_bytes_max(asked.size(), 3));
    std::vector<std::uint32_t> places;
    for (std::uint32_t t = 0; t < asked.size(); ++t)
      places.push_back(exchange.transfers()[t].place * 10 + exchange.transfers()[t].parts);
    EXPECT_EQ(places, (std::vector<std::uint32_t>{12, 1, 32, 23}));
    EXPECT_EQ(exchange.rows()[0].sends, 0U);
    EXPECT_EQ(exchange.rows()[3].lane, 1U);
    EXPECT_EQ(exchange.rows()[3].end - exchange.rows()[3].begin, 2U);
    EXPECT_EQ(exchange.rows()[6].peer, 2U);
  }
}

TEST(Exchange, PartsAreAllThatThereIs) {
  for (const std::size_t bytes : kSizes)
    for (std::uint32_t parts = 1; parts <= 5; ++parts) {
      DeviceTransfer transfer;
      transfer.bytes = bytes;
      transfer.parts = parts;
      std::uint64_t end = 0;
      for (std::uint32_t lane = 0; lane < parts; ++lane) {
        const Range part = transfer.part(lane);
        EXPECT_EQ(part.begin, end) << bytes << " in " << parts;
        end = part.begin + part.count;
      }
      EXPECT_EQ(end, bytes) << parts;
    }
}

// ---- Regions that come and go ----

TEST(Exchange, MemoryBehindAClosedGateGoesThroughSlots) {
  for (const bool open : {false, true}) {
    HostWorld world(shape_of(2, 2, 1), 2);
    world.put_up_gates();
    world.set_gate(0, open ? 7 : 6);
    ExchangeTrial trial(world, {{0, 1, 3000, true}});
    trial.set_generation(7);
    EXPECT_EQ(play(world, trial, 1), "");
    EXPECT_EQ(world.messages_sent(0, 1, 0), open ? 1U : 6U);
    for (const Rank rank : {0, 1}) EXPECT_EQ(world.visits(rank, 0), 2U);
  }
}

// ---- Failures ----

constexpr std::uint64_t kSoonNs = 300'000'000;

TEST(ExchangeFailures, WhoDoesNotComeIsNamed) {
  for (const bool offered : {false, true})
    for (const Rank absent : {0, 1}) {
      HostWorld world(shape_of(3, 2, 2), 2);
      ExchangeTrial trial(world, {{2, 2, 5, offered}, {0, 1, 5000, offered}});
      trial.set_timeout(kSoonNs);
      Job job = trial.job();
      job.absent = absent;
      EXPECT_FALSE(world.run({&job, 1}));
      const Rank left = 1 - absent;
      const ErrorRecord error = world.error(left);
      EXPECT_EQ(error.why, Why::timeout);
      EXPECT_EQ(error.culprit, static_cast<std::uint32_t>(absent) + 1);
      EXPECT_EQ(error.peer, static_cast<std::uint32_t>(absent));
      EXPECT_EQ(error.work, Work::transfers);
      EXPECT_EQ(error.step, 0U);
      EXPECT_EQ(error.awaited, left == 1 ? Awaited::data
                               : offered ? Awaited::taken
                                         : Awaited::room);
      // Two slots of 512 bytes had room.
      EXPECT_EQ(error.slice, left == 0 && !offered ? 1024U : 0U);
      // Who has no business with it goes on.
      EXPECT_EQ(world.error(2).why, Why::none);
    }
}

TEST(ExchangeFailures, AnAbortEndsAllThatWait) {
  HostWorld world(shape_of(3, 2, 2), 2);
  ExchangeTrial trial(world, {{0, 1, 5000, false}, {1, 2, 5000, true}, {2, 1, 5000, true}});
  Job job = trial.job();
  job.exchanges[1] = nullptr;
  std::thread aborting([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    world.abort(2);
  });
  EXPECT_FALSE(world.run({&job, 1}));
  aborting.join();
  for (const Rank rank : {0, 2}) {
    EXPECT_EQ(world.error(rank).why, Why::aborted) << rank;
    EXPECT_EQ(world.error(rank).culprit, 3U) << rank;
  }
}

TEST(ExchangeFailures, AfterThemNobodyTellsPeersAnything) {
  HostWorld world(shape_of(2, 2, 2), 2);
  ExchangeTrial trial(world, {{0, 1, 100, false}});
  ASSERT_EQ(play(world, trial, 1), "");
  world.abort(0);
  const Job job = trial.job();
  EXPECT_FALSE(world.run({&job, 1}));
  EXPECT_EQ(world.error(0).why, Why::aborted);
  EXPECT_EQ(world.messages_sent(0, 1, 0), 1U);
}

// Nothing is written beside what a receiver has room for.
TEST(ExchangeFailures, SizesThatDifferAreAMismatch) {
  constexpr std::size_t kGranted = 3000;
  for (const bool offered : {false, true})
    for (const std::size_t other : {std::size_t{0}, kGranted - 1, kGranted + 1, 4 * kGranted}) {
      HostWorld world(shape_of(2, 2, 3), 2);
      ExchangeTrial trial(world, {{0, 1, 4 * kGranted, offered}, {1, 0, 20, offered}});
      trial.transfers(0)[0].bytes = kGranted;
      trial.transfers(1)[0].bytes = other;
      trial.set_timeout(20'000'000'000);  // it is not what ends it
      const Job job = trial.job();
      EXPECT_FALSE(world.run({&job, 1}));
      EXPECT_EQ(world.error(1).why, Why::mismatch) << other;
      EXPECT_EQ(world.error(1).culprit, 1U) << other;
      EXPECT_EQ(trial.beside(0, other), "") << other;
    }
}

// A peer may still be in a visit, and the host can see when it is not.
TEST(ExchangeFailures, ABlockThatHasLeftIsSeenToHaveLeft) {
  HostWorld world(shape_of(2, 2, 1), 2);
  world.put_up_gates();
  ExchangeTrial trial(world, {{0, 1, 3000, false}});
  trial.set_timeout(20'000'000);
  Job job = trial.job();
  job.absent = 0;
  EXPECT_FALSE(world.run({&job, 1}));
  EXPECT_EQ(world.visits(1, 0), 2U);
}

}  // namespace
}  // namespace tutti::runtime::gpu
