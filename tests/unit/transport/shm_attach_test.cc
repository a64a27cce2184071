// Memory of other processes that the system copies: who reaches whom, what is told of failures, and
// that an owner who withdraws waits for those who write, and for nobody else.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "transport/shm/attach.hpp"

namespace tutti::transport::shm {
namespace {

constexpr std::size_t kBytes = 10'000;

// Rank 0 is the test, rank 1 a child of it that only exists. Before it is made, memory of both is
// alike; afterwards each has its own.
class AttachTest : public testing::Test {
 protected:
  AttachTest() : memory_(kBytes, 'a') {
    board_ = mmap(nullptr, 2 * sizeof(AttachSeat), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seats_ = static_cast<AttachSeat*>(board_);
    for (int rank = 0; rank < 2; ++rank) {
      addresses_.push_back(make_address());
      tokens_.push_back(std::make_unique<std::string>(addresses_.back().token));
      addresses_.back().token_at = reinterpret_cast<std::uintptr_t>(tokens_.back()->data());
    }
    child_ = fork();
    if (child_ == 0)
      while (true) pause();
    addresses_[1].pid = child_;
  }
  ~AttachTest() override {
    end_child();
    munmap(board_, 2 * sizeof(AttachSeat));
  }

  void end_child() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

  // The child would say so of itself.
  void let_child_reach() {
    seats_[1].said.verdict = static_cast<std::uint32_t>(AttachVerdict::possible);
  }

  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory_.data()); }
  std::uint64_t there() { return reinterpret_cast<std::uintptr_t>(memory_.data()); }

  void* board_;
  AttachSeat* seats_;
  std::vector<Address> addresses_;
  std::vector<std::unique_ptr<std::string>> tokens_;
  std::string memory_;
  pid_t child_ = 0;
};

TEST_F(AttachTest, CopiesBothWays) {
  Attach attach(seats_, 0, addresses_);
  EXPECT_FALSE(attach.reaches(1));
  attach.probe(true);
  EXPECT_FALSE(attach.reaches(1)) << "the other one has not said so";
  EXPECT_FALSE(attach.all_reach());
  let_child_reach();
  EXPECT_TRUE(attach.reaches(1));
  EXPECT_TRUE(attach.all_reach());
  memory_.assign(kBytes, 'b');
  ASSERT_TRUE(attach.write(1, there() + 1, bytes(), 3).ok());
  ASSERT_TRUE(attach.read(1, bytes(), there(), kBytes).ok());
  EXPECT_EQ(memory_, "abbb" + std::string(kBytes - 4, 'a'));
  EXPECT_EQ(seats_[0].doing.writes_to, 0U);
}

TEST_F(AttachTest, WhoIsNotWhoItSeemsIsNotReached) {
  const auto reaches = [&](const std::vector<Address>& addresses, bool wanted = true) {
    let_child_reach();
    Attach attach(seats_, 0, addresses);
    attach.probe(wanted);
    return attach.reaches(1) || attach.all_reach();
  };
  EXPECT_TRUE(reaches(addresses_));
  EXPECT_FALSE(reaches(addresses_, false)) << "not wanted";
  std::vector<Address> others = addresses_;
  others[1].token = std::string(32, '0');
  EXPECT_FALSE(reaches(others)) << "another process of that number";
  others = addresses_;
  others[1].token_at = 0;
  EXPECT_FALSE(reaches(others)) << "no such memory";
  others = addresses_;
  others[1].processes = "7";
  EXPECT_FALSE(reaches(others)) << "numbers of another name space";
  others = addresses_;
  others[0].processes = others[1].processes = "-";
  EXPECT_FALSE(reaches(others)) << "name spaces unknown";
  end_child();
  EXPECT_FALSE(reaches(addresses_)) << "gone";
}

// Of a mapping without a page, as a driver's, there is nothing to be copied.
TEST_F(AttachTest, MemoryIsTriedBeforeItIsShown) {
  Attach attach(seats_, 0, addresses_);
  EXPECT_TRUE(attach.system_copies(bytes(), kBytes));
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const mapped =
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const memory = static_cast<std::byte*>(mapped);
  ASSERT_EQ(mprotect(memory + page, page, PROT_NONE), 0);
  EXPECT_TRUE(attach.system_copies(memory, page));
  EXPECT_FALSE(attach.system_copies(memory, page + 1));
  EXPECT_FALSE(attach.system_copies(memory + page, page + 1));
  EXPECT_TRUE(attach.system_copies(memory + 2 * page, page));
  munmap(mapped, 3 * page);
}

TEST_F(AttachTest, FailuresSayWhy) {
  Attach attach(seats_, 0, addresses_);
  for (const Status& status : {attach.read(1, bytes(), 16, 8), attach.write(1, 16, bytes(), 8)}) {
    EXPECT_EQ(status.code(), StatusCode::system_error);
    EXPECT_NE(status.message().find("8 bytes of rank 1: Bad address; TUTTI_ATTACH=0"),
              std::string::npos)
        << status.message();
  }
  const pid_t pid = child_;
  end_child();
  for (const Status& status :
       {attach.read(1, bytes(), there(), 8), attach.write(1, there(), bytes(), 8)}) {
    EXPECT_EQ(status.code(), StatusCode::peer_lost);
    EXPECT_EQ(status.culprit(), 1);
    EXPECT_NE(status.message().find("rank 1 (pid " + std::to_string(pid) + ") died"),
              std::string::npos)
        << status.message();
  }
  EXPECT_EQ(seats_[0].doing.writes_to, 0U);
}

TEST_F(AttachTest, WhatIsWithdrawnIsNotWrittenTo) {
  Attach owner(seats_, 1, addresses_);
  owner.withdraw();
  Attach attach(seats_, 0, addresses_);
  const Status status = attach.write(1, there(), bytes(), 8);
  EXPECT_EQ(status.code(), StatusCode::aborted);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_EQ(seats_[0].doing.writes_to, 0U);
  EXPECT_TRUE(attach.read(1, bytes(), there(), 8).ok());
}

// While the child, which runs, is in the middle of it. Not for one that writes to others.
TEST_F(AttachTest, WhoWithdrawsWaitsForWhoWrites) {
  Attach owner(seats_, 0, addresses_);
  seats_[1].doing.writes_to = 2;
  owner.withdraw();
  seats_[1].doing.writes_to = 1;
  std::atomic<bool> withdrawn = false;
  std::thread waiting([&] {
    owner.withdraw();
    withdrawn = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(withdrawn);
  seats_[1].doing.writes_to = 0;
  waiting.join();
}

// It is not in a system call then.
TEST_F(AttachTest, WhoIsStoppedOrDeadIsNotWaitedFor) {
  Attach owner(seats_, 0, addresses_);
  seats_[1].doing.writes_to = 1;
  kill(child_, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child_, &status, WUNTRACED), child_);
  owner.withdraw();
  kill(child_, SIGKILL);
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT), 0);
  owner.withdraw();  // its number is still taken
  end_child();
  owner.withdraw();
}

}  // namespace
}  // namespace tutti::transport::shm
