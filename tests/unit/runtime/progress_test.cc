// Started works that nobody waits for: the library's own thread completes them, is there only while
// communicators are, and sleeps while there is nothing to do. What these tests watch, WorkState::
// done(), moves nothing.
#include "runtime/progress.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/host.hpp"
#include "runtime/world.hpp"
#include "transport/memory/transport.hpp"

namespace tutti::runtime {
namespace {

using States = std::vector<std::shared_ptr<CommunicatorState>>;
using Started = std::shared_ptr<WorkState>;

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

// A world of ranks that are all this thread's, so that nobody waits unless the test does.
States make_ranks(int size, base::ProgressChoice progress = base::ProgressChoice::automatic) {
  auto config = effective_config({});
  EXPECT_TRUE(config.ok());
  config->progress = progress;
  Members members;
  members.size = size;
  members.job = draw_job();
  members.threads = transport::MemoryWorld::make(transport_options(*config, members, true));
  members.exchange = [size](const std::string& mine) -> Result<std::vector<std::string>> {
    return std::vector<std::string>(idx(size), mine);
  };
  States states;
  for (Rank r = 0; r < size; ++r) {
    members.rank = r;
    auto state = make_communicator(members, *config, {});
    EXPECT_TRUE(state.ok()) << state.status().to_string();
    states.push_back(*std::move(state));
  }
  return states;
}

// Until it holds, but not for ever.
bool eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// An all_reduce on every rank of a world, in place.
struct Sum {
  std::vector<std::vector<std::int64_t>> data;
  std::vector<Started> works;

  Sum(const States& states, std::size_t count) : data(states.size()) {
    for (std::size_t r = 0; r < states.size(); ++r) {
      data[r].resize(count);
      for (std::size_t i = 0; i < count; ++i) data[r][i] = static_cast<std::int64_t>(i + r);
      CommunicatorState::Request request;
      request.collective = Collective::all_reduce;
      request.input = request.output = data[r].data();
      request.count = count;
      request.type = DataType::int64;
      auto work = states[r]->start_work(request);
      EXPECT_TRUE(work.ok()) << work.status().to_string();
      if (work.ok()) works.push_back(*std::move(work));
    }
  }

  bool done() const {
    for (const Started& work : works)
      if (!work->done()) return false;
    return true;
  }

  void check() const {
    const auto ranks = static_cast<std::int64_t>(data.size());
    for (const Started& work : works) ASSERT_TRUE(work->status().ok());
    for (const auto& values : data)
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], ranks * static_cast<std::int64_t>(i) + ranks * (ranks - 1) / 2) << i;
  }
};

// The threads of this process that are the library's own.
std::vector<std::filesystem::path> progress_threads() {
  std::vector<std::filesystem::path> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name == "tutti-progress") found.push_back(task.path());
  }
  return found;
}

// Soon: the system tells who joins a thread that it has ended before it strikes it off its list.
bool no_thread_is_left() {
  return eventually([] { return progress_threads().empty(); });
}

std::string switches(const std::filesystem::path& task) {
  std::ifstream file(task / "status");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("voluntary_ctxt_switches")) return line;
  return "";
}

TEST(Progress, WorksCompleteAlthoughNobodyWaits) {
  const States ranks = make_ranks(2);
  for (std::size_t count : {1U, 1000U, 300'000U}) {
    const Sum sum(ranks, count);
    ASSERT_TRUE(eventually([&] { return sum.done(); })) << count;
    sum.check();
  }
}

TEST(Progress, SoDoQueuesOfSeveralCommunicators) {
  const States worlds[] = {make_ranks(2), make_ranks(3), make_ranks(4)};
  std::vector<std::unique_ptr<Sum>> sums;
  for (std::size_t k = 0; k < 6; ++k)
    for (const States& ranks : worlds) sums.push_back(std::make_unique<Sum>(ranks, 1 + 7000 * k));
  for (const auto& sum : sums) ASSERT_TRUE(eventually([&] { return sum->done(); }));
  for (const auto& sum : sums) sum->check();
  EXPECT_EQ(progress_threads().size(), 1U);
}

TEST(Progress, SoDoManyMoreRanksThanCores) {
  const States ranks = make_ranks(24);
  const Sum small(ranks, 5);
  const Sum large(ranks, 20'000);
  ASSERT_TRUE(eventually([&] { return small.done() && large.done(); }));
  small.check();
  large.check();
}

TEST(Progress, SwitchedOffWorksMoveWhenSomebodyWaits) {
  const States ranks = make_ranks(2, base::ProgressChoice::off);
  const Sum sum(ranks, 300'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(sum.done());
  EXPECT_TRUE(progress_threads().empty());
  for (const Started& work : sum.works) EXPECT_TRUE(work->owner().wait(*work).ok());
  sum.check();
}

TEST(Progress, TheThreadGoesWithTheLastCommunicatorAndComesBack) {
  for (int round = 0; round < 20; ++round) {
    const States ranks = make_ranks(2);
    const Sum sum(ranks, 3000);
    ASSERT_TRUE(eventually([&] { return sum.done(); })) << round;
  }
  EXPECT_TRUE(no_thread_is_left());
}

TEST(Progress, TheThreadSleepsWhileThereIsNothingToDo) {
  const States ranks = make_ranks(2);
  const Sum sum(ranks, 3000);
  ASSERT_TRUE(eventually([&] { return sum.done(); }));
  const auto threads = progress_threads();
  ASSERT_EQ(threads.size(), 1U);
  EXPECT_TRUE(eventually([&] {
    const std::string before = switches(threads[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return switches(threads[0]) == before;
  })) << "it is awake all the time";
  const Sum again(ranks, 3000);
  ASSERT_TRUE(eventually([&] { return again.done(); }));
}

TEST(Progress, AnAbortEndsAWorkThatNobodyWaitsFor) {
  const States ranks = make_ranks(3);
  const States one_rank_of_them(ranks.begin(), ranks.begin() + 1);
  const Sum sum(one_rank_of_them, 3000);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_FALSE(sum.done()) << "two ranks are missing";
  ranks[0]->abort();
  ASSERT_TRUE(eventually([&] { return sum.done(); }));
  EXPECT_EQ(sum.works[0]->status().code(), StatusCode::aborted);
  EXPECT_EQ(sum.works[0]->status().culprit(), 0);
}

// Ranks 0 and 1 have joined, and compute.
TEST(Progress, AgreementsMoveAlthoughNobodyWaits) {
  const States ranks = make_ranks(3);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (const auto& rank : ranks) ASSERT_TRUE(rank->begin_agreement(round, "").ok());
    for (const int r : {2, 0, 1}) {
      std::optional<Result<Decision>> end;
      ASSERT_TRUE(eventually([&] {
        bool moved = false;
        end = ranks[idx(r)]->move_agreement(moved);
        return end.has_value();
      })) << "rank "
          << r;
      ASSERT_TRUE(end->ok()) << end->status().to_string();
      EXPECT_EQ((*end)->flags, round);
    }
  }
  const Sum sum(ranks, 3000);
  ASSERT_TRUE(eventually([&] { return sum.done(); })) << "it goes on as ever";
}

// While a communicator is made, nobody waits in a call of its parent.
TEST(Progress, AnAbortIsFoundByThoseWhoMakeACommunicator) {
  const States ranks = make_ranks(2);
  const std::vector<bool> nobody(2);
  EXPECT_TRUE(ranks[0]->look_for_deaths(nobody).ok());
  ranks[0]->abort();
  EXPECT_EQ(ranks[0]->look_for_deaths(nobody).code(), StatusCode::aborted);
}

TEST(Progress, WorldsComeAndGoAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int round = 0; round < 25; ++round) {
        const States ranks = make_ranks(1 + (t + round) % 3);
        const Sum sum(ranks, idx(1 + 2000 * (round % 3)));
        EXPECT_TRUE(round % 4 != t || eventually([&] { return sum.done(); }));
        for (const Started& work : sum.works) ASSERT_TRUE(work->owner().wait(*work).ok());
        sum.check();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(no_thread_is_left());
}

// Works that are dropped, waited for and followed by blocking calls, on two communicators of each
// rank, with pauses in which the thread comes.
TEST(Progress, MixesWithWaitersAndBlockingCalls) {
  auto first = Communicator::for_threads(3);
  auto second = Communicator::for_threads(3);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto body = [](Communicator& a, Communicator& b) {
    std::vector<std::int32_t> one(4000);
    std::vector<std::int32_t> two(50'000);
    const auto sum = [](Communicator& comm, std::vector<std::int32_t>& data) {
      data.assign(data.size(), 1);
      return comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::int32,
                                   ReduceOp::sum);
    };
    for (int round = 0; round < 40; ++round) {
      {
        auto kept = sum(a, one);
        const auto dropped = sum(b, two);
        ASSERT_TRUE(kept.ok() && dropped.ok());
        if (round % 3 == a.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (round % 2 == 0) {
          ASSERT_TRUE(a.barrier().ok());
        }
        ASSERT_TRUE(kept->wait().ok());
      }
      ASSERT_EQ(one.back(), 3);
      ASSERT_EQ(two.back(), 3);
      ASSERT_TRUE(b.barrier().ok());
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] { body((*first)[r], (*second)[r]); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Progress, AForkedChildHasAThreadOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer knows no threads in a child of threads";
#endif
  const States ranks = make_ranks(2);
  const Sum before(ranks, 3000);
  ASSERT_TRUE(eventually([&] { return before.done(); }));
  const pid_t child = fork();
  if (child == 0) {
    int wrong = progress_threads().empty() ? 0 : 1;
    {
      const States own = make_ranks(2);
      const Sum sum(own, 3000);
      if (!eventually([&] { return sum.done(); })) wrong += 2;
    }
    if (!no_thread_is_left()) wrong += 4;
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const Sum after(ranks, 3000);
  ASSERT_TRUE(eventually([&] { return after.done(); }));
}

}  // namespace
}  // namespace tutti::runtime
