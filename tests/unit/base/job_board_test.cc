// The launcher's board: what is noted is seen, and nobody but its maker can write it.
#include "base/job_board.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tutti::base {
namespace {

TEST(JobBoard, WhatIsNotedIsSeen) {
  auto made = JobBoard::make(3);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  auto seen = JobBoard::open((*made)->path(), 3);
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  for (Rank r = 0; r < 3; ++r) EXPECT_FALSE((*seen)->ending(r));
  (*made)->note(0, RankEnding{});
  (*made)->note(1, RankEnding{3, 0});
  (*made)->note(2, RankEnding{0, 9});
  EXPECT_EQ((*seen)->ending(0), RankEnding{});
  EXPECT_FALSE((*seen)->ending(0)->failed());
  EXPECT_EQ((*seen)->ending(1)->describe(), "exited with code 3");
  EXPECT_EQ((*seen)->ending(1)->exit_code(), 3);
  EXPECT_EQ((*seen)->ending(2)->describe(), "was killed by signal 9 (Killed)");
  EXPECT_EQ((*seen)->ending(2)->exit_code(), 137);
  EXPECT_FALSE((*seen)->ending(3));
  EXPECT_FALSE((*seen)->ending(-1));
}

TEST(JobBoard, OthersCannotWrite) {
  auto made = JobBoard::make(1);
  ASSERT_TRUE(made.ok());
  const Descriptor file(open((*made)->path().c_str(), O_RDWR | O_CLOEXEC));
  if (!file.open()) return;
  EXPECT_LT(write(file.number(), "x", 1), 0);
  EXPECT_LT(ftruncate(file.number(), 0), 0);
  EXPECT_EQ(mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0), MAP_FAILED);
}

TEST(JobBoard, WhatIsNoBoardIsRefused) {
  EXPECT_EQ(JobBoard::open("/does/not/exist", 1).status().code(), StatusCode::system_error);
  EXPECT_EQ(JobBoard::open("/proc/self/exe", 1).status().code(), StatusCode::corrupt_data);
  auto small = JobBoard::make(2);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(JobBoard::open((*small)->path(), 3).status().code(), StatusCode::corrupt_data);
  // Sealed and large enough, but something else.
  const Descriptor other(memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(other.number(), 64), 0);
  fcntl(other.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  const auto path = "/proc/self/fd/" + std::to_string(other.number());
  EXPECT_EQ(JobBoard::open(path, 1).status().code(), StatusCode::corrupt_data);
}

}  // namespace
}  // namespace tutti::base
