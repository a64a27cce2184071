// flight_test.cc: jobs of real processes in which a rank is stopped, or does not come: it is
// reported as slow, named by the errors of all others, and found by `tutti doctor`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(60);  // only what is broken needs it

std::string content_of(int file) {
  std::string text;
  std::array<char, 65536> buffer;
  for (ssize_t got = 0;
       (got = pread(file, buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  return text;
}

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (line.find(part) != std::string::npos) lines.push_back(line);
  return lines;
}

// `tutti` with some arguments, started.
class Tutti {
 public:
  explicit Tutti(std::vector<std::string> arguments,
                 const std::map<std::string, std::string>& environment = {}) {
    arguments.insert(arguments.begin(), TUTTI_PROGRAM);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    process_ = fork();
    if (process_ != 0) return;
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    dup2(out_, STDOUT_FILENO);
    dup2(err_, STDERR_FILENO);
    execv(pointers[0], pointers.data());
    _exit(99);
  }
  ~Tutti() {
    if (process_ > 0) {
      kill(process_, SIGTERM);  // the launcher ends its ranks
      wait();
    }
    close(out_);
    close(err_);
  }

  int wait() {
    int status = 0;
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (waitpid(process_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > give_up) {
        ADD_FAILURE() << "it does not end; so far:\n" << out() << err();
        kill(process_, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  // The processes of all ranks, once they have said so.
  std::vector<pid_t> await_ranks(std::size_t count) const {
    std::map<int, pid_t> ranks;
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (ranks.size() < count && std::chrono::steady_clock::now() < give_up) {
      const std::string text = out();
      for (auto at = text.find("rank "); at != text.npos; at = text.find("rank ", at + 1)) {
        int rank = 0;
        int process = 0;
        int whole = 0;  // the line has ended, so that the number is all there
        std::sscanf(text.c_str() + at, "rank %d pid %d%*[\n]%n", &rank, &process, &whole);
        if (whole > 0) ranks[rank] = process;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(ranks.size(), count) << out() << err();
    std::vector<pid_t> processes;
    for (const auto& [rank, process] : ranks) processes.push_back(process);
    return processes;
  }

  // Waits until `stream` holds the text.
  void await(const std::string& text) const {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while ((out() + err()).find(text) == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << text << " in\n" << out() << err();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::string out() const { return content_of(out_); }
  std::string err() const { return content_of(err_); }

 private:
  int out_ = memfd_create("out", MFD_CLOEXEC);
  int err_ = memfd_create("err", MFD_CLOEXEC);
  pid_t process_ = -1;
};

std::vector<std::string> job(int ranks, std::vector<std::string> arguments) {
  std::vector<std::string> all = {"run", "-n", std::to_string(ranks), "--", FLIGHT_RANK};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

std::string doctor(const std::vector<std::string>& arguments, int expected = 0) {
  std::vector<std::string> all = {"doctor"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Tutti doctor(all);
  EXPECT_EQ(doctor.wait(), expected) << doctor.err();
  return doctor.out() + doctor.err();
}

// What the doctor says of a process as soon as it holds `text`: on a busy machine some ranks are
// still on their way to the wait in which they will hang. Otherwise what it said last.
std::string doctor_saying(const std::string& text, const std::vector<std::string>& arguments) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  std::string said;
  do {
    said = doctor(arguments);
  } while (said.find(text) == said.npos && std::chrono::steady_clock::now() < give_up);
  return said;
}

// A transport and an algorithm. In a ring no rank but one waits for the culprit itself.
class Over : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  std::map<std::string, std::string> environment(
      std::map<std::string, std::string> more = {}) const {
    more["TUTTI_TRANSPORT"] = GetParam().first;
    if (GetParam().second != "auto") more["TUTTI_ALGORITHM"] = GetParam().second;
    return more;
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, Over,
                         testing::Values(std::pair("shm", "auto"), std::pair("tcp", "ring")),
                         [](const auto& kind) {
                           return kind.param.first + "_" + kind.param.second;
                         });

TEST_P(Over, ARankThatIsStoppedForThreeSecondsIsSlowAndTheRunGoesOn) {
  Tutti run(job(4, {"1000"}), environment());
  const auto ranks = run.await_ranks(4);
  ASSERT_EQ(ranks.size(), 4U);
  kill(ranks[2], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  kill(ranks[2], SIGCONT);
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_EQ(lines_with(run.out(), "done").size(), 4U) << run.out();
  const auto slow = lines_with(run.err(), "slow, has not moved for");
  ASSERT_FALSE(slow.empty()) << run.err();
  EXPECT_LE(slow.size(), 3U) << run.err();
  for (const std::string& line : slow)
    EXPECT_THAT(line, AllOf(HasSubstr("all_reduce"),
                            HasSubstr("rank 2 (pid " + std::to_string(ranks[2]) + ") is stopped")));
  EXPECT_EQ(lines_with(run.err(), "rank 2 came back after").size(), slow.size()) << run.err();
}

TEST_P(Over, ARankThatStaysStoppedIsNamedByTheErrorsOfAllOthers) {
  Tutti run(job(4, {"-1"}),
            environment({{"TUTTI_TIMEOUT_MS", "3000"}, {"TUTTI_SLOW_AFTER_MS", "1000"}}));
  const auto ranks = run.await_ranks(4);
  ASSERT_EQ(ranks.size(), 4U);
  kill(ranks[1], SIGSTOP);
  run.await("culprit");
  EXPECT_NE(run.wait(), 0);
  const auto culprits = lines_with(run.out(), "culprit");
  EXPECT_EQ(culprits.size(), 3U) << run.out();
  for (const std::string& line : culprits) EXPECT_THAT(line, HasSubstr("culprit 1:")) << run.out();
  EXPECT_FALSE(lines_with(run.err(), "this communicator has failed").empty()) << run.err();
  EXPECT_TRUE(lines_with(run.err(), "came back").empty()) << run.err();
}

// Looked at from outside, while everybody hangs.
TEST_P(Over, TheDoctorNamesARankThatDoesNotCome) {
  Tutti run(job(4, {"-1", "2"}), environment({{"TUTTI_SLOW_AFTER_MS", "300"}}));
  const auto ranks = run.await_ranks(4);
  ASSERT_EQ(ranks.size(), 4U);
  run.await("slow, has not moved for");
  const std::string culprit = "rank 2 (pid " + std::to_string(ranks[2]) + ") is not in the call";
  for (const pid_t rank : ranks)
    EXPECT_THAT(doctor_saying(culprit, {std::to_string(rank)}),
                AllOf(HasSubstr(culprit), HasSubstr("of 4 over")));
  EXPECT_THAT(doctor({}), HasSubstr(culprit));
  for (const pid_t rank : ranks) kill(rank, SIGSTOP);
  const std::string stopped = "(flight_rank), stopped";
  EXPECT_THAT(doctor_saying(stopped, {std::to_string(ranks[0])}), HasSubstr(stopped));
  for (const pid_t rank : ranks) kill(rank, SIGCONT);
}

TEST(Recorder, CanBeTurnedOff) {
  Tutti run(job(2, {"-1", "1"}), {{"TUTTI_FLIGHT", "off"}, {"TUTTI_TIMEOUT_MS", "300"}});
  const auto ranks = run.await_ranks(2);
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_THAT(doctor({std::to_string(ranks[0])}, 1), HasSubstr("TUTTI_FLIGHT=off"));
  run.await("culprit 1:");
  EXPECT_TRUE(lines_with(run.err(), "this communicator has failed").empty()) << run.err();
}

}  // namespace
