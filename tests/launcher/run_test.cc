// run_test.cc: `tutti run` as its users see it: what ranks are told, what comes out, how it ends,
// and that nothing is left behind. The ranks are small shell scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::UnorderedElementsAre;

constexpr auto kPatience = std::chrono::seconds(60);  // only a broken launcher needs it

std::string content_of(int file) {
  std::string text;
  std::array<char, 65536> buffer;
  for (ssize_t got = 0;
       (got = pread(file, buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A started `tutti run`, whose output goes to files without names. What it leaves behind becomes
// our child.
class Launcher {
 public:
  explicit Launcher(const std::vector<std::string>& arguments, const std::string& input = "",
                    const std::string& command = "run") {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (write(in_, input.data(), input.size()) < 0) ADD_FAILURE() << "cannot write the input";
    lseek(in_, 0, SEEK_SET);
    std::vector<std::string> all = {TUTTI_PROGRAM, command};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& argument : all) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    process_ = fork();
    if (process_ != 0) return;
    // Who runs the tests in the background may have us ignore these.
    for (const int number : {SIGINT, SIGQUIT, SIGHUP, SIGTERM}) signal(number, SIG_DFL);
    dup2(in_, STDIN_FILENO);
    dup2(out_, STDOUT_FILENO);
    dup2(err_, STDERR_FILENO);
    execv(pointers[0], pointers.data());
    _exit(99);
  }
  ~Launcher() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    for (const int file : {in_, out_, err_}) close(file);
  }

  // The exit code, or 1000 + the signal that killed the launcher itself.
  int wait() {
    int status = 0;
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (waitpid(process_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > give_up) {
        ADD_FAILURE() << "tutti run does not end; so far:\n" << out() << err();
        kill(process_, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  // Waits until so many lines have come out on stdout.
  void await_lines(std::size_t count) const {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (lines_of(out()).size() < count) {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << out() << err();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void send(int signal) const { kill(process_, signal); }
  std::string out() const { return content_of(out_); }
  std::string err() const { return content_of(err_); }

 private:
  int in_ = memfd_create("in", MFD_CLOEXEC);
  int out_ = memfd_create("out", MFD_CLOEXEC);
  int err_ = memfd_create("err", MFD_CLOEXEC);
  pid_t process_ = -1;
};

// Arguments that run a shell script on every rank.
std::vector<std::string> script(int ranks, const std::string& text,
                                std::vector<std::string> options = {}) {
  std::vector<std::string> arguments = {"-n", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  for (const char* argument : {"--", "sh", "-c"}) arguments.emplace_back(argument);
  arguments.push_back(text);
  return arguments;
}

// Processes that a launcher left behind are our children now; waits for them to die.
void expect_nothing_left() {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "a process outlives its job";
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(Run, TellsRanksWhoTheyAre) {
  Launcher launcher(script(3, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR",
                           {"--prefix", "all"}));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(lines_of(launcher.out()),
              UnorderedElementsAre("[0] 0 3 0 3 127.0.0.1", "[1] 1 3 1 3 127.0.0.1",
                                   "[2] 2 3 2 3 127.0.0.1"));
  EXPECT_EQ(launcher.err(), "");
}

TEST(Run, AllRanksShareOnePortAndOneSecret) {
  Launcher launcher(script(2, "echo $MASTER_PORT; cat $TUTTI_JOB_SECRET_FILE", {"--no-prefix"}));
  ASSERT_EQ(launcher.wait(), 0) << launcher.err();
  const auto lines = lines_of(launcher.out());
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines, testing::Contains(MatchesRegex("[0-9]+")).Times(2));
  EXPECT_THAT(lines, testing::Contains(MatchesRegex("[0-9a-f]{64}")).Times(2));
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 2U);
}

TEST(Run, SecretIsOurs) {
  Launcher launcher(script(1,
                           "stat -L -c %a $TUTTI_JOB_SECRET_FILE; "
                           "echo x 2>/dev/null >$TUTTI_JOB_SECRET_FILE && echo written; "
                           "env | grep -c TUTTI_JOB_SECRET="));
  launcher.wait();
  EXPECT_THAT(lines_of(launcher.out()), ElementsAre("400", "0"));
}

TEST(Run, EveryJobHasItsOwnSecret) {
  Launcher first(script(1, "cat $TUTTI_JOB_SECRET_FILE")),
      second(script(1, "cat $TUTTI_JOB_SECRET_FILE"));
  ASSERT_EQ(first.wait(), 0);
  ASSERT_EQ(second.wait(), 0);
  EXPECT_NE(first.out(), second.out());
}

TEST(Run, TransportAndPortCanBeChosen) {
  Launcher launcher(script(1, "echo $TUTTI_TRANSPORT $MASTER_PORT",
                           {"--transport", "tcp", "--master-port", "29500"}));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(launcher.out(), "tcp 29500\n");
}

TEST(Run, RanksThatShareCoresGoWithoutRestartableSequences) {
  constexpr const char* kSay = "echo ${GLIBC_TUNABLES-none}";
  Launcher alone(script(1, kSay));
  EXPECT_EQ(alone.wait(), 0) << alone.err();
  EXPECT_EQ(alone.out(), std::getenv("GLIBC_TUNABLES") == nullptr
                             ? "none\n"
                             : std::string(std::getenv("GLIBC_TUNABLES")) + "\n");
  const int many = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  Launcher crowded(script(many, kSay, {"--no-prefix"}));
  EXPECT_EQ(crowded.wait(), 0) << crowded.err();
  const auto lines = lines_of(crowded.out());
  EXPECT_EQ(lines.size(), static_cast<std::size_t>(many));
  EXPECT_THAT(lines, testing::Each(HasSubstr("glibc.pthread.rseq=")));
}

TEST(Run, OptionsAfterTheProgramAreItsOwn) {
  Launcher dashes({"-n", "1", "--", "echo", "-n", "4", "--", "--help"});
  EXPECT_EQ(dashes.wait(), 0);
  EXPECT_EQ(dashes.out(), "4 -- --help");
  Launcher without({"-n", "1", "echo", "a", "--bind", "-n", "--", "b"});
  EXPECT_EQ(without.wait(), 0);
  EXPECT_EQ(without.out(), "a --bind -n -- b\n");
}

TEST(Run, FindsProgramsBesideItself) {
  Launcher launcher({"-n", "1", "--", "tutti", "version"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.out(), HasSubstr("tutti "));
}

TEST(Run, PrefixesAllButTheTableOfRank0) {
  Launcher launcher(script(2, "echo out; echo err >&2"));
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(lines_of(launcher.out()), UnorderedElementsAre("out", "[1] out"));
  EXPECT_THAT(lines_of(launcher.err()), UnorderedElementsAre("[0] err", "[1] err"));
}

TEST(Run, LinesOfRanksDoNotMix) {
  // Each line leaves a rank in two writes.
  Launcher launcher(
      script(4, "for i in $(seq 200); do printf begin; echo ' end'; done", {"--prefix", "all"}));
  EXPECT_EQ(launcher.wait(), 0);
  const auto lines = lines_of(launcher.out());
  EXPECT_EQ(lines.size(), 800U);
  EXPECT_THAT(lines, testing::Each(MatchesRegex("\\[[0-3]\\] begin end")));
}

TEST(Run, LargeOutputArrivesWhole) {
  Launcher launcher({"-n", "2", "--no-prefix", "--", "seq", "1", "50000"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(lines_of(launcher.out()).size(), 100'000U);
}

TEST(Run, Rank0ReadsTheInput) {
  Launcher launcher(script(2, "cat; echo read"), "question\n");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(lines_of(launcher.out()), UnorderedElementsAre("question", "read", "[1] read"));
}

TEST(Run, FailingRankIsNamedAndEndsTheOthers) {
  Launcher launcher(script(3, "if [ $RANK = 1 ]; then exit 7; fi; sleep 600", {"--grace", "0.1"}));
  EXPECT_EQ(launcher.wait(), 7);
  EXPECT_THAT(launcher.err(),
              AllOf(HasSubstr("rank 1 exited with code 7: sh -c"), HasSubstr("ranks 0 and 2")));
  expect_nothing_left();
}

TEST(Run, KilledRankIsNamedAndStubbornOnesAreKilled) {
  Launcher launcher(script(3,
                           "trap '' TERM; if [ $RANK = 2 ]; then kill -KILL $$; fi; "
                           "sleep 600 & wait; sleep 600",
                           {"--grace", "0.1"}));
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_THAT(launcher.err(),
              AllOf(HasSubstr("rank 2 was killed by signal 9"), HasSubstr("killing what")));
  expect_nothing_left();
}

TEST(Run, SurvivorsMayEndByThemselves) {
  Launcher launcher(script(2, "if [ $RANK = 1 ]; then exit 7; fi; sleep 0.2; echo saw it; exit 4"));
  EXPECT_EQ(launcher.wait(), 7);
  EXPECT_EQ(launcher.out(), "saw it\n");
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("rank 1 exited with code 7"),
                                    HasSubstr("after that, rank 0 failed too")));
}

TEST(Run, KilledRankIsNamedThoughWhoHeardOfItEndsFirst) {
  // Rank 1 has files that the kernel needs a while to free, one on either side of the pipe, so that
  // rank 0 hears of its death long before there is anything for a parent to see.
  const std::string pipe = testing::TempDir() + "tutti_hang_up_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string python =
      "import os, signal\n"
      "def large():\n"
      "  os.posix_fallocate(os.memfd_create('large'), 0, 1 << 26)\n"
      "large()\n"
      "os.open('" +
      pipe +
      "', os.O_WRONLY)\n"
      "large()\n"
      "os.kill(os.getpid(), signal.SIGKILL)\n";
  Launcher launcher(script(2, "if [ $RANK = 0 ]; then read line <" + pipe +
                                  "; exit 5; fi; exec python3 -c \"" + python + "\""));
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  unlink(pipe.c_str());
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("rank 1 was killed by signal 9"),
                                    HasSubstr("after that, rank 0 failed too")));
}

TEST(Run, SignalIsPassedOn) {
  Launcher launcher(
      script(2, "trap 'echo got it; exit 0' TERM; echo ready; sleep 600 & wait", {"--no-prefix"}));
  launcher.await_lines(2);
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(lines_of(launcher.out()), ElementsAre("ready", "ready", "got it", "got it"));
  expect_nothing_left();
}

TEST(Run, RanksThatDieOfTheSignalGiveItsExitCode) {
  Launcher launcher(script(2, "echo ready; exec sleep 600"));
  launcher.await_lines(2);
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.wait(), 128 + SIGINT);
  expect_nothing_left();
}

TEST(Run, SecondSignalKills) {
  Launcher launcher(script(2, "trap 'echo no' INT; echo ready; while :; do sleep 0.01; done",
                           {"--grace", "600", "--no-prefix"}));
  launcher.await_lines(2);
  launcher.send(SIGINT);
  launcher.await_lines(4);
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.wait(), 128 + SIGINT);
  expect_nothing_left();
}

TEST(Run, RanksDieWithALauncherThatIsKilled) {
  Launcher launcher(script(3, "echo ready; exec sleep 600"));
  launcher.await_lines(3);
  launcher.send(SIGKILL);
  EXPECT_EQ(launcher.wait(), 1000 + SIGKILL);
  expect_nothing_left();
}

TEST(Run, WhatARankStartedEndsWithIt) {
  Launcher launcher(script(2, "sleep 600 & echo started"));
  EXPECT_EQ(launcher.wait(), 0);
  expect_nothing_left();
}

TEST(Run, TimeoutNamesTheRanksThatStillRun) {
  Launcher launcher(script(3, "if [ $RANK = 0 ]; then exit 0; fi; sleep 600",
                           {"--timeout", "0.5", "--grace", "0.1"}));
  EXPECT_EQ(launcher.wait(), 124);
  EXPECT_THAT(launcher.err(),
              AllOf(HasSubstr("not finished after 0.5 s"), HasSubstr("ranks 1 and 2")));
  expect_nothing_left();
}

TEST(Run, MistakesAreExplained) {
  struct Case {
    std::vector<std::string> arguments;
    std::string text;
  };
  const Case cases[] = {
      {{"-n", "2"}, "no program"},
      {{"-n", "2", "--"}, "no program"},
      {{"-n", "0", "--", "true"}, "--ranks"},
      {{"-n", "two", "--", "true"}, "--ranks"},
      {{"--", "true"}, "--ranks is required"},
      {{"-n", "2", "--bnd", "none", "true"}, "did you mean --bind?"},
      {{"-n", "2", "--bind", "socket", "--", "true"}, "socket"},
      {{"-n", "2", "--transport", "tpc", "--", "true"}, "auto, memory, shm, tcp"},
      {{"-n", "2", "--", "no-such-program-here"}, "no program no-such-program-here in PATH"},
      {{"-n", "2", "--", "/etc/passwd"}, "/etc/passwd is not a program"},
  };
  for (const Case& each : cases) {
    Launcher launcher(each.arguments);
    EXPECT_EQ(launcher.wait(), 2) << each.text;
    EXPECT_THAT(launcher.err(), HasSubstr(each.text));
    EXPECT_EQ(launcher.out(), "");
  }
}

TEST(Run, UnknownSettingIsOneErrorBeforeAnythingStarts) {
  ASSERT_EQ(setenv("TUTTI_TRANPORT", "tcp", 1), 0);
  Launcher launcher(script(4, "echo started"));
  unsetenv("TUTTI_TRANPORT");
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_EQ(launcher.out(), "");
  EXPECT_THAT(lines_of(launcher.err()), ElementsAre(HasSubstr("did you mean TUTTI_TRANSPORT?")));
}

TEST(Run, MisspeltCommandGetsTheNearest) {
  Launcher launcher({}, "", "rnu");
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.err(), HasSubstr("did you mean run?"));
}

TEST(Run, HelpExplains) {
  Launcher launcher({"--help"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("Usage: tutti run -n RANKS"), HasSubstr("Examples:"),
                                    HasSubstr("--timeout"), Not(IsEmpty())));
}

}  // namespace
