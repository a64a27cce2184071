// A failure of one rank becomes the failure of all who wait, with its first cause, long before any
// deadline of theirs.
#include "runtime/notice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tutti/communicator.hpp"

namespace tutti::runtime {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(Notice, SurvivesTheTrip) {
  for (const StatusCode code : {StatusCode::invalid_argument, StatusCode::mismatch,
                                StatusCode::timeout, StatusCode::peer_lost, StatusCode::internal})
    for (const Rank culprit : {-1, 0, 1, 131071, 2147483646}) {
      const Notice notice{code, culprit};
      EXPECT_NE(encode(notice), 0U);
      EXPECT_EQ(decode_notice(encode(notice)), notice);
    }
}

TEST(Notice, AnyWordMakesSense) {
  for (const std::uint64_t word :
       {std::uint64_t{1}, std::uint64_t{0xff}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    const Status status = decode_notice(word).told_by(3);
    EXPECT_FALSE(status.ok());
    EXPECT_GE(status.culprit(), -1);
  }
}

TEST(Notice, TellsTheCauseAndWhoSaysSo) {
  const Status heard = Notice{StatusCode::peer_lost, 5}.told_by(2);
  EXPECT_EQ(heard.to_string(), "peer_lost: rank 5 is lost, says rank 2");
  EXPECT_EQ(heard.culprit(), 5);
  EXPECT_EQ((Notice{StatusCode::aborted, 2}.told_by(2).message()), "rank 2 aborted");
}

// Runs `body` on a thread for each rank; a rank that gives up by its deadline takes a minute.
void on_ranks(int size, const std::function<void(Communicator&)>& body,
              milliseconds timeout = std::chrono::minutes(1)) {
  CommunicatorOptions options;
  options.timeout = timeout;
  auto communicators = Communicator::for_threads(size, options);
  ASSERT_TRUE(communicators.ok()) << communicators.status().to_string();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (Communicator& communicator : *communicators)
    threads.emplace_back([&] { body(communicator); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30))
      << "somebody was not told";
}

Status reduce_something(Communicator& comm) {
  std::vector<float> data(100'000, 1);
  return comm.all_reduce(std::span<float>(data), ReduceOp::sum);
}

TEST(Failures, AnAbortReachesAllWhoWait) {
  for (int size = 2; size <= 9; ++size) {
    on_ranks(size, [](Communicator& comm) {
      const Rank culprit = comm.size() / 2;
      Status status = reduce_something(comm);
      if (comm.rank() == culprit) {
        ASSERT_TRUE(status.ok()) << status.to_string();
        comm.abort();
        EXPECT_EQ(reduce_something(comm).code(), StatusCode::aborted);
        return;
      }
      // Who is still in the first call when the news comes cannot tell that it was not meant.
      if (status.ok()) status = reduce_something(comm);
      EXPECT_EQ(status.code(), StatusCode::aborted) << status.to_string();
      EXPECT_EQ(status.culprit(), culprit) << status.to_string();
      EXPECT_EQ(comm.barrier().to_string(), status.to_string()) << "failures stay";
    });
  }
}

TEST(Failures, WhoGaveUpWaitingTellsWhomFor) {
  on_ranks(
      4,
      [](Communicator& comm) {
        if (comm.rank() == 3) return;  // it never calls
        const Status status = reduce_something(comm);
        EXPECT_EQ(status.code(), StatusCode::timeout) << status.to_string();
        EXPECT_EQ(status.culprit(), 3) << status.to_string();
      },
      milliseconds(300));
}

TEST(Failures, DifferentCallsEndEverywhere) {
  on_ranks(5, [](Communicator& comm) {
    std::vector<float> data(1000, 1);
    const bool odd_one = comm.rank() == 4;
    const Status status = odd_one ? comm.broadcast(std::span<float>(data), 0)
                                  : comm.all_reduce(std::span<float>(data), ReduceOp::sum);
    Status later = status;
    for (int call = 0; call < 3 && later.ok(); ++call) later = comm.barrier();
    EXPECT_EQ(later.code(), StatusCode::mismatch) << later.to_string();
  });
}

}  // namespace
}  // namespace tutti::runtime
