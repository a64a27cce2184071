// A descriptor has one owner, who closes it once.
#include "base/descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tutti::base {
namespace {

Descriptor open_something() { return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool exists(int number) { return fcntl(number, F_GETFD) >= 0; }

TEST(Descriptor, IsClosedWhenItsOwnerGoes) {
  int number = -1;
  {
    const Descriptor owner = open_something();
    number = owner.number();
    EXPECT_TRUE(owner.open() && exists(number));
  }
  EXPECT_FALSE(exists(number));
}

TEST(Descriptor, MovesWithoutBeingClosed) {
  Descriptor first = open_something();
  const int number = first.number();
  Descriptor second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(second.number(), number);
  Descriptor third = open_something();
  const int other = third.number();
  third = std::move(second);
  EXPECT_FALSE(exists(other)) << "what an owner gives up is closed at once";
  EXPECT_TRUE(exists(number));
  Descriptor& same = third;
  third = std::move(same);
  EXPECT_TRUE(exists(number));
  third.close();
  third.close();
  EXPECT_FALSE(third.open() || exists(number));
}

TEST(Descriptor, NoneIsNothing) {
  const Descriptor none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.number(), -1);
}

}  // namespace
}  // namespace tutti::base
