// Calls of which memory is copied by the system: in one process, where every algorithm can be
// shown, and between processes in which the same addresses mean different memory.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/splitmix.hpp"
#include "unit/runtime/processes.hpp"
#include "unit/runtime/rounds.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

constexpr std::size_t kCount = 2503;        // of 8 bytes: just enough to be worth it
constexpr std::size_t kManyPieces = 50021;  // of which sums are made one by one

bool never() { return false; }

bool has_data(Collective collective) {
  return collective != Collective::send_recv && collective != Collective::barrier;
}

// A few calls of every algorithm. `check` gets what was copied in them.
template <typename Check>
void for_every_algorithm(int ranks, const PrivateTransport::Shares& shares, Check check) {
  for (const collectives::Algorithm& algorithm : collectives::all_algorithms())
    for (const std::size_t frame_bytes : {std::size_t{4096}, std::size_t{65536}})
      for (const bool in_place : {false, true}) {
        if (!has_data(algorithm.collective) || algorithm.grouped ||
            !algorithm.shape(ranks, 0, collectives::GroupSizes(1)).ok() ||
            (in_place && !can_run_in_place(algorithm.collective)))
          continue;
        SCOPED_TRACE(std::string(algorithm.name) + " " +
                     std::string(to_string(algorithm.collective)) + " ranks " +
                     std::to_string(ranks) + " frames " + std::to_string(frame_bytes) +
                     (in_place ? " in place" : ""));
        Attached attached;
        Rounds rounds({algorithm.collective, algorithm.name, true, true, frame_bytes, &attached},
                      ranks, kCount, in_place, shares);
        for (int call = 0; call < 4; ++call)
          ASSERT_NO_FATAL_FAILURE(rounds.together([call](Rank) { return 3 * call; }));
        check(algorithm, attached.copies);
      }
}

TEST(Attached, EveryAlgorithmBringsTheSame) {
  for (const int ranks : {2, 3, 5})
    for_every_algorithm(ranks, never, [&](const auto& algorithm, std::size_t copies) {
      // Whose buffers stay as they are while others add to theirs, queues what it sends.
      const bool all_queued = algorithm.name == "one_shot" ||
                              (algorithm.name == "doubling" && is_reduction(algorithm.collective));
      EXPECT_EQ(copies > 0, (ranks == 2 && !all_queued) || algorithm.all_meet());
    });
}

// Whatever of the memory peers can address besides.
TEST(Attached, BesideSharedMemoryToo) {
  for (const int ranks : {2, 3, 4}) {
    collectives::SplitMix random(static_cast<std::uint64_t>(ranks));
    for_every_algorithm(
        ranks, [&] { return random.next() % 2 == 0; }, [](const auto&, std::size_t) {});
  }
}

// More than is added at once, whose end is no full piece; also where results go past the caches.
TEST(Attached, LongSumsAreMadeByPieces) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
    for (const bool in_place : {false, true})
      for (const std::size_t streaming_bytes : {std::size_t{0}, std::size_t{1} << 30}) {
        Attached attached;
        Rounds rounds({collective, "direct", true, true, 65536, &attached, streaming_bytes}, 2,
                      kManyPieces, in_place, never);
        for (int call = 0; call < 3; ++call)
          ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 1; }));
        EXPECT_GE(attached.copies, 3 * kManyPieces * sizeof(std::int64_t) / (128U << 10));
      }
}

std::size_t copies_in(Collective collective, std::size_t count, bool pulls, bool direct) {
  Attached attached;
  Rounds rounds({collective, "direct", direct, pulls, 65536, &attached}, 2, count, false, never);
  for (int call = 0; call < 3; ++call) rounds.together([](Rank) { return 1; });
  return attached.copies;
}

TEST(Attached, OnlyLargeCopiesOfDirectCallsThatPull) {
  EXPECT_GT(copies_in(Collective::all_gather, 2048, true, true), 0U);
  EXPECT_EQ(copies_in(Collective::all_gather, 2047, true, true), 0U);
  EXPECT_EQ(copies_in(Collective::all_gather, 2048, false, true), 0U);
  EXPECT_EQ(copies_in(Collective::all_gather, 2048, true, false), 0U);
  EXPECT_GT(copies_in(Collective::all_reduce, 2048, true, true), 0U);
  EXPECT_EQ(copies_in(Collective::all_reduce, 2047, true, true), 0U);
}

// Without a wish, the leader finds out; a call is as good either way, and both are tried.
TEST(Attached, BothWaysAreTried) {
  Attached attached;
  Calls calls{Collective::broadcast, "direct", true, false, 65536, &attached};
  Rounds rounds(calls, 2, kCount, false, never, /*agree=*/true);
  std::size_t with = 0;
  for (int call = 0; call < 150; ++call) {
    const std::size_t before = attached.copies;
    ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 1; }));
    EXPECT_FALSE(call < 60 && attached.copies > before) << "queues come first";
    with += attached.copies > before ? 1 : 0;
  }
  EXPECT_GE(with, 60U);
}

// Who makes but a few calls so long is not to make some of them only to find out.
TEST(Attached, LongBroadcastsGoSoFromTheSecondCallOn) {
  constexpr std::size_t kLongCount = (std::size_t{8} << 20) / sizeof(std::int64_t);
  Attached attached;
  Calls calls{Collective::broadcast, "cooperative", true, false, 65536, &attached};
  Rounds rounds(calls, 2, kLongCount, false, never, /*agree=*/true);
  ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 1; }));
  EXPECT_EQ(attached.copies, 0U);
  ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 1; }));
  EXPECT_GT(attached.copies, 0U);
}

// Whether there is anything to choose may change with every call: all go the same way still.
TEST(Attached, PlainMemoryAndSharedTakeTurns) {
  for (const auto& [collective, shared_calls] :
       {std::pair(Collective::all_reduce, 1), std::pair(Collective::all_gather, 3)}) {
    Attached attached;
    bool shares = false;
    Calls calls{collective, "direct", true, false, 65536, &attached};
    Rounds rounds(
        calls, 2, 12 * kCount, false, [&] { return shares; }, /*agree=*/true);
    for (int call = 0; call < 90; ++call) {
      shares = call > 50 && call % 4 < shared_calls;
      ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 1; })) << call;
    }
    EXPECT_GT(attached.copies, 0U) << to_string(collective);
  }
}

// Nobody may be told that it is there.
TEST(Attached, WhatTheSystemRefusesEndsTheCall) {
  for (const Collective collective :
       {Collective::all_gather, Collective::broadcast, Collective::all_reduce, Collective::reduce})
    for (const std::size_t frame_bytes : {std::size_t{4096}, std::size_t{65536}})
      for (const int good_calls : {0, 3}) {
        Attached attached;
        Rounds rounds({collective, "direct", true, true, frame_bytes, &attached}, 2, kCount, false,
                      never);
        for (int call = 0; call < good_calls; ++call)
          ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 1; }));
        attached.answer = [] { return Status(StatusCode::system_error, "no such memory"); };
        rounds.one_that_fails();
        int knowing = 0;  // the other one is told only that there was a failure, and which kind
        for (const Rank rank : {0, 1}) {
          const Status& status = rounds.executor(rank).status();
          EXPECT_EQ(status.code(), StatusCode::system_error);
          knowing += status.message().find("no such memory") != std::string::npos ? 1 : 0;
        }
        EXPECT_GE(knowing, 1);
      }
}

// In calls that are cut and in such that are not.
TEST(Attached, NobodyIsToldOfWhatWasNotCopied) {
  for (const int ranks : {2, 3})
    for (const Collective collective : {Collective::all_gather, Collective::all_reduce}) {
      Attached attached;
      attached.answer = [] { return Status(StatusCode::system_error, "no such memory"); };
      Rounds rounds({collective, "direct", true, true, 4096, &attached}, ranks, kCount, false,
                    never);
      rounds.one_that_fails();
      for (Rank by = 0; by < ranks; ++by)
        for (Rank from = 0; from < ranks; ++from) {
          if (by == from) continue;
          EXPECT_EQ(rounds.heard(by, from, Signal::taken), 0U) << by << " by " << from;
          EXPECT_EQ(rounds.heard(by, from, Signal::produced), 0U) << by << " by " << from;
        }
    }
}

// ---- Between processes ----

// At the same address in all processes that are forked from this one.
constexpr std::size_t kWords = std::size_t{3} << 17;
std::uint64_t words[kWords];

std::uint64_t word_of(Rank rank, int call, std::size_t i) {
  return i * 2654435761U + static_cast<std::uint64_t>(rank * 1009 + call);
}

// The block of each rank where all_gather in place has it.
bool gathers_in_place(Communicator& comm, std::size_t count, int call) {
  const std::size_t mine = static_cast<std::size_t>(comm.rank()) * count;
  std::fill(words, words + kWords, 0);
  for (std::size_t i = 0; i < count; ++i) words[mine + i] = word_of(comm.rank(), call, i);
  if (!comm.all_gather(words + mine, words, count, DataType::uint64).ok()) return false;
  for (Rank rank = 0; rank < comm.size(); ++rank)
    for (std::size_t i = 0; i < count; ++i)
      if (words[static_cast<std::size_t>(rank) * count + i] != word_of(rank, call, i)) return false;
  return true;
}

bool broadcasts_in_place(Communicator& comm, std::size_t count, int call) {
  const Rank root = call % comm.size();
  for (std::size_t i = 0; i < count; ++i)
    words[i] = comm.rank() == root ? word_of(root, call, i) : 0;
  if (!comm.broadcast(words, words, count, DataType::uint64, root).ok()) return false;
  for (std::size_t i = 0; i < count; ++i)
    if (words[i] != word_of(root, call, i)) return false;
  return true;
}

// What has no rounding: small whole numbers, of which an average over two ranks has a half.
template <typename T>
bool sums_in_place(Communicator& comm, std::size_t count, int call, DataType type, ReduceOp op) {
  const auto value = [&](Rank rank, std::size_t i) {
    return static_cast<double>((i + static_cast<std::size_t>(7 * rank + call)) % 11);
  };
  T* const values = reinterpret_cast<T*>(words);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(value(comm.rank(), i));
  if (!comm.all_reduce(values, values, count, type, op).ok()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    double right = 0;
    for (Rank rank = 0; rank < comm.size(); ++rank)
      right = op == ReduceOp::max ? std::max(right, value(rank, i)) : right + value(rank, i);
    if (op == ReduceOp::avg) right /= comm.size();
    if (values[i] != static_cast<T>(right)) return false;
  }
  return true;
}

// Values of 24 bytes, of which no whole number fits a piece, in an order that matters.
struct Affine {
  std::uint64_t slope;
  std::uint64_t offset;
  std::uint64_t maps;

  friend bool operator==(const Affine&, const Affine&) = default;
};

Affine then(const Affine& a, const Affine& b) {
  return {a.slope * b.slope, b.slope * a.offset + b.offset, a.maps + b.maps};
}

void compose(const void* left, const void* right, void* result, std::size_t count, DataType) {
  const auto* a = static_cast<const Affine*>(left);
  const auto* b = static_cast<const Affine*>(right);
  for (std::size_t i = 0; i < count; ++i) static_cast<Affine*>(result)[i] = then(a[i], b[i]);
}

bool composes_in_place(Communicator& comm, std::size_t count, int call) {
  const auto map_of = [call](Rank rank, std::size_t i) {
    return Affine{2 * i + 3, i * 31 + static_cast<std::uint64_t>(rank * 17 + call), 1};
  };
  auto* const maps = reinterpret_cast<Affine*>(words);
  for (std::size_t i = 0; i < count; ++i) maps[i] = map_of(comm.rank(), i);
  if (!comm.all_reduce(words, words, 3 * count, DataType::uint64,
                       Reduction::custom("affine", compose, 3))
           .ok())
    return false;
  for (std::size_t i = 0; i < count; ++i)
    if (!(maps[i] == then(map_of(0, i), map_of(1, i)))) return false;
  return true;
}

// So many that both ways are tried.
int calls_for_both_ways(std::size_t bytes) {
  return 10 + static_cast<int>(std::min<std::size_t>((10U << 20) / bytes, 150));
}

CommunicatorOptions over_shared_memory() {
  CommunicatorOptions options;
  options.transport = "shm";
  return options;
}

// A place of a peer's is not a place of one's own because the numbers are equal.
TEST(AttachedProcesses, TheSameAddressesAreOtherMemory) {
  EXPECT_TRUE(on_processes(2, over_shared_memory(), [](Communicator& comm) {
    for (const std::size_t count : {std::size_t{2048}, std::size_t{10'007}, kWords / 2})
      for (int call = 0; call < calls_for_both_ways(count * sizeof(words[0])); ++call)
        if (!gathers_in_place(comm, count, call) || !broadcasts_in_place(comm, count, call))
          return false;
    return true;
  }));
}

TEST(AttachedProcesses, SumsOfEveryWidth) {
  EXPECT_TRUE(on_processes(2, over_shared_memory(), [](Communicator& comm) {
    for (int call = 0; call < calls_for_both_ways(300'000); ++call)
      if (!sums_in_place<float>(comm, 75'011, call, DataType::float32, ReduceOp::avg) ||
          !sums_in_place<double>(comm, 40'009, call, DataType::float64, ReduceOp::sum) ||
          !sums_in_place<std::uint8_t>(comm, 300'007, call, DataType::uint8, ReduceOp::max) ||
          !sums_in_place<std::int32_t>(comm, 75'013, call, DataType::int32, ReduceOp::sum) ||
          !composes_in_place(comm, 15'013, call))
        return false;
    return true;
  }));
}

TEST(AttachedProcesses, WhoDoesNotWantItIsLeftAlone) {
  const auto without = [](Rank rank) {
    if (rank == 1) setenv("TUTTI_ATTACH", "0", 1);
  };
  EXPECT_TRUE(on_processes(
      2, over_shared_memory(),
      [](Communicator& comm) {
        for (int call = 0; call < 12; ++call)
          if (!gathers_in_place(comm, 20'000, call)) return false;
        return true;
      },
      without));
}

// Rank 1 dies at any moment of rank 0's copies from its memory and to it.
TEST(AttachedProcesses, AKilledPeerIsNamed) {
  for (int round = 0; round < 8; ++round) {
    SharedMemory shared(sizeof(int));
    on_processes(2, over_shared_memory(), [&](Communicator& comm) {
      if (comm.rank() == 1) {
        const pid_t parent = getpid();
        if (fork() == 0) {
          usleep(static_cast<useconds_t>(40'000 + 1'300 * round));
          kill(parent, SIGKILL);
          _exit(0);
        }
      }
      Status status;
      const std::size_t half = kWords / 2;
      const std::size_t mine = static_cast<std::size_t>(comm.rank()) * half;
      for (int call = 0; status.ok(); ++call)
        status = call % 3 == 0 ? comm.all_gather(words + mine, words, half, DataType::uint64)
                 : call % 3 == 1
                     ? comm.all_reduce(words, words, kWords, DataType::uint64, ReduceOp::sum)
                     : comm.broadcast(words, words, kWords, DataType::uint64, call % 2);
      const bool named = status.code() == StatusCode::peer_lost && status.culprit() == 1;
      if (!named) std::fprintf(stderr, "%s\n", status.to_string().c_str());
      shared.as<int>()[0] = named ? 1 : 2;
      return named;
    });
    EXPECT_EQ(shared.as<int>()[0], 1) << "round " << round;
  }
}

}  // namespace
}  // namespace tutti::runtime
