// socket_test.cc: a rank finds a port to listen on for as long as the host has one.
#include "transport/bootstrap/socket.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace tutti::transport {
namespace {

constexpr int kFirstPort = 40000;
constexpr int kPorts = 4;

enum Outcome : int { right = 0, no_namespace = 10, no_range, early, none_left, wrong_port };

// A network of this process's own, in which the system has but a few ports to give away.
Outcome use_little_network() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return no_namespace;
  std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range << kFirstPort << ' ' << kFirstPort + kPorts - 1 << std::flush;
  return range ? right : no_range;
}

bool given_by_system(const Socket& socket) {
  const int port = local_address(socket).value().port();
  return port >= kFirstPort && port < kFirstPort + kPorts;
}

// All that the system has, and two more.
Outcome listen_on_more_than_there_are() {
  if (const Outcome made = use_little_network(); made != right) return made;
  const SocketAddress anywhere = parse_address("0.0.0.0", 0).value();
  std::vector<Socket> taken;
  for (int i = 0; i < kPorts + 2; ++i) {
    Result<Socket> socket = listen_on(anywhere);
    if (!socket.ok()) return i < kPorts ? early : none_left;
    if (given_by_system(*socket) != (i < kPorts)) return wrong_port;
    taken.push_back(std::move(*socket));
  }
  return right;
}

TEST(ListenOn, FindsAPortWhenTheSystemHasNoneLeftToGive) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(listen_on_more_than_there_are());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == no_namespace || WEXITSTATUS(status) == no_range)
    GTEST_SKIP() << "this process may not make a network namespace of its own";
  EXPECT_EQ(WEXITSTATUS(status), right);
}

TEST(ListenOn, SaysWhichAddressIsTaken) {
  const Socket first = listen_on(parse_address("127.0.0.1", 0).value()).value();
  const SocketAddress same = local_address(first).value();
  const Result<Socket> second = listen_on(same);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(same.to_string()), std::string::npos)
      << second.status().message();
}

}  // namespace
}  // namespace tutti::transport
