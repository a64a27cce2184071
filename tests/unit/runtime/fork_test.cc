// A program that forks while it has communicators: the child is refused, harms nobody, and can make
// a communicator of its own; the parent goes on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti {
namespace {

// What the child found wrong: 0 for nothing.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(Fork, AChildIsRefusedAndTheParentGoesOn) {
  auto made = Communicator::for_threads(2);
  ASSERT_TRUE(made.ok());
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE((*made)[1].barrier().ok());
  });
  Communicator& mine = (*made)[0];
  ASSERT_TRUE(mine.barrier().ok());
  EXPECT_EQ(in_child([&] {
              if (mine.barrier().code() != StatusCode::invalid_argument) return 1;
              if (mine.barrier_async().status().code() != StatusCode::invalid_argument) return 2;
              if (mine.agree(1).status().code() != StatusCode::invalid_argument) return 3;
              if (mine.shrink().status().code() != StatusCode::invalid_argument) return 4;
              if (mine.split(0).status().code() != StatusCode::invalid_argument) return 5;
              mine.abort();
              if (mine.revoke().code() != StatusCode::invalid_argument) return 6;
              return 0;
            }),
            0);
  ASSERT_TRUE(mine.barrier().ok());
  // Destroyed in the child, it says goodbye to nobody.
  EXPECT_EQ(in_child([&] {
              mine = Communicator();
              return 0;
            }),
            0);
  ASSERT_TRUE(mine.barrier().ok());
  other.join();
}

TEST(Fork, AChildMakesItsOwn) {
  auto made = Communicator::for_threads(1);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(in_child([] {
              auto own = Communicator::for_threads(2);
              if (!own.ok()) return 1;
              bool fine = false;
              std::thread other([&] { fine = (*own)[1].barrier().ok(); });
              const bool mine = (*own)[0].barrier().ok();
              other.join();
              return fine && mine ? 0 : 2;
            }),
            0);
  EXPECT_TRUE((*made)[0].barrier().ok());
}

}  // namespace
}  // namespace tutti
