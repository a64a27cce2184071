// A descriptor has one owner, who closes it once.
#include "base/descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

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

// As many as it brings, and none where it brings something else.
TEST(Descriptor, ThoseOfAMessageAreTaken) {
  int pair[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const Descriptor here(pair[0]);
  const Descriptor there(pair[1]);
  for (const std::size_t count : {0U, 1U, 3U}) {
    char byte = 'x';
    iovec data = {&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(3 * sizeof(int))> control = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    std::vector<Descriptor> sent;
    if (count > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(count * sizeof(int));
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(count * sizeof(int));
      for (std::size_t i = 0; i < count; ++i) {
        sent.push_back(open_something());
        const int number = sent.back().number();
        std::memcpy(CMSG_DATA(rights) + i * sizeof number, &number, sizeof number);
      }
    }
    ASSERT_EQ(sendmsg(here.number(), &message, 0), 1);
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ASSERT_EQ(recvmsg(there.number(), &message, MSG_CMSG_CLOEXEC), 1);
    const auto taken = take_descriptors(message);
    EXPECT_EQ(taken.size(), count);
    for (const Descriptor& one : taken) EXPECT_TRUE(exists(one.number()));
  }
}

TEST(Descriptor, NoneIsNothing) {
  const Descriptor none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.number(), -1);
}

}  // namespace
}  // namespace tutti::base
