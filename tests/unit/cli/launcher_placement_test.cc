// launcher_placement_test.cc: which rank gets which cores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cli/launcher/placement.hpp"

namespace tutti::cli::launcher {
namespace {

using base::Core;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Four cores with two hardware threads each, numbered as Linux does.
const std::vector<Core> kCores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};

TEST(Place, AutomaticSharesOutTheCores) {
  EXPECT_THAT(*place(kCores, 1, Binding::automatic),
              ElementsAre(ElementsAre(0, 4, 1, 5, 2, 6, 3, 7)));
  EXPECT_THAT(*place(kCores, 2, Binding::automatic),
              ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
  EXPECT_THAT(*place(kCores, 3, Binding::automatic),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6, 3, 7)));
  EXPECT_THAT(
      *place(kCores, 4, Binding::automatic),
      ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
}

TEST(Place, MoreRanksThanCoresTakeHardwareThreads) {
  EXPECT_THAT(*place(kCores, 8, Binding::automatic),
              ElementsAre(ElementsAre(0), ElementsAre(4), ElementsAre(1), ElementsAre(5),
                          ElementsAre(2), ElementsAre(6), ElementsAre(3), ElementsAre(7)));
  EXPECT_THAT(
      *place(kCores, 5, Binding::core),
      ElementsAre(ElementsAre(0), ElementsAre(4), ElementsAre(1), ElementsAre(5), ElementsAre(2)));
}

TEST(Place, CoreTakesExactlyOne) {
  EXPECT_THAT(*place(kCores, 2, Binding::core), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5)));
}

TEST(Place, NoneIsNotBound) {
  EXPECT_THAT(*place(kCores, 2, Binding::none), ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_THAT(*place(kCores, 9, Binding::none), testing::Each(IsEmpty()));
}

TEST(Place, MoreRanksThanHardwareThreadsShareThemEvenly) {
  const std::vector<Core> two = {{3}, {7}};
  EXPECT_THAT(
      *place(two, 5, Binding::automatic),
      ElementsAre(ElementsAre(3), ElementsAre(3), ElementsAre(3), ElementsAre(7), ElementsAre(7)));
  const auto places = *place(kCores, 20, Binding::automatic);
  std::map<int, int> ranks_of;
  for (const auto& place : places) {
    ASSERT_EQ(place.size(), 1U);
    ++ranks_of[place.front()];
  }
  EXPECT_EQ(ranks_of.size(), 8U);
  for (const auto& [thread, ranks] : ranks_of) EXPECT_THAT(ranks, testing::AnyOf(2, 3)) << thread;
}

TEST(Place, CoreRefusesTooManyRanks) {
  const auto places = place(kCores, 9, Binding::core);
  ASSERT_FALSE(places.ok());
  EXPECT_EQ(places.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(places.status().message(), HasSubstr("9 ranks have 8 hardware threads"));
}

}  // namespace
}  // namespace tutti::cli::launcher
