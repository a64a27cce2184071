// What a ticket gets, while its offer stands and afterwards.
#include "runtime/world_offer.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace tutti::runtime {
namespace {

std::shared_ptr<transport::MemoryWorld> make_world(int size) {
  transport::TransportOptions options;
  options.size = size;
  return transport::MemoryWorld::make(options);
}

TEST(WorldOffer, IsTakenByItsTicketAsOftenAsOneLikes) {
  const WorldOffer two(make_world(2));
  const WorldOffer three(make_world(3));
  EXPECT_EQ(two.ticket().size(), 8U);
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(WorldOffer::take(two.ticket()), nullptr);
    EXPECT_EQ(WorldOffer::take(two.ticket())->size(), 2);
    EXPECT_EQ(WorldOffer::take(three.ticket())->size(), 3);
  }
}

TEST(WorldOffer, IsNothingOnceItHasEndedAndWhatWasTakenStays) {
  std::optional<WorldOffer> offer(make_world(2));
  const std::string ticket = offer->ticket();
  const auto taken = WorldOffer::take(ticket);
  offer.reset();
  EXPECT_EQ(WorldOffer::take(ticket), nullptr);
  EXPECT_EQ(taken->size(), 2);
  const WorldOffer next(make_world(3));
  EXPECT_EQ(WorldOffer::take(ticket), nullptr);  // nor is another given for it
}

TEST(WorldOffer, KnowsNoTicketThatIsNone) {
  const WorldOffer offer(make_world(2));
  EXPECT_EQ(WorldOffer::take({}), nullptr);
  EXPECT_EQ(WorldOffer::take("7"), nullptr);
  EXPECT_EQ(WorldOffer::take(std::string(8, '\xff')), nullptr);
  EXPECT_EQ(WorldOffer::take(offer.ticket() + '\0'), nullptr);
}

}  // namespace
}  // namespace tutti::runtime
