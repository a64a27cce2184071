// Agreeing, revoking and shrinking with ranks that are threads. Threads cannot die; one that closes
// its communicator is as gone for the others as one that did.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

template <typename Body>
void on_ranks(int size, Body body) {
  CommunicatorOptions options;
  options.timeout = 20s;
  auto made = Communicator::for_threads(size, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::vector<std::thread> threads;
  for (Rank r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      Communicator mine = std::move((*made)[at(r)]);
      body(mine);
    });
  for (std::thread& thread : threads) thread.join();
}

// The sum over all ranks of what each brings.
Result<int> sum_of(Communicator& comm, int mine) {
  const Status status = comm.all_reduce(std::span(&mine, 1), ReduceOp::sum);
  if (!status.ok()) return status;
  return mine;
}

TEST(Agree, GivesTheCommonBitsAndNobodyLost) {
  for (int size = 1; size <= 9; ++size)
    on_ranks(size, [&](Communicator& comm) {
      for (std::uint64_t round = 0; round < 3; ++round) {
        const auto agreed = comm.agree(~(std::uint64_t{1} << comm.rank()) ^ round << 60);
        ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
        EXPECT_EQ(agreed->flags, ~((std::uint64_t{1} << size) - 1) ^ round << 60);
        EXPECT_TRUE(agreed->lost.empty());
        const auto sum = sum_of(comm, comm.rank());
        ASSERT_TRUE(sum.ok()) << sum.status().to_string();
        EXPECT_EQ(*sum, size * (size - 1) / 2);
      }
    });
}

TEST(Agree, NamesThoseThatAreGone) {
  for (int size = 2; size <= 7; ++size)
    on_ranks(size, [&](Communicator& comm) {
      if (comm.rank() % 3 == 0) return;
      const auto agreed = comm.agree(5);
      ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
      EXPECT_EQ(agreed->flags, 5u);
      std::vector<Rank> gone;
      for (Rank r = 0; r < size; r += 3) gone.push_back(r);
      EXPECT_EQ(agreed->lost, gone);
    });
}

// Agreeing connects ranks that have nothing to do with each other afterwards.
TEST(Agree, WhoLeavesLaterDoesNotEndTheCallsOfOthers) {
  std::atomic<bool> left{false};
  on_ranks(3, [&](Communicator& comm) {
    ASSERT_TRUE(comm.agree(1).ok());
    if (comm.rank() == 2) {
      EXPECT_TRUE(comm.close().ok());
      left = true;
      return;
    }
    while (!left) std::this_thread::yield();
    // Rank 0 waits, and meanwhile looks at everything.
    if (comm.rank() == 1) std::this_thread::sleep_for(100ms);
    const int mine = comm.rank();
    int theirs = -1;
    const Rank other = 1 - comm.rank();
    const Status status = comm.send_recv(&mine, other, &theirs, other, 1, DataType::int32);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(theirs, other);
  });
}

TEST(Agree, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  std::atomic<int> returned{0};
  CommunicatorOptions options;
  options.timeout = 200ms;
  auto made = Communicator::for_threads(3, options);
  ASSERT_TRUE(made.ok());
  std::vector<std::thread> threads;
  for (Rank r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      const auto agreed = (*made)[at(r)].agree(1);
      EXPECT_EQ(agreed.status().code(), StatusCode::timeout);
      if (r == 0) {
        EXPECT_EQ(agreed.status().culprit(), 2) << agreed.status().to_string();
      }
      EXPECT_EQ((*made)[at(r)].agree(1).status().code(), StatusCode::invalid_argument);
      ++returned;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(returned, 2);
}

TEST(Agree, IsEndedByAbort) {
  auto made = Communicator::for_threads(2);
  ASSERT_TRUE(made.ok());
  std::thread waiting([&] { EXPECT_EQ((*made)[0].agree(1).status().code(), StatusCode::aborted); });
  std::this_thread::sleep_for(5ms);
  (*made)[0].abort();
  waiting.join();
}

TEST(Revoke, EndsTheCallsOfAllRanks) {
  for (int size = 2; size <= 9; ++size)
    on_ranks(size, [&](Communicator& comm) {
      Status status = comm.barrier();
      if (comm.rank() == size - 1) {
        EXPECT_TRUE(comm.revoke().ok());
      }
      while (status.ok()) status = comm.barrier();
      EXPECT_EQ(status.code(), StatusCode::revoked) << status.to_string();
      EXPECT_EQ(status.culprit(), size - 1);
      static_cast<void>(comm.agree(0));  // nobody leaves before all have heard
    });
}

// Nobody of those that wait has a connection to the rank that revokes.
TEST(Revoke, ReachesRanksThatShareNoConnectionWithIt) {
  on_ranks(8, [&](Communicator& comm) {
    int value = 0;
    if (comm.rank() == 7) {
      EXPECT_TRUE(comm.revoke().ok());
    } else {
      const Rank partner = comm.rank() == 6 ? 0 : comm.rank() + 1;
      const Status status = comm.recv(&value, 1, DataType::int32, partner);
      EXPECT_EQ(status.code(), StatusCode::revoked) << status.to_string();
      EXPECT_EQ(status.culprit(), 7);
    }
    static_cast<void>(comm.agree(0));
  });
}

TEST(Shrink, GoesOnWithThoseThatAreLeft) {
  for (int size = 2; size <= 9; ++size)
    on_ranks(size, [&](Communicator& comm) {
      // Some may still be in it when others revoke, or leave.
      const Status met = comm.barrier();
      const bool leaves = comm.rank() == 0 || comm.rank() == size / 2;
      if (leaves && size > 2) return;
      auto rest = comm.shrink();
      ASSERT_TRUE(rest.ok()) << rest.status().to_string();
      const int survivors = size == 2 ? 2 : size - 2;
      EXPECT_EQ(rest->size(), survivors);
      EXPECT_EQ(comm.barrier().code(), met.ok() ? StatusCode::revoked : met.code());
      EXPECT_TRUE(met.ok() || met.code() == StatusCode::revoked ||
                  (size > 2 && met.code() == StatusCode::peer_lost))
          << met.to_string();
      const auto sum = sum_of(*rest, comm.rank());
      ASSERT_TRUE(sum.ok()) << sum.status().to_string();
      EXPECT_EQ(*sum, size * (size - 1) / 2 - (size == 2 ? 0 : size / 2));
      const auto order = sum_of(*rest, rest->rank());
      ASSERT_TRUE(order.ok());
      EXPECT_EQ(*order, survivors * (survivors - 1) / 2);
    });
}

TEST(Shrink, IsToldOfThoseWhoAgreeInstead) {
  for (int size = 2; size <= 5; ++size)
    for (Rank odd = 0; odd < size; ++odd)
      on_ranks(size, [&](Communicator& comm) {
        const bool agrees = comm.rank() == odd;
        const Status met = agrees ? comm.agree(1).status() : comm.shrink().status();
        EXPECT_EQ(met.code(), StatusCode::mismatch) << met.to_string();
        EXPECT_EQ(met.culprit(), !agrees ? odd : odd == 0 ? 1 : 0);
        EXPECT_NE(met.message().find(agrees ? "called shrink()" : "called agree()"),
                  std::string::npos)
            << met.to_string();
        auto left = comm.shrink();
        ASSERT_TRUE(left.ok()) << left.status().to_string();
        const auto sum = sum_of(*left, 1);
        ASSERT_TRUE(sum.ok()) << sum.status().to_string();
        EXPECT_EQ(*sum, size);
      });
}

TEST(Shrink, CanBeDoneAgainAndAgain) {
  on_ranks(6, [&](Communicator& comm) {
    Communicator current = std::move(comm);
    for (int size = 6; size > 1; --size) {
      ASSERT_EQ(current.size(), size);
      // Those that are through may shrink while others are still in it: these are revoked.
      const auto sum = sum_of(current, 1);
      if (sum.ok()) {
        EXPECT_EQ(*sum, size);
      } else {
        EXPECT_EQ(sum.status().code(), StatusCode::revoked);
      }
      if (current.rank() == size - 1) return;
      auto rest = current.shrink();
      ASSERT_TRUE(rest.ok()) << rest.status().to_string();
      current = *std::move(rest);
    }
  });
}

}  // namespace
}  // namespace tutti
