// Calls over links that are slow: right results, no more bytes than a link carries, and calls that
// move while nobody waits. No test asserts how long anything takes; one that only runs on request
// prints it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <mutex>

#include "kit/counting_transport.hpp"
#include "kit/throttled_transport.hpp"
#include "unit/kit/ranks.hpp"
#include "unit/runtime/processes.hpp"

namespace tutti::kit {
namespace {

using namespace testing;
using Clock = std::chrono::steady_clock;

// Slow enough that frames are held back, quick enough for a test.
ThrottleOptions slow(ThrottleScope scope) {
  ThrottleOptions options;
  options.bytes_per_s = 200'000'000;
  options.bucket_bytes = 4096;
  options.latency_us = 20;
  options.scope = scope;
  return options;
}

CommunicatorOptions over(WrapTransport wrap, const std::string& algorithm = "") {
  CommunicatorOptions options;
  options.algorithm = algorithm;
  options.wrap_transport = std::move(wrap);
  return options;
}

bool sums_right(Communicator& comm, std::size_t count) {
  auto data = contributions(comm.rank(), count);
  const Status status = comm.all_reduce(std::span(data), ReduceOp::sum);
  EXPECT_TRUE(status.ok()) << status.to_string();
  for (std::size_t i = 0; i < count; ++i)
    if (data[i] != sum_of_contributions(comm.size(), i)) return false;
  return true;
}

bool exchanges_right(Communicator& comm, std::size_t count) {
  const auto input = contributions(comm.rank(), count * idx(comm.size()));
  std::vector<std::int64_t> output(input.size());
  const Status status = comm.all_to_all(input.data(), output.data(), count, DataType::int64);
  EXPECT_TRUE(status.ok()) << status.to_string();
  for (std::size_t i = 0; i < output.size(); ++i)
    if (output[i] !=
        contribution(static_cast<Rank>(i / count), idx(comm.rank()) * count + i % count))
      return false;
  return true;
}

TEST(ThrottledCommunicator, CallsOfEverySizeAreRight) {
  for (const ThrottleScope scope : {ThrottleScope::link, ThrottleScope::rank}) {
    for (const int ranks : {2, 3, 4}) {
      on_ranks(ranks, over(throttle(slow(scope))), [](Communicator& comm) {
        for (const std::size_t count : std::initializer_list<std::size_t>{1, 100, 5000, 60'000}) {
          EXPECT_TRUE(sums_right(comm, count)) << count;
          EXPECT_TRUE(exchanges_right(comm, count)) << count;
          EXPECT_TRUE(comm.barrier().ok());
        }
        auto half = comm.split(comm.rank() % 2);
        ASSERT_TRUE(half.ok()) << half.status().to_string();
        EXPECT_TRUE(sums_right(*half, 1000));
      });
    }
  }
}

TEST(ThrottledCommunicator, CallsBetweenProcessesAreRight) {
  for (const char* transport : {"shm", "tcp"}) {
    CommunicatorOptions options = over(throttle(slow(ThrottleScope::rank)));
    options.transport = transport;
    EXPECT_TRUE(runtime::testing::on_processes(3, options, [](Communicator& comm) {
      return sums_right(comm, 60'000) && exchanges_right(comm, 5000);
    })) << transport;
  }
}

TEST(ThrottledCommunicator, CountsAreThoseOfAnUnthrottledOne) {
  on_ranks(4, over(TrafficBook().wrapper(throttle(slow(ThrottleScope::link))), "ring"),
           [](Communicator& comm) {
             EXPECT_TRUE(sums_right(comm, 40'000));
             EXPECT_EQ(traffic_of(comm)->sent().payload_bytes, 480'000u);
             EXPECT_EQ(traffic_of(comm)->received().payload_bytes, 480'000u);
           });
}

// What each link was given to carry, and when it was through with it.
struct Departures {
  struct Departure {
    std::size_t bytes;
    std::int64_t leaves_ns;
  };
  std::mutex mutex;
  std::map<std::pair<Rank, Rank>, std::vector<Departure>> of_link;
};

TEST(ThrottledCommunicator, NoLinkCarriesMoreThanItCan) {
  Departures departures;
  const ThrottleOptions limits = slow(ThrottleScope::link);
  const auto wrap = [&](std::unique_ptr<Transport> inner) {
    ThrottleOptions options = limits;
    options.on_send = [&departures, from = inner->rank()](Rank to, std::size_t bytes,
                                                          std::int64_t leaves_ns) {
      const std::lock_guard lock(departures.mutex);
      departures.of_link[{from, to}].push_back({bytes, leaves_ns});
    };
    return make_throttled_transport(std::move(inner), options);
  };
  on_ranks(3, over(wrap), [](Communicator& comm) {
    EXPECT_TRUE(sums_right(comm, 100'000));
    EXPECT_TRUE(exchanges_right(comm, 20'000));
  });
  EXPECT_GE(departures.of_link.size(), 3u);
  for (const auto& [link, passed] : departures.of_link) {
    for (std::size_t from = 0; from < passed.size(); ++from) {
      double bytes = 0;
      for (std::size_t to = from + 1; to < passed.size(); ++to) {
        bytes += static_cast<double>(passed[to].bytes);
        const auto took_ns = static_cast<double>(passed[to].leaves_ns - passed[from].leaves_ns);
        ASSERT_LE(bytes, static_cast<double>(limits.bucket_bytes) +
                             static_cast<double>(limits.bytes_per_s) / 1e9 * took_ns);
      }
    }
  }
}

TEST(ThrottledCommunicator, StartedCallsMoveWhileNobodyWaits) {
  constexpr std::size_t kCount = 100'000;
  on_ranks(2, over(TrafficBook().wrapper(throttle(slow(ThrottleScope::link))), "ring"),
           [](Communicator& comm) {
             const auto input = contributions(comm.rank(), kCount);
             std::vector<std::int64_t> output(kCount);
             auto work = comm.all_reduce_async(input.data(), output.data(), kCount, DataType::int64,
                                               ReduceOp::sum);
             ASSERT_TRUE(work.ok()) << work.status().to_string();
             const auto all_there = [&] {
               return traffic_of(comm)->received().payload_bytes == kCount * sizeof(std::int64_t);
             };
             const auto limit = Clock::now() + std::chrono::seconds(60);
             while (!all_there() && Clock::now() < limit)
               std::this_thread::sleep_for(std::chrono::milliseconds(1));
             EXPECT_TRUE(all_there());
             ASSERT_TRUE(work->wait().ok());
             for (std::size_t i = 0; i < kCount; ++i)
               ASSERT_EQ(output[i], sum_of_contributions(2, i));
           });
}

// What it sent is still on its way when it leaves.
TEST(ThrottledCommunicator, WhoHasSentMayLeave) {
  ThrottleOptions far = slow(ThrottleScope::link);
  far.latency_us = 20'000;
  for (const char* transport : {"shm", "tcp"}) {
    CommunicatorOptions options = over(throttle(far));
    options.transport = transport;
    EXPECT_TRUE(runtime::testing::on_processes(2, options, [](Communicator& comm) {
      auto data = contributions(0, 10'000);
      if (comm.rank() == 0) return comm.send(data.data(), data.size(), DataType::int64, 1).ok();
      std::vector<std::int64_t> place(data.size());
      return comm.recv(place.data(), place.size(), DataType::int64, 0).ok() && place == data;
    })) << transport;
  }
}

TEST(ThrottledCommunicator, DeadlinesHoldWhereALinkIsTooSlow) {
  ThrottleOptions crawl = slow(ThrottleScope::link);
  crawl.bytes_per_s = 1000;
  CommunicatorOptions options = over(throttle(crawl));
  options.timeout = std::chrono::milliseconds(200);
  options.setup_timeout = std::chrono::milliseconds(200);
  on_ranks(2, options, [](Communicator& comm) {
    auto data = contributions(comm.rank(), 100'000);
    EXPECT_EQ(comm.all_reduce(std::span(data), ReduceOp::sum).code(), StatusCode::timeout);
  });
}

// ---- How long calls take, for people ----

constexpr std::size_t kTimedBytes = std::size_t{4} << 20;
constexpr int kTimedCalls = 5;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double cpu_milliseconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// What a program may do meanwhile, and needs a core for. Returns how long it took. Units: ms.
double compute(double rounds_of_a_million) {
  const auto begin = Clock::now();
  volatile double value = 1;
  for (auto round = static_cast<std::int64_t>(rounds_of_a_million * 1e6); round > 0; --round)
    value = value * 0.999999 + 1e-6;
  return milliseconds_since(begin);
}

// One all_reduce in each of the three ways in which programs make them.
Status wait_for_it(Communicator& comm, std::vector<float>& data) {
  return comm.all_reduce(std::span(data), ReduceOp::max);
}

Result<Work> start(Communicator& comm, std::vector<float>& data) {
  return comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::float32,
                               ReduceOp::max);
}

Status leave_it_alone(Communicator& comm, std::vector<float>& data) {
  const std::uint64_t due = traffic_of(comm)->received().payload_bytes +
                            2 * idx(comm.size() - 1) * (kTimedBytes / idx(comm.size()));
  auto work = start(comm, data);
  if (!work.ok()) return work.status();
  while (traffic_of(comm)->received().payload_bytes < due)
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  return work->wait();
}

Status compute_meanwhile(Communicator& comm, std::vector<float>& data, double rounds) {
  auto work = start(comm, data);
  if (!work.ok()) return work.status();
  compute(rounds);
  return work->wait();
}

// Of one call. Units: ms.
struct Timed {
  double wall = 0;
  double cpu = 0;  // of all ranks together
};

using TimedCall = std::function<Status(Communicator& comm, std::vector<float>& data)>;

Timed time_calls(int ranks, const ThrottleOptions& limits, const TimedCall& call) {
  Timed timed;
  on_ranks(ranks, over(TrafficBook().wrapper(throttle(limits)), "ring"), [&](Communicator& comm) {
    std::vector<float> data(kTimedBytes / sizeof(float), 1.0F);
    ASSERT_TRUE(call(comm, data).ok());
    ASSERT_TRUE(comm.barrier().ok());
    const auto begin = Clock::now();
    const double cpu_begin = cpu_milliseconds();
    for (int i = 0; i < kTimedCalls; ++i) ASSERT_TRUE(call(comm, data).ok());
    ASSERT_TRUE(comm.barrier().ok());
    if (comm.rank() != 0) return;
    timed = {milliseconds_since(begin) / kTimedCalls,
             (cpu_milliseconds() - cpu_begin) / kTimedCalls};
  });
  return timed;
}

// For links of latency 0 the time is the bytes'; a ring sends many slices at once, which hides most
// of what latency adds.
TEST(ThrottledCommunicator, DISABLED_PrintsHowLongCallsTake) {
  ThrottleOptions limits;
  limits.bytes_per_s = 50'000'000;
  limits.bucket_bytes = 128 * 1024;
  const double rounds = 100 / compute(10) * 10;  // a tenth of a second
  std::printf(
      "all_reduce of 4 MiB by a ring over links of 50 MB/s; ms of one call, and of cores\n");
  std::printf(
      "ranks latency_us  bytes/speed | waited for  | left alone  | computing 100 meanwhile\n");
  for (const int ranks : {2, 3, 4}) {
    for (const std::int64_t latency_us : std::initializer_list<std::int64_t>{0, 2000}) {
      limits.latency_us = latency_us;
      const double bytes = 2.0 * (ranks - 1) / ranks * static_cast<double>(kTimedBytes);
      const Timed waited = time_calls(ranks, limits, wait_for_it);
      const Timed alone = time_calls(ranks, limits, leave_it_alone);
      const Timed computed = time_calls(ranks, limits, [&](Communicator& comm, auto& data) {
        return compute_meanwhile(comm, data, rounds);
      });
      std::printf("%5d %10d %12.1f | %5.1f %5.1f | %5.1f %5.1f | %5.1f %5.1f\n", ranks,
                  static_cast<int>(latency_us),
                  bytes / static_cast<double>(limits.bytes_per_s) * 1e3, waited.wall, waited.cpu,
                  alone.wall, alone.cpu, computed.wall, computed.cpu);
    }
  }
}

}  // namespace
}  // namespace tutti::kit
