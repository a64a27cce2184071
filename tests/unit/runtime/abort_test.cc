// abort() from another thread at random moments of random calls: every call of every rank returns,
// with the right result or with `aborted` and the rank that was told to. The full campaigns, which
// print how long the aborted rank took, are `slow`.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <latch>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "processes.hpp"
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
      if (testing::Test::HasFailure()) return status;
    }
  }

 private:
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

constexpr int kRanksMax = 5;

using Ranks = std::vector<Communicator>;

void on_threads(int count, const std::function<void(Rank)>& body) {
  std::vector<std::thread> threads;
  for (Rank r = 0; r < count; ++r) threads.emplace_back([&, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

// Ranks that are threads, whatever they talk through.
Ranks make_ranks(const std::string& transport, int size, std::chrono::seconds timeout) {
  CommunicatorOptions options;
  options.transport = transport;
  options.timeout = timeout;
  if (transport == "memory") {
    auto made = Communicator::for_threads(size, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *std::move(made) : Ranks(idx(size));
  }
  Ranks ranks(idx(size));
  Rendezvous meeting;
  meeting.size = size;
  meeting.port = runtime::testing::free_port();
  on_threads(size, [&](Rank r) {
    Rendezvous mine = meeting;
    mine.rank = r;
    auto made = Communicator::from_rendezvous(mine, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) ranks[idx(r)] = *std::move(made);
  });
  return ranks;
}

struct Took {
  Clock::duration abort;  // to return
  Clock::duration call;   // from then on, of the aborted rank, to return
};

// One communicator of some of the ranks, one abort.
Took abort_once(Ranks& world, std::uint32_t seed) {
  std::minstd_rand random(seed + 1);
  const int size = 2 + static_cast<int>(random() % (kRanksMax - 1));
  const Rank victim = static_cast<Rank>(random() % idx(size));
  const std::chrono::microseconds pause(random() % 700);
  Ranks ranks(idx(kRanksMax));
  std::latch made(kRanksMax + 1);
  std::latch left(size);  // buffers are in use until all have heard
  std::atomic<bool> aborted{false};
  const std::atomic<bool> never{false};
  Clock::time_point begin;
  Clock::time_point aborted_at;
  Clock::time_point returned;
  std::thread aborting([&] {
    made.arrive_and_wait();
    std::this_thread::sleep_for(pause);
    begin = Clock::now();
    ranks[idx(victim)].abort();
    aborted_at = Clock::now();
    aborted = true;
  });
  on_threads(kRanksMax, [&](Rank r) {
    auto split = world[idx(r)].split(r < size ? 0 : -1);
    EXPECT_TRUE(split.ok()) << split.status().to_string();
    if (split.ok()) ranks[idx(r)] = *std::move(split);
    made.arrive_and_wait();
    if (r >= size) return;
    Caller caller(ranks[idx(r)], seed);
    const Status end =
        split.ok() ? caller.call_until_failure(r == victim ? aborted : never) : split.status();
    if (r == victim) returned = Clock::now();
    left.arrive_and_wait();
    EXPECT_EQ(end.code(), StatusCode::aborted) << "rank " << r << ": " << end.to_string();
    EXPECT_EQ(end.culprit(), victim) << "rank " << r << ": " << end.to_string();
  });
  aborting.join();
  EXPECT_EQ(ranks[idx(victim)].barrier().code(), StatusCode::aborted);
  return {aborted_at - begin, returned - begin};
}

class Abort : public testing::TestWithParam<const char*> {
 protected:
  // In milliseconds.
  struct Times {
    std::vector<double> abort;
    std::vector<double> call;
  };

  Ranks world_ = make_ranks(GetParam(), kRanksMax, std::chrono::seconds(60));

  void abort_often(std::uint32_t first_seed, std::uint32_t tries, Times& times) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    for (std::uint32_t seed = first_seed; seed < first_seed + tries && !HasFailure(); ++seed) {
      const Took took = abort_once(world_, seed);
      times.abort.push_back(Milliseconds(took.abort).count());
      times.call.push_back(Milliseconds(took.call).count());
      if (HasFailure()) ADD_FAILURE() << "with seed " << seed;
    }
  }

  static void print(const char* what, std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    const auto at = [&](double part) {
      return times[static_cast<std::size_t>(part * static_cast<double>(times.size() - 1))];
    };
    std::printf("%-6s %5zu tries, %-28s ms: 50%% %.3f, 99%% %.3f, 99.9%% %.3f, most %.3f\n",
                GetParam(), times.size(), what, at(0.5), at(0.99), at(0.999), at(1));
    std::fflush(stdout);
  }
};

TEST_P(Abort, EndsEveryCallOfEveryRank) {
  Times times;
  abort_often(1, 100, times);
}

TEST_P(Abort, DISABLED_TenThousandTimes) {
  Times times;
  for (std::uint32_t first = 1; first <= 10'000 && !HasFailure(); first += 1000) {
    abort_often(first, 1000, times);
    print("abort() returns", times.abort);
    print("the aborted rank's call ends", times.call);
  }
}

// Nobody drives the rank that is told to: it has not called anything yet, and never will.
TEST_P(Abort, OfARankThatMakesNoCallReachesThoseThatDo) {
  constexpr int kSize = 4;
  Ranks ranks = make_ranks(GetParam(), kSize, std::chrono::seconds(30));
  on_threads(kSize, [&](Rank r) {
    if (r == 2) return ranks[idx(r)].abort();
    const Status status = ranks[idx(r)].barrier();
    EXPECT_EQ(status.code(), StatusCode::aborted) << "rank " << r << ": " << status.to_string();
    EXPECT_EQ(status.culprit(), 2) << "rank " << r << ": " << status.to_string();
  });
}

TEST_P(Abort, EndsAnAgreementAndTheMakingOfCommunicators) {
  Ranks ranks = make_ranks(GetParam(), 2, std::chrono::seconds(30));
  std::thread aborting([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ranks[0].abort();
  });
  EXPECT_EQ(ranks[0].agree(1).status().code(), StatusCode::aborted);  // rank 1 does not come
  aborting.join();
  EXPECT_EQ(ranks[0].split(0).status().code(), StatusCode::aborted);
  EXPECT_EQ(ranks[1].barrier().code(), StatusCode::aborted);
}

// Rank 1 comes to the split and goes before the communicators are made. It is the second rank of
// the parent; of the new communicator that is rank 2.
void split_without_rank_1(Communicator& comm, bool are_threads) {
  if (comm.rank() != 1) {
    const Status status = comm.split(0).status();
    EXPECT_EQ(status.code(), StatusCode::aborted) << comm.rank() << ": " << status.to_string();
    EXPECT_EQ(status.culprit(), 1) << comm.rank() << ": " << status.to_string();
    return;
  }
  // What split() exchanges first: colors and keys; of threads also the ticket of their queues, a
  // text of 8 bytes behind its length.
  const Values values = {-1, 8};
  Values all(6);
  const auto gather = [&](const std::int64_t* mine, std::size_t count, DataType type) {
    EXPECT_TRUE(comm.all_gather(mine, all.data(), count, type).ok());
  };
  gather(values.data(), 2, DataType::int64);
  if (are_threads) {
    gather(&values[1], 1, DataType::int64);
    gather(&values[1], 2, DataType::int32);
  }
  comm.abort();
}

// Of two that hear of it one is gone, with all it has, before the other has taken the ticket, or
// not; hence more than once.
TEST_P(Abort, WithinASplitNamesARankOfTheParent) {
  const bool are_threads = GetParam() == std::string("memory");
  for (int i = 0; i < (are_threads ? 30 : 1) && !HasFailure(); ++i) {
    Ranks ranks = make_ranks(GetParam(), 3, std::chrono::seconds(30));
    on_threads(3, [&](Rank r) { split_without_rank_1(ranks[idx(r)], are_threads); });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Abort, testing::Values("memory", "shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

}  // namespace
}  // namespace tutti
