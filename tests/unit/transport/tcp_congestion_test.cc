// tcp_congestion_test.cc: connections begin unpaced, and what is near stays so, at either end.
#include "transport/tcp/congestion.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "conformance.hpp"
#include "transport/bootstrap/socket.hpp"
#include "transport/tcp/transport.hpp"

namespace tutti::transport::tcp {
namespace {

// False where the system does not have it, or not for us.
bool choose_control(const Socket& socket, const std::string& name) {
  return ::setsockopt(socket.number(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

// A connection over loopback, whose ends are one packet apart.
struct Loopback {
  Loopback()
      : listener(listen_on(parse_address("127.0.0.1", 0).value()).value()),
        address(local_address(listener).value()) {}

  Socket accept() const {
    pollfd waiting{listener.number(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, 5000), 1);
    SocketAddress origin;
    return accept_from(listener, origin);
  }

  Socket listener;
  SocketAddress address;
};

bool system_paces() {
  return congestion_control(Socket(::socket(AF_INET, SOCK_STREAM, 0)).number()) == "bbr";
}

TEST(TcpCongestion, OfAPacedSocketIsTheOneThatIsEverywhere) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  if (!choose_control(socket, "bbr")) GTEST_SKIP() << "the system has no control that paces";
  ASSERT_EQ(congestion_control(socket.number()), "bbr");
  begin_unpaced(socket);
  EXPECT_EQ(congestion_control(socket.number()), "reno");
}

TEST(TcpCongestion, OfASocketThatIsNotPacedIsLeftAlone) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_TRUE(choose_control(socket, "reno"));
  static_cast<void>(choose_control(socket, "cubic"));
  const std::string before = congestion_control(socket.number());
  begin_unpaced(socket);
  EXPECT_EQ(congestion_control(socket.number()), before);
}

TEST(TcpCongestion, OnlyOfWhatIsNotNearIsTheSystems) {
  if (!system_paces()) GTEST_SKIP() << "the system paces nothing";
  const Loopback loopback;
  const Socket socket = start_connecting_unpaced(loopback.address).value();
  const Socket theirs = loopback.accept();
  const bool near = is_near(socket.number());  // unless the machine was very busy
  pace_if_far(socket);
  EXPECT_EQ(congestion_control(socket.number()), near ? "reno" : "bbr");
  const Socket nowhere(::socket(AF_INET, SOCK_STREAM, 0));
  begin_unpaced(nowhere);
  EXPECT_FALSE(is_near(nowhere.number()));
  pace_if_far(nowhere);
  EXPECT_EQ(congestion_control(nowhere.number()), "bbr");
}

TEST(TcpCongestion, WhatIsNoConnectionHasNone) {
  const Socket none;
  EXPECT_EQ(congestion_control(none.number()), "");
  EXPECT_FALSE(is_near(none.number()));
}

// Both ends of all connections of this process, as its transports have made them.
std::vector<std::string> controls_of_connections() {
  constexpr int kMostFiles = 4096;
  std::vector<std::string> controls;
  for (int file = 0; file < kMostFiles; ++file) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof(peer);
    if (::getpeername(file, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0 && is_near(file))
      controls.push_back(congestion_control(file));
  }
  return controls;
}

// How many connections of a new world of two are paced, of those that are near.
void count_paced(std::ptrdiff_t& paced) {
  TransportOptions options;
  options.size = 2;
  options.job_secret = "s3cret";
  const conformance::World world = conformance::make_by_exchange(options, make_tcp_transport);
  std::vector<Endpoint*> ends;
  for (Rank rank : {0, 1}) {
    ends.push_back(world.transports[static_cast<std::size_t>(rank)]->endpoint(1 - rank, 0).value());
    ends.back()->signal(Signal::taken, 1);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto connected = [&](Endpoint* end) { return end->signalled(Signal::taken) == 1; };
  while (!std::all_of(ends.begin(), ends.end(), connected)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
  }
  const std::vector<std::string> controls = controls_of_connections();
  paced = std::count(controls.begin(), controls.end(), "bbr");
}

// On a busy machine the first packets may take so long that what is near looks far.
TEST(TcpCongestion, NoConnectionNearbyIsPaced) {
  std::ptrdiff_t paced = 1;
  for (int attempt = 0; attempt < 5 && paced > 0; ++attempt) count_paced(paced);
  EXPECT_EQ(paced, 0);
}

}  // namespace
}  // namespace tutti::transport::tcp
