// Calls that differ between ranks under strict checks: every rank gets the error, both sides are
// shown, and nobody's output is touched. Calls that agree are what they always are.
#include "runtime/strict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr int kUntouched = -77;
constexpr std::size_t kCount = 1000;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

void on_ranks(int size, const std::function<void(Communicator&)>& body) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(20);
  options.strict = true;
  auto made = Communicator::for_threads(size, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::vector<std::thread> threads;
  for (Rank r = 0; r < size; ++r) threads.emplace_back([&, r] { body((*made)[at(r)]); });
  for (std::thread& thread : threads) thread.join();
}

// A call of the odd rank, and one of all others.
using Calls = std::function<Status(Communicator&, bool odd, int* in, int* out)>;

void expect_mismatch(const Calls& call, const char* text) {
  for (int size : {2, 3, 5, 8}) {
    on_ranks(size, [&](Communicator& comm) {
      std::vector<int> in(kCount * at(size) + 1, 1);
      std::vector<int> out(kCount * at(size) + 1, kUntouched);
      const bool odd = comm.rank() == size / 2;
      const Status status = call(comm, odd, in.data(), out.data());
      EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
      // Who hears of it before its own look is over says so without the other side.
      EXPECT_THAT(status.message(), AnyOf(HasSubstr(text), HasSubstr("says rank")));
      EXPECT_EQ(std::count(out.begin(), out.end(), kUntouched), std::ptrdiff_t(out.size()));
      EXPECT_EQ(comm.barrier().code(), StatusCode::mismatch);  // it is final
      static_cast<void>(comm.agree(0));
    });
  }
}

TEST(Strict, AnotherCount) {
  expect_mismatch(
      [](Communicator& comm, bool odd, int* in, int* out) {
        return comm.all_reduce(in, out, kCount + (odd ? 1 : 0), DataType::int32, ReduceOp::sum);
      },
      "1001 x int32");
}

TEST(Strict, AnotherType) {
  expect_mismatch(
      [](Communicator& comm, bool odd, int* in, int* out) {
        return comm.all_gather(in, out, kCount, odd ? DataType::float32 : DataType::int32);
      },
      "x float");
}

TEST(Strict, AnotherOperation) {
  expect_mismatch(
      [](Communicator& comm, bool odd, int* in, int* out) {
        return comm.reduce_scatter(in, out, kCount, DataType::int32,
                                   odd ? ReduceOp::max : ReduceOp::sum);
      },
      "max");
}

TEST(Strict, AnotherRoot) {
  expect_mismatch(
      [](Communicator& comm, bool odd, int* in, int* out) {
        return comm.broadcast(in, out, kCount, DataType::int32, odd ? 1 : 0);
      },
      "root 1");
}

TEST(Strict, AnotherCollective) {
  expect_mismatch(
      [](Communicator& comm, bool odd, int* in, int* out) {
        return odd ? comm.all_to_all(in, out, kCount, DataType::int32)
                   : comm.all_gather(in, out, kCount, DataType::int32);
      },
      "all_to_all #1");
}

TEST(Strict, AnotherOrder) {
  expect_mismatch(
      [](Communicator& comm, bool odd, int* in, int* out) {
        return odd ? comm.reduce(in, out, kCount, DataType::int32, ReduceOp::sum, 0)
                   : comm.gather(in, out, kCount, DataType::int32, 0);
      },
      "gather #1");
}

TEST(Strict, CallsThatAgreeAreMade) {
  for (int size : {1, 2, 5, 9}) {
    on_ranks(size, [&](Communicator& comm) {
      for (int round = 0; round < 5; ++round) {
        std::vector<int> data(kCount, comm.rank() + round);
        ASSERT_TRUE(comm.all_reduce(std::span(data), ReduceOp::sum).ok());
        EXPECT_EQ(data[7], size * (size - 1) / 2 + size * round);
        std::vector<int> all(kCount * at(size));
        auto work = comm.all_gather_async(data.data(), all.data(), kCount, DataType::int32);
        ASSERT_TRUE(work.ok());
        auto next = comm.barrier_async();
        ASSERT_TRUE(next.ok());
        EXPECT_TRUE(next->wait().ok());
        EXPECT_TRUE(work->wait().ok());
        EXPECT_EQ(all.back(), data[0]);
        const Rank to = (comm.rank() + 1) % size;
        const Rank from = (comm.rank() + size - 1) % size;
        int got = -1;
        const int mine = comm.rank();
        if (size > 1) {
          ASSERT_TRUE(comm.send_recv(&mine, to, &got, from, 1, DataType::int32).ok());
          EXPECT_EQ(got, from);
        }
      }
    });
  }
}

}  // namespace
}  // namespace tutti
