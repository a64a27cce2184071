// Whether large results go past the caches: by what calls took, and each kind and size by itself.
#include "runtime/stream_choice.hpp"

#include <gtest/gtest.h>

namespace tutti::runtime {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// How many of so many calls streamed, where a call takes that long one way or the other.
int streamed(StreamChoice& choice, Collective collective, std::size_t bytes, int calls,
             std::uint64_t cached, std::uint64_t streaming) {
  int count = 0;
  for (int call = 0; call < calls; ++call) {
    const bool streams = choice.streams(collective, bytes);
    choice.took(streams ? streaming : cached);
    count += streams ? 1 : 0;
  }
  return count;
}

TEST(StreamChoice, TheQuickerWayIsKeptForEachKindAndSize) {
  StreamChoice choice;
  streamed(choice, Collective::all_reduce, 16 * kMiB, 20, 1000, 800);
  streamed(choice, Collective::all_reduce, 4 * kMiB, 20, 800, 1000);
  streamed(choice, Collective::broadcast, 16 * kMiB, 20, 800, 1000);
  EXPECT_GE(streamed(choice, Collective::all_reduce, 17 * kMiB, 100, 1000, 800), 85);
  EXPECT_LE(streamed(choice, Collective::all_reduce, 4 * kMiB, 100, 800, 1000), 15);
  EXPECT_LE(streamed(choice, Collective::broadcast, 16 * kMiB, 100, 800, 1000), 15);
}

// What is in the caches is worth something to who reads it next.
TEST(StreamChoice, ItMustBeWorthIt) {
  StreamChoice choice;
  streamed(choice, Collective::all_gather, 8 * kMiB, 20, 1000, 970);
  EXPECT_LE(streamed(choice, Collective::all_gather, 8 * kMiB, 100, 1000, 970), 15);
}

TEST(StreamChoice, SumsMayGoPastTheCachesEarlier) {
  EXPECT_FALSE(StreamChoice::may_stream(Collective::reduce_scatter, kMiB - 1));
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    EXPECT_FALSE(StreamChoice::may_stream(collective, 4 * kMiB - 1));
    EXPECT_TRUE(StreamChoice::may_stream(collective, 4 * kMiB));
  }
  for (const std::size_t bytes : {kMiB, 2 * kMiB, 4 * kMiB}) {
    StreamChoice choice;
    streamed(choice, Collective::reduce_scatter, bytes, 20, 1000, 970);
    EXPECT_LE(streamed(choice, Collective::reduce_scatter, bytes, 100, 1000, 970), 15);
    StreamChoice much;
    streamed(much, Collective::reduce_scatter, bytes, 20, 1000, 920);
    EXPECT_GE(streamed(much, Collective::reduce_scatter, bytes, 100, 1000, 920), 85);
  }
}

// Others disturb some calls in a row, and the first one that does not stream after some that did
// finds nothing in the caches.
TEST(StreamChoice, DisturbancesAreGotOver) {
  StreamChoice choice;
  bool streamed_before = false;
  int count = 0;
  for (int call = 0; call < 1000; ++call) {
    const bool streams = choice.streams(Collective::reduce_scatter, 8 * kMiB);
    const std::uint64_t usual = streams ? 550 : streamed_before ? 900 : 400;
    choice.took(call % 50 < 8 ? usual + 400 : usual);
    count += streams ? 1 : 0;
    streamed_before = streams;
  }
  EXPECT_LE(count, 250);
}

// The calls that find out how to copy are not all of one way.
TEST(StreamChoice, BothWaysAreTriedByTurns) {
  StreamChoice choice;
  for (const bool streams : {false, true, false, true}) {
    EXPECT_EQ(choice.streams(Collective::all_to_all, 4 * kMiB), streams);
    choice.took(1000);
  }
}

}  // namespace
}  // namespace tutti::runtime
