// What tests with ranks as processes rely on.
#include "unit/runtime/processes.hpp"

#include <gtest/gtest.h>

#include "tutti/tutti.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

// A port that listens for the test, as any other process of the machine may just then.
class TakenPort {
 public:
  TakenPort() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        listen(listener_, 1) == 0 &&
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
      number_ = ntohs(address.sin_port);
  }
  ~TakenPort() { close(listener_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;

  int number() const { return number_; }

 private:
  int listener_;
  int number_ = 0;
};

TEST(OnProcesses, AnotherPortIsTakenWhereOneIsTaken) {
  const TakenPort taken;
  ASSERT_GT(taken.number(), 0);
  int asked = 0;
  const auto port = [&] { return asked++ == 0 ? taken.number() : free_port(); };
  EXPECT_TRUE(on_processes(
      2, {}, [](Communicator& comm) { return comm.barrier().ok(); }, nullptr, port));
  EXPECT_GE(asked, 2);
}

TEST(OnProcesses, WhatARankSaysIsHeard) {
  for (const Rank bad : {-1, 0, 1})
    EXPECT_EQ(on_processes(2, {}, [&](Communicator& comm) { return comm.rank() != bad; }),
              bad == -1);
}

}  // namespace
}  // namespace tutti::runtime
