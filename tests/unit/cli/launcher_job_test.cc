// launcher_job_test.cc: what the launcher decides, for every order of events that matters, on a
// clock that the test moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cli/launcher/job.hpp"

namespace tutti::cli::launcher {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr milliseconds kGrace{1000};
constexpr Ending kSuccess{};
constexpr Ending kExit3{3, 0};

// A job and its clock.
class Timeline {
 public:
  explicit Timeline(int ranks, milliseconds timeout = {})
      : job(ranks, "prog -x", {kGrace, timeout}, now_) {}

  void wait(milliseconds time) {
    now_ += time;
    job.time_passed(now_);
  }
  void end(int rank, Ending ending) { job.rank_ended(rank, ending, now_); }
  void signal(int number) { job.user_signal(number, now_); }
  void lose_output() { job.output_lost(now_); }
  bool waits_for(milliseconds time) const { return job.wake_at() == now_ + time; }

 private:
  Clock::time_point now_{std::chrono::hours(1)};

 public:
  Job job;
};

TEST(Job, SuccessIsSilent) {
  Timeline timeline(2);
  EXPECT_EQ(timeline.job.wake_at(), std::nullopt);
  timeline.end(1, kSuccess);
  EXPECT_TRUE(timeline.job.is_running(0));
  EXPECT_FALSE(timeline.job.is_running(1));
  EXPECT_FALSE(timeline.job.all_ended());
  timeline.end(0, kSuccess);
  EXPECT_TRUE(timeline.job.all_ended());
  EXPECT_EQ(timeline.job.exit_code(), 0);
  EXPECT_THAT(timeline.job.take_signals(), IsEmpty());
  EXPECT_THAT(timeline.job.take_reports(), IsEmpty());
}

TEST(Job, FailureIsNamedAndTheOthersGetTimeThenTermThenKill) {
  Timeline timeline(3);
  timeline.end(1, kExit3);
  EXPECT_THAT(timeline.job.take_reports(), ElementsAre("rank 1 exited with code 3: prog -x"));
  EXPECT_THAT(timeline.job.take_signals(), IsEmpty());
  EXPECT_TRUE(timeline.waits_for(kGrace));
  timeline.wait(kGrace - milliseconds(1));
  EXPECT_THAT(timeline.job.take_signals(), IsEmpty());
  timeline.wait(milliseconds(1));
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGTERM));
  EXPECT_THAT(timeline.job.take_reports(), ElementsAre(HasSubstr("ranks 0 and 2")));
  timeline.end(0, {0, SIGTERM});
  EXPECT_THAT(timeline.job.take_reports(), IsEmpty());  // that one is our own doing
  timeline.wait(kGrace);
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGKILL));
  EXPECT_THAT(timeline.job.take_reports(), ElementsAre(HasSubstr("rank 2")));
  EXPECT_EQ(timeline.job.wake_at(), std::nullopt);
  timeline.end(2, {0, SIGKILL});
  EXPECT_EQ(timeline.job.exit_code(), 3);
}

TEST(Job, FirstFailureDecidesAndLaterOnesAreListed) {
  Timeline timeline(4);
  timeline.end(2, {0, SIGSEGV});
  timeline.end(3, {1, 0});
  timeline.end(0, {1, 0});
  timeline.end(1, kSuccess);
  EXPECT_THAT(timeline.job.take_reports(),
              ElementsAre(AllOf(HasSubstr("rank 2 was killed by signal 11"), HasSubstr("prog -x")),
                          "after that, ranks 0 and 3 failed too"));
  EXPECT_EQ(timeline.job.exit_code(), 128 + SIGSEGV);
}

TEST(Job, TheOthersMayGoOn) {
  JobLimits limits{kGrace, {}, OnFailure::go_on};
  const Clock::time_point now{std::chrono::hours(1)};
  Job job(3, "prog", limits, now);
  job.rank_ended(1, {0, SIGKILL}, now);
  EXPECT_THAT(job.take_reports(), ElementsAre("rank 1 was killed by signal 9 (Killed): prog"));
  EXPECT_EQ(job.wake_at(), std::nullopt);
  job.time_passed(now + 10 * kGrace);
  EXPECT_THAT(job.take_signals(), IsEmpty());
  job.rank_ended(0, kExit3, now);
  EXPECT_THAT(job.take_reports(), ElementsAre("rank 0 exited with code 3: prog"));
  Job lost = job;
  job.rank_ended(2, kSuccess, now);
  EXPECT_EQ(job.exit_code(), 0);
  lost.rank_ended(2, {5, 0}, now);
  EXPECT_EQ(lost.exit_code(), 128 + SIGKILL);  // nobody ended well: the first decides
}

TEST(Job, UsersSignalIsPassedOnThenKills) {
  Timeline timeline(2);
  timeline.signal(SIGINT);
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGINT));
  timeline.wait(kGrace);
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGKILL));
  timeline.end(0, {0, SIGKILL});
  timeline.end(1, {0, SIGKILL});
  EXPECT_EQ(timeline.job.exit_code(), 128 + SIGINT);
}

TEST(Job, SecondSignalKillsAtOnce) {
  Timeline timeline(2);
  timeline.signal(SIGTERM);
  timeline.signal(SIGTERM);
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGTERM, SIGKILL));
}

TEST(Job, RanksThatEndWellAfterASignalAreASuccess) {
  Timeline timeline(1);
  timeline.signal(SIGTERM);
  timeline.end(0, kSuccess);
  EXPECT_EQ(timeline.job.exit_code(), 0);
}

TEST(Job, RanksThatDieOfThePassedOnSignalAreNotReported) {
  Timeline timeline(1);
  timeline.signal(SIGINT);
  timeline.end(0, {0, SIGINT});
  EXPECT_THAT(timeline.job.take_reports(), IsEmpty());
  EXPECT_EQ(timeline.job.exit_code(), 128 + SIGINT);
}

TEST(Job, SignalDuringTheGraceOfAFailureIsPassedOn) {
  Timeline timeline(2);
  timeline.end(0, kExit3);
  timeline.signal(SIGINT);
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGINT));
  timeline.end(1, {0, SIGINT});
  EXPECT_EQ(timeline.job.exit_code(), 3);
}

TEST(Job, TimeoutNamesWhoStillRuns) {
  Timeline timeline(3, milliseconds(5000));
  EXPECT_TRUE(timeline.waits_for(milliseconds(5000)));
  timeline.end(1, kSuccess);
  timeline.wait(milliseconds(4999));
  EXPECT_THAT(timeline.job.take_signals(), IsEmpty());
  timeline.wait(milliseconds(1));
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGTERM));
  EXPECT_THAT(timeline.job.take_reports(),
              ElementsAre("not finished after 5 s, ending it; still running: ranks 0 and 2"));
  timeline.end(0, {0, SIGTERM});
  timeline.wait(kGrace);
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGKILL));
  timeline.end(2, {0, SIGKILL});
  EXPECT_EQ(timeline.job.exit_code(), 124);
}

TEST(Job, TimeoutDoesNotHideAFailureBeforeIt) {
  Timeline timeline(2, milliseconds(1500));
  timeline.wait(milliseconds(1000));
  timeline.end(0, kExit3);
  timeline.wait(kGrace);
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGTERM));
  timeline.end(1, {0, SIGTERM});
  EXPECT_EQ(timeline.job.exit_code(), 3);
}

TEST(Job, LostOutputEndsTheRanks) {
  Timeline timeline(1);
  timeline.lose_output();
  timeline.lose_output();
  EXPECT_THAT(timeline.job.take_signals(), ElementsAre(SIGTERM));
  timeline.end(0, {0, SIGTERM});
  EXPECT_EQ(timeline.job.exit_code(), 128 + SIGPIPE);
}

TEST(ListRanks, IsShort) {
  EXPECT_EQ(list_ranks({4}), "rank 4");
  EXPECT_EQ(list_ranks({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(list_ranks({0, 2, 5}), "ranks 0, 2 and 5");
  EXPECT_EQ(list_ranks({3, 4, 5, 6}), "ranks 3 .. 6");
  std::vector<int> odd;
  for (int rank = 1; rank < 100; rank += 2) odd.push_back(rank);
  EXPECT_EQ(list_ranks(odd),
            "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 34 more");
}

}  // namespace
}  // namespace tutti::cli::launcher
