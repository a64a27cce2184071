// abort() from another thread at random moments of random calls: every call of every rank returns,
// with the right result or with `aborted` and the rank that was told to. The full campaign, which
// prints how long the aborted rank took, is `slow`.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
using Values = std::vector<std::int64_t>;

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

// One rank's side of a random sequence of calls, the same on all ranks. Rank r contributes r + k to
// the k-th call. The buffers of the call that fails live as long as the caller, because other
// threads may not have heard yet and still use them.
class Caller {
 public:
  Caller(Communicator& comm, std::uint32_t seed) : comm_(comm), random_(seed) {}

  // Makes calls until one fails. Ensures  those before it had the right results.
  Status call_until_failure(const std::atomic<bool>& aborted_here) {
    for (int k = 0;; ++k) {
      const bool late = aborted_here.load();
      const Status status = call(k);
      if (!status.ok()) return status;
      EXPECT_FALSE(late) << "a call that began after abort() had returned";
      if (HasFailure()) return status;
    }
  }

 private:
  static bool HasFailure() { return testing::Test::HasFailure(); }

  Status call(int k) {
    constexpr std::size_t kCounts[] = {1, 100, 3000, 40'000};
    const std::size_t count = kCounts[random_() % std::size(kCounts)];
    const auto n = idx(comm_.size());
    const Rank root = static_cast<Rank>(random_() % n);
    const std::int64_t mine = comm_.rank() + k;
    const std::int64_t sum = static_cast<std::int64_t>(n * (n - 1) / 2) + comm_.size() * k;
    const DataType type = DataType::int64;
    Values& one = one_;
    Values& many = many_;
    one.assign(count, mine);
    many.assign(count * n, mine);
    const auto of_each = [&](std::size_t i) { return static_cast<std::int64_t>(i / count) + k; };
    switch (random_() % 7) {
      case 0:
        return expect(comm_.barrier(), {}, {});
      case 1:
        return expect(comm_.broadcast(std::span(one), root), one,
                      [&](std::size_t) { return root + k; });
      case 2:
        return expect(comm_.all_gather(std::span<const std::int64_t>(one), std::span(many)), many,
                      of_each);
      case 3:
        return expect(comm_.reduce_scatter(std::span<const std::int64_t>(many), std::span(one),
                                           ReduceOp::sum),
                      one, [&](std::size_t) { return sum; });
      case 4: {
        received_.resize(many.size());
        return expect(comm_.all_to_all(many.data(), received_.data(), count, type), received_,
                      of_each);
      }
      case 5: {
        auto work = comm_.all_reduce_async(one.data(), one.data(), count, type, ReduceOp::sum);
        return expect(work.ok() ? work->wait() : work.status(), one,
                      [&](std::size_t) { return sum; });
      }
      default:
        return expect(comm_.all_reduce(std::span(one), ReduceOp::sum), one,
                      [&](std::size_t) { return sum; });
    }
  }

  static Status expect(Status status, const Values& got,
                       const std::function<std::int64_t(std::size_t)>& wanted) {
    for (std::size_t i = 0; status.ok() && i < got.size(); ++i) {
      if (got[i] == wanted(i)) continue;
      ADD_FAILURE() << "element " << i << " is " << got[i] << ", not " << wanted(i);
      break;
    }
    return status;
  }

  Communicator& comm_;
  std::minstd_rand random_;
  Values one_;
  Values many_;
  Values received_;
};

// One world, one abort. Returns how long the aborted rank's call took to return.
Clock::duration abort_once(std::uint32_t seed) {
  std::minstd_rand random(seed + 1);
  const int size = 2 + static_cast<int>(random() % 4);
  const Rank victim = static_cast<Rank>(random() % idx(size));
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(60);
  auto made = Communicator::for_threads(size, options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  if (!made.ok()) return {};
  std::atomic<bool> aborted{false};
  const std::atomic<bool> never{false};
  std::vector<Status> ends(idx(size));
  Clock::time_point returned;
  std::vector<Caller> callers;
  for (Communicator& comm : *made) callers.emplace_back(comm, seed);
  std::vector<std::thread> threads;
  for (Rank r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      ends[idx(r)] = callers[idx(r)].call_until_failure(r == victim ? aborted : never);
      if (r == victim) returned = Clock::now();
    });
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 700));
  const Clock::time_point begin = Clock::now();
  (*made)[idx(victim)].abort();
  aborted = true;
  for (std::thread& thread : threads) thread.join();
  for (Rank r = 0; r < size; ++r) {
    const Status& end = ends[idx(r)];
    EXPECT_EQ(end.code(), StatusCode::aborted) << "rank " << r << ": " << end.to_string();
    EXPECT_EQ(end.culprit(), victim) << "rank " << r << ": " << end.to_string();
  }
  EXPECT_EQ((*made)[idx(victim)].barrier().code(), StatusCode::aborted);
  return returned - begin;
}

std::vector<double> abort_often(std::uint32_t tries) {
  std::vector<double> milliseconds;
  for (std::uint32_t seed = 1; seed <= tries && !testing::Test::HasFailure(); ++seed) {
    const Clock::duration took = abort_once(seed);
    milliseconds.push_back(std::chrono::duration<double, std::milli>(took).count());
    if (testing::Test::HasFailure()) ADD_FAILURE() << "with seed " << seed;
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds;
}

TEST(Abort, EndsEveryCallOfEveryRank) { abort_often(300); }

TEST(Abort, DISABLED_TenThousandTimes) {
  const std::vector<double> sorted = abort_often(10'000);
  ASSERT_FALSE(sorted.empty());
  const auto at = [&](double part) {
    return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
  };
  std::printf(
      "abort() to the return of the call, in ms: 50%% %.3f, 90%% %.3f, 99%% %.3f, 99.9%% "
      "%.3f, most %.3f\n",
      at(0.5), at(0.9), at(0.99), at(0.999), at(1));
}

}  // namespace
}  // namespace tutti
