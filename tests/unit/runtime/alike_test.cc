// What several peers get alike, through queues: written once, in every algorithm that has such
// steps, whether a call is cut into slices or not.
#include <gtest/gtest.h>

#include <string>

#include "unit/runtime/rounds.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

bool never() { return false; }

bool has_data(Collective collective) {
  return collective != Collective::send_recv && collective != Collective::barrier;
}

// Calls of one algorithm between buffers that no peer can address; returns what rank 0 wrote once.
std::size_t written_once(const Calls& calls, int ranks, std::size_t count,
                         const PrivateTransport::Shares& shares = never) {
  Rounds rounds(calls, ranks, count, false, shares);
  for (int call = 0; call < 4; ++call) {
    rounds.together([call](Rank rank) { return (rank + call) % 3; });
    if (::testing::Test::HasFatalFailure()) return 0;
  }
  return rounds.written_once(0);
}

TEST(Alike, EveryAlgorithmBringsTheSame) {
  for (const collectives::Algorithm& algorithm : collectives::all_algorithms())
    for (const int ranks : {3, 4, 5, 8})
      for (const std::size_t count : {601UL, 5003UL}) {
        const int group = algorithm.grouped ? ranks / 2 : 1;
        if (!has_data(algorithm.collective) || !algorithm.shape(ranks, 0, group).ok()) continue;
        SCOPED_TRACE(std::string(algorithm.name) + " " +
                     std::string(to_string(algorithm.collective)) + " ranks " +
                     std::to_string(ranks) + " of " + std::to_string(count));
        for (const bool direct : {true, false}) {
          Calls calls{algorithm.collective, algorithm.name, direct, false, 8192};
          calls.group = group;
          ASSERT_NO_FATAL_FAILURE(written_once(calls, ranks, count));
        }
      }
}

TEST(Alike, IsWrittenOnce) {
  const auto once = [](std::string_view algorithm, std::size_t count, std::size_t frame_bytes) {
    return written_once({Collective::all_reduce, algorithm, true, false, frame_bytes}, 4, count);
  };
  EXPECT_EQ(once("direct", 4096, 65536), 4U) << "one slice in each of four calls";
  EXPECT_EQ(once("direct", 16384, 8192), 4U * 4U) << "four slices";
  EXPECT_EQ(once("direct", 1024, 65536), 0U) << "short messages have cells";
  EXPECT_EQ(once("ring", 16384, 8192), 0U) << "nobody gets what another one gets";
}

// Also where it is the first that peers get in a call, and has the call's record before it.
TEST(Alike, BeginsACall) {
  const auto once = [](std::string_view algorithm, std::size_t count, std::size_t frame_bytes) {
    Calls calls{Collective::all_reduce, algorithm, false, false, frame_bytes};
    calls.group = 2;
    return written_once(calls, 4, count);
  };
  EXPECT_EQ(once("leaders_one_shot", 4096, 65536), 4U) << "one slice in each of four calls";
  EXPECT_EQ(once("leaders_direct", 4096, 65536), 4U) << "to another leader it is the second";
  EXPECT_EQ(once("one_shot", 4096, 65536), 4U);
  EXPECT_EQ(once("one_shot", 1024, 8192), 0U) << "the record does not fit besides";
  EXPECT_GT(once("one_shot", 5003, 8192), 4U) << "the first slice, or only those after it";
}

// From the second call on it lies where the other leader's sum came, in slices or not; short ones
// have cells of their own.
TEST(Alike, TakesThePlaceOfWhatItIsMadeOf) {
  const auto in_place = [](std::string_view algorithm, std::size_t count, std::size_t frame_bytes) {
    Calls calls{Collective::all_reduce, algorithm, false, false, frame_bytes};
    calls.group = 2;
    Rounds rounds(calls, 4, count, false, never);
    for (int call = 0; call < 12; ++call) rounds.all_the_general_way();
    return rounds.written_in_place(0);
  };
  EXPECT_EQ(in_place("leaders_direct", 8192, 65536), 11U);
  EXPECT_EQ(in_place("leaders_in_order", 8192, 65536), 11U);
  EXPECT_GT(in_place("leaders_direct", 16384, 8192), 11U) << "four slices";
  EXPECT_EQ(in_place("leaders_direct", 1024, 65536), 0U);
  EXPECT_EQ(in_place("leaders_one_shot", 8192, 65536), 0U) << "others need what it came from";
}

// More slices than have places: some go through queues one by one, and then there is no room at
// all.
TEST(Alike, GoesOnWhereNothingHasRoom) {
  const std::size_t once =
      written_once({Collective::all_gather, "direct", true, false, 8192}, 4, 20011);
  EXPECT_GT(once, 4U * 4U);
  EXPECT_LT(once, 4U * 20U) << "the test's premise";
}

// Where some peers can address a buffer and others cannot, each message goes its way.
TEST(Alike, MixesWithWhatIsStoredDirectly) {
  for (const std::size_t count : {4096UL, 10007UL})
    for (const int nth : {2, 3, 5}) {
      int shown = 0;
      ASSERT_NO_FATAL_FAILURE(written_once({Collective::all_reduce, "direct", true, false, 8192}, 5,
                                           count, [&] { return ++shown % nth == 0; }));
    }
}

}  // namespace
}  // namespace tutti::runtime
