// launcher_process_test.cc: programs are found and started, and what they come to is seen.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/cpu.hpp"
#include "cli/launcher/process.hpp"

namespace tutti::cli::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Ending await_ending(const Process& process) {
  while (true) {
    if (const auto ending = take_ending(process.id)) return *ending;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Ending ending_of(const std::string& script) {
  ProcessSpec spec;
  spec.path = "/bin/sh";
  spec.arguments = {"sh", "-c", script};
  const auto process = start(spec);
  EXPECT_TRUE(process.ok()) << process.status().to_string();
  return await_ending(*process);
}

TEST(Process, EndingsAreTold) {
  EXPECT_EQ(ending_of("exit 0").failed(), false);
  EXPECT_EQ(ending_of("exit 5").code, 5);
  EXPECT_EQ(ending_of("exit 5").exit_code(), 5);
  EXPECT_EQ(ending_of("kill -TERM $$").signal, SIGTERM);
  EXPECT_EQ(ending_of("kill -TERM $$").exit_code(), 128 + SIGTERM);
}

TEST(Process, GetsItsEnvironmentAndItsCores) {
  const int cpu = base::allowed_cores().back().front();
  ProcessSpec spec;
  spec.path = "/bin/sh";
  spec.arguments = {"sh", "-c", "echo $WHO; grep Cpus_allowed_list /proc/self/status"};
  spec.environment = {"WHO=me", "PATH=/bin:/usr/bin"};
  spec.cpus = {cpu};
  const auto process = start(spec);
  ASSERT_TRUE(process.ok()) << process.status().to_string();
  EXPECT_FALSE(await_ending(*process).failed());
  std::array<char, 256> buffer{};
  const ssize_t size = read(process->output.number(), buffer.data(), buffer.size());
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(buffer.data(), static_cast<std::size_t>(size)),
            "me\nCpus_allowed_list:\t" + std::to_string(cpu) + "\n");
}

TEST(Process, NoEndingWhileItRuns) {
  ProcessSpec spec;
  spec.path = "/bin/sh";
  spec.arguments = {"sh", "-c", "sleep 600"};
  const auto process = start(spec);
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(take_ending(process->id), std::nullopt);
  kill(-process->id, SIGKILL);
  EXPECT_EQ(await_ending(*process).signal, SIGKILL);
}

TEST(Process, EndsWhenTheLastOfItsThreadsDoes) {
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const pid_t process = fork();
  if (process == 0) {
    // The first thread leaves; the other one waits to be told.
    pthread_t other;
    pthread_create(
        &other, nullptr,
        [](void* source) -> void* {
          char told = 0;
          while (read(*static_cast<int*>(source), &told, 1) < 0) continue;
          _exit(3);
        },
        &pipes[0]);
    syscall(SYS_exit, 0);
  }
  const auto first_has_left = [&] {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string number, name, state;
    file >> number >> name >> state;
    return state == "Z";
  };
  while (!first_has_left()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(is_ending(process));
  EXPECT_FALSE(has_ended(process));
  ASSERT_EQ(write(pipes[1], "x", 1), 1);
  while (!has_ended(process)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(is_ending(process));
  EXPECT_EQ(take_ending(process), (Ending{3, 0}));
  EXPECT_TRUE(is_ending(process)) << "it is gone";
  close(pipes[0]);
  close(pipes[1]);
}

TEST(Process, FailureToStartNamesTheCall) {
  const std::string path = testing::TempDir() + "tutti_no_format";
  std::ofstream(path) << "no program";
  chmod(path.c_str(), 0700);
  ProcessSpec spec;
  spec.path = path;
  spec.arguments = {path};
  const auto process = start(spec);
  std::filesystem::remove(path);
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.status().code(), StatusCode::system_error);
  EXPECT_THAT(process.status().message(), AllOf(HasSubstr(path), HasSubstr("execve")));
}

TEST(FindProgram, LooksInPathThenBesideUs) {
  EXPECT_EQ(*find_program("sh", "/nowhere:/bin", "/also-nowhere"), "/bin/sh");
  EXPECT_EQ(*find_program("sh", "/nowhere", "/bin"), "/bin/sh");
  EXPECT_EQ(*find_program("/bin/sh", "", ""), "/bin/sh");
  const auto missing = find_program("sh", "/nowhere", "/also-nowhere");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.status().message(), HasSubstr("PATH or in /also-nowhere"));
  EXPECT_FALSE(find_program("/etc/passwd", "", "").ok());
  EXPECT_FALSE(find_program("/bin", "", "").ok());
}

TEST(OwnFolder, HoldsThisTest) {
  EXPECT_EQ(own_folder(), std::filesystem::read_symlink("/proc/self/exe").parent_path().string());
}

}  // namespace
}  // namespace tutti::cli::launcher
