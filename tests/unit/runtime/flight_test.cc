// The flight recorder: what is written can be read, by others and at any moment; whom a chain of
// waits leads to; and when a wait is slow. The time is made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "runtime/flight/chain.hpp"
#include "runtime/flight/reader.hpp"
#include "runtime/flight/text.hpp"
#include "runtime/flight/watch.hpp"

namespace tutti::runtime::flight {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(const File& file) {
  return {reinterpret_cast<const std::byte*>(&file), sizeof file};
}

ProcessView view_of(const Recorder& recorder) {
  auto view = read(bytes_of(recorder.file()), Moment::now());
  EXPECT_TRUE(view.ok()) << view.status().message();
  return view.ok() ? *view : ProcessView{};
}

Signature call(std::uint32_t sequence) {
  return {.sequence = sequence, .collective = Collective::all_reduce, .count = 100};
}

std::array<std::byte, kArrivalBytes> record(const Signature& signature) {
  std::array<std::byte, kArrivalBytes> bytes;
  encode_signature(signature, bytes);
  return bytes;
}

TEST(FlightRecorder, TellsWhatWasWritten) {
  const std::shared_ptr<Recorder> recorder = Recorder::make();
  ASSERT_NE(recorder, nullptr);
  Log log(recorder, {42, 7, 2, 5, "shm"});
  for (std::uint32_t i = 1; i <= 100; ++i) {
    log.begin(record(call(i)));
    if (i < 100) log.end(i == 99 ? StatusCode::mismatch : StatusCode::ok);
  }
  const Rank awaited[] = {3, 4};
  log.wait(awaited, "data from rank 3", ticks());
  log.memory(10, 20, 30, 2);
  const ProcessView process = view_of(*recorder);
  EXPECT_EQ(process.process, static_cast<std::uint64_t>(getpid()));
  ASSERT_EQ(process.communicators.size(), 1U);
  const CommunicatorView& view = process.communicators[0];
  EXPECT_EQ(where(view), (Where{42, 7, 2}));
  EXPECT_EQ(view.size, 5);
  EXPECT_EQ(view.transport, "shm");
  EXPECT_EQ(view.begun, 100U);
  ASSERT_EQ(view.calls.size(), kCallsKept);
  EXPECT_EQ(view.calls.front().number, 101 - kCallsKept);
  EXPECT_EQ(view.calls.front().signature, call(101 - kCallsKept));
  EXPECT_EQ(view.calls[kCallsKept - 2].outcome, StatusCode::mismatch);
  EXPECT_TRUE(view.in_call());
  ASSERT_TRUE(view.wait);
  EXPECT_THAT(view.wait->ranks, ElementsAre(3, 4));
  EXPECT_EQ(view.wait->what, "data from rank 3");
  EXPECT_EQ(view.memory.scratch_bytes, 20U);
  EXPECT_EQ(view.queued, 2U);
  EXPECT_FALSE(view.failure);
}

TEST(FlightRecorder, ACallEndsWhenItIsSaidTo) {
  const std::shared_ptr<Recorder> recorder = Recorder::make();
  Log log(recorder, {1, 0, 0, 2, "shm"});
  const std::uint64_t begun = log.begin(record(call(1)));
  EXPECT_GE(ticks(), begun);
  log.end(StatusCode::ok, begun);
  const ProcessView process = view_of(*recorder);
  EXPECT_FALSE(process.communicators.at(0).calls.at(0).running);
  EXPECT_EQ(process.communicators.at(0).calls.at(0).took, 0);
}

TEST(FlightRecorder, AWaitEndsWithItsCall) {
  const std::shared_ptr<Recorder> recorder = Recorder::make();
  Log log(recorder, {1, 0, 0, 2, "tcp"});
  const Rank awaited[] = {1};
  log.begin(record(call(1)));
  log.wait(awaited, "data", ticks());
  log.end(StatusCode::ok);
  log.begin(record(call(2)));
  EXPECT_FALSE(view_of(*recorder).communicators.at(0).wait);
}

TEST(FlightRecorder, KeepsWhyACommunicatorFailed) {
  const std::shared_ptr<Recorder> recorder = Recorder::make();
  Log log(recorder, {1, 0, 0, 2, "tcp"});
  const std::string text = "rank 1 is lost" + std::string(600, '\x1b');
  log.fail(Status(StatusCode::peer_lost, text, 1));
  const auto failure = view_of(*recorder).communicators.at(0).failure;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, StatusCode::peer_lost);
  EXPECT_EQ(failure->culprit, 1);
  EXPECT_EQ(failure->text, "rank 1 is lost" + std::string(kFailureTextWords * 8 - 14, '?'));
}

TEST(FlightRecorder, SlotsAreUsedAgainAndCounted) {
  const std::shared_ptr<Recorder> recorder = Recorder::make();
  {
    Log old(recorder, {1, 0, 0, 2, "tcp"});
    old.begin(record(call(1)));
    old.fail(Status(StatusCode::timeout, "late"));
  }
  EXPECT_TRUE(view_of(*recorder).communicators.empty());
  std::vector<std::unique_ptr<Log>> logs;
  for (std::size_t i = 0; i < kSlotsMax + 2; ++i)
    logs.push_back(std::make_unique<Log>(recorder, Identity{2, i, 0, 2, "shm"}));
  EXPECT_FALSE(logs.back()->on());
  logs.back()->begin(record(call(1)));  // goes nowhere
  logs.back()->end(StatusCode::ok);
  const ProcessView process = view_of(*recorder);
  EXPECT_EQ(process.communicators.size(), kSlotsMax);
  EXPECT_EQ(process.left_out, 2U);
  EXPECT_EQ(process.communicators[0].begun, 0U);
  EXPECT_TRUE(process.communicators[0].calls.empty());
  EXPECT_FALSE(process.communicators[0].failure);
}

TEST(FlightRecorder, IsOfTheProcessAndGoesWithItsLastUser) {
  const std::shared_ptr<Recorder> one = Recorder::of_process();
  EXPECT_EQ(one, Recorder::of_process());
  EXPECT_FALSE(one->inherited());
}

// The reader never sees half a call, however often the writer writes.
TEST(FlightReader, SeesWholeCallsWhileTheyAreWritten) {
  const std::shared_ptr<Recorder> recorder = Recorder::make();
  Log log(recorder, {1, 0, 0, 2, "shm"});
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint32_t i = 1; !stop.load(std::memory_order_relaxed); ++i) {
      Signature signature = call(i);
      signature.count = signature.plan_hash = i;
      log.begin(record(signature));
      log.end(StatusCode::ok);
    }
  });
  std::size_t seen = 0;
  for (int round = 0; round < 200 || seen < 100; ++round) {
    const ProcessView process = view_of(*recorder);
    for (const CallView& one : process.communicators.at(0).calls) {
      ++seen;
      EXPECT_EQ(one.signature.count, one.signature.sequence);
      EXPECT_EQ(one.signature.plan_hash, one.signature.sequence);
      EXPECT_EQ(one.number, one.signature.sequence);
    }
  }
  stop = true;
  writer.join();
}

TEST(FlightReader, RefusesWhatIsNoRecorder) {
  std::vector<Page> pages(sizeof(File) / sizeof(Page));
  const auto bytes = std::as_bytes(std::span(pages));
  EXPECT_EQ(read(bytes, {}).status().code(), StatusCode::corrupt_data);
  EXPECT_EQ(read(bytes.first(100), {}).status().code(), StatusCode::corrupt_data);
  pages[0].words[0] = kMagic;
  EXPECT_EQ(read(bytes, {}).status().code(), StatusCode::corrupt_data);
  pages[0].words[1] = sizeof(File);
  EXPECT_TRUE(read(bytes, {}).ok());
}

TEST(FlightReader, MakesNothingOfGarbage) {
  std::mt19937_64 random(1);
  std::vector<Page> pages(sizeof(File) / sizeof(Page));
  for (int round = 0; round < 30; ++round) {
    // Also small numbers, which are likely to pass for something.
    for (Page& page : pages)
      for (std::uint64_t& word : page.words) word = random() >> (random() % 64);
    pages[0].words[0] = kMagic;
    pages[0].words[1] = sizeof(File);
    const auto view = read(std::as_bytes(std::span(pages)), Moment::now());
    ASSERT_TRUE(view.ok());
    for (const CommunicatorView& communicator : view->communicators)
      EXPECT_FALSE(describe_failure(communicator, kCallsKept).empty());
  }
}

// ---- Chains ----

// A job of which each rank is a process with one communicator.
class Job {
 public:
  explicit Job(int size) {
    for (Rank r = 0; r < size; ++r) {
      Process process;
      process.pid = 100 + r;
      process.state = 'S';
      CommunicatorView view;
      view.job = 9;
      view.rank = r;
      view.size = size;
      process.recorder.communicators.push_back(view);
      processes.push_back(process);
    }
  }

  CommunicatorView& at(std::size_t rank) { return processes[rank].recorder.communicators[0]; }

  void in_call(std::size_t rank, std::uint32_t sequence, bool running = true) {
    CallView view;
    view.number = at(rank).begun = sequence;
    view.signature = call(sequence);
    view.running = running;
    at(rank).calls = {view};
  }
  void waits(std::size_t rank, std::vector<Rank> ranks) {
    in_call(rank, 5);
    at(rank).wait = WaitView{ranks, "data", 1};
  }

  Culprit culprit() { return find_culprit(processes, where(at(0)), at(0).wait->ranks, call(5)); }

  std::vector<Process> processes;
};

TEST(FlightChain, EndsWithTheRankThatIsStopped) {
  Job job(4);
  job.waits(0, {3});
  job.waits(3, {2});
  job.waits(2, {1});
  job.waits(1, {0});
  job.processes[1].state = 'T';
  const Culprit culprit = job.culprit();
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_EQ(culprit.pid, 101);
  EXPECT_EQ(to_string(culprit),
            "rank 3 waits for rank 2; rank 2 waits for rank 1; rank 1 (pid 101) is stopped (by a "
            "signal or a debugger)");
}

TEST(FlightChain, EndsWithTheRankThatIsNotInTheCall) {
  Job job(3);
  job.waits(0, {1});
  job.waits(1, {2});
  job.in_call(2, 4, false);
  EXPECT_EQ(job.culprit().rank, 2);
  EXPECT_THAT(to_string(job.culprit()), HasSubstr("rank 2 (pid 102) is not in the call"));
}

TEST(FlightChain, EndsWithTheRankThatMadeAnotherCall) {
  Job job(3);
  job.waits(0, {1});
  job.waits(1, {2});
  job.in_call(2, 7);
  EXPECT_EQ(job.culprit().rank, 2);
  EXPECT_THAT(to_string(job.culprit()), HasSubstr("made another call: all_reduce #7"));
}

TEST(FlightChain, PrefersTheSurestOfSeveralEnds) {
  Job job(4);
  job.waits(0, {1, 3});
  job.in_call(1, 4, false);
  job.waits(3, {2});
  job.processes[2].state = 't';
  EXPECT_EQ(job.culprit().rank, 2);
}

TEST(FlightChain, TakesTheWordOfARankThatHasFailed) {
  Job job(4);
  job.waits(0, {1});
  job.at(1).failure = FailureView{StatusCode::timeout, 3, "waited in vain", 1};
  EXPECT_EQ(job.culprit().rank, 3);
  EXPECT_EQ(job.culprit().pid, 103);
  job.at(1).failure->culprit = Status::kUnknownRank;
  EXPECT_EQ(job.culprit().rank, 1);
}

TEST(FlightChain, NamesTheFirstWhereNothingIsKnown) {
  Job job(3);
  job.waits(0, {1});
  job.processes.resize(1);
  EXPECT_EQ(job.culprit().rank, 1);
  EXPECT_EQ(job.culprit().pid, 0);
}

TEST(FlightChain, GetsOutOfCircles) {
  Job job(3);
  job.waits(0, {1});
  job.waits(1, {2});
  job.waits(2, {1});
  EXPECT_EQ(job.culprit().rank, 1);
  EXPECT_THAT(to_string(job.culprit()), HasSubstr("circle"));
  job.waits(2, {1, 0});  // back to who asks
  EXPECT_EQ(job.culprit().rank, 1);
}

TEST(FlightChain, FollowsAProcessIntoItsOtherCommunicator) {
  Job job(3);
  job.waits(0, {1});
  job.in_call(1, 4, false);
  // Of ranks 1 and 2, in reverse.
  for (const std::size_t r : {1U, 2U}) {
    CommunicatorView other = job.at(r);
    other.context = 77;
    other.size = 2;
    other.rank = r == 1 ? 1 : 0;
    job.processes[r].recorder.communicators.push_back(other);
  }
  CommunicatorView& other = job.processes[1].recorder.communicators[1];
  job.in_call(2, 4, false);
  other.begun = 1;
  other.wait = WaitView{{0}, "data", 1};
  EXPECT_EQ(job.culprit().rank, 2) << to_string(job.culprit());
  EXPECT_EQ(job.culprit().pid, 102);
}

TEST(FlightChain, TellsRanksApartThatAreThreads) {
  Job job(3);
  for (const std::size_t r : {1U, 2U}) job.processes[0].recorder.communicators.push_back(job.at(r));
  job.processes.resize(1);
  auto& ranks = job.processes[0].recorder.communicators;
  for (const std::size_t r : {0U, 1U}) {
    ranks[r].begun = 1;
    ranks[r].wait = WaitView{{static_cast<Rank>(r + 1)}, "data", 1};
  }
  const Culprit culprit =
      find_culprit(job.processes, where(ranks[0]), ranks[0].wait->ranks, call(1));
  EXPECT_EQ(culprit.rank, 2);
  EXPECT_EQ(to_string(culprit),
            "rank 1 waits for rank 2; rank 2 (pid 100) has not made a call yet");
}

TEST(FlightChain, OfARankThatDoesNotWaitIsTheLongestWaiters) {
  Job job(3);
  job.in_call(2, 4, false);
  EXPECT_FALSE(find_culprit_of(job.processes, job.at(2)));
  job.waits(0, {1});
  job.waits(1, {2});
  const auto culprit = find_culprit_of(job.processes, job.at(2));
  ASSERT_TRUE(culprit);
  EXPECT_EQ(culprit->rank, 2);
}

// ---- Watching a wait ----

class WatchTest : public testing::Test {
 protected:
  using News = Watch::News;
  // Looks every ten milliseconds until `ms`; the last thing that was news.
  News until(long ms, std::uint64_t moves, std::uint64_t call_number = 1) {
    News news = News::none;
    for (; at_ < ms; at_ += 10)
      if (const News now = watch_.look(time(at_), call_number, moves); now != News::none)
        news = now;
    return news;
  }
  static Watch::Time time(long ms) {
    return Watch::Time(std::chrono::milliseconds(1'000'000 + ms));
  }

  Watch watch_{std::chrono::milliseconds(2000)};
  long at_ = 0;
};

TEST_F(WatchTest, ShortWaitsAreNoNews) {
  for (std::uint64_t move = 0; move < 50; ++move) EXPECT_EQ(until(at_ + 20, move), News::none);
}

TEST_F(WatchTest, TellsOnceThatItWaitsAndOnceThatItIsSlow) {
  EXPECT_EQ(until(100, 1), News::waits);
  EXPECT_EQ(until(1990, 1), News::none);
  EXPECT_FALSE(watch_.slow());
  EXPECT_EQ(until(2100, 1), News::slow);
  EXPECT_TRUE(watch_.slow());
  EXPECT_EQ(until(9000, 1), News::none);
  EXPECT_EQ(until(9010, 2), News::back);
  EXPECT_EQ(std::chrono::round<std::chrono::seconds>(watch_.stood()).count(), 9);
}

TEST_F(WatchTest, OfOneCallTheSlownessIsToldOnce) {
  EXPECT_EQ(until(3000, 1), News::slow);
  EXPECT_EQ(until(3010, 2), News::back);
  EXPECT_EQ(until(9000, 2), News::waits);
  EXPECT_EQ(until(9010, 3, 2), News::moves);
  EXPECT_EQ(until(19000, 3, 2), News::slow);
}

TEST_F(WatchTest, WhoWasStoppedItselfBlamesNobody) {
  EXPECT_EQ(until(100, 1), News::waits);
  at_ += 5000;
  EXPECT_EQ(until(7000, 1), News::none);
  EXPECT_EQ(until(7200, 1), News::slow);
}

TEST_F(WatchTest, ZeroTurnsItOff) {
  watch_ = Watch(std::chrono::milliseconds(0));
  EXPECT_EQ(until(20'000, 1), News::waits);
}

TEST_F(WatchTest, IsDueNowAndThen) {
  EXPECT_TRUE(watch_.due(time(0)));
  watch_.look(time(0), 1, 1);
  EXPECT_FALSE(watch_.due(time(9)));
  EXPECT_TRUE(watch_.due(time(10)));
}

}  // namespace
}  // namespace tutti::runtime::flight
