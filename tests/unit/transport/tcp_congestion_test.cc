// tcp_congestion_test.cc: near connections are not paced, whichever end opened them.
#include "transport/tcp/congestion.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "transport/bootstrap/socket.hpp"
#include "transport/tcp/flow.hpp"

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

TEST(TcpCongestion, OfAPacedConnectionNearbyIsTheOneThatIsEverywhere) {
  const Loopback loopback;
  const Socket socket = start_connecting(loopback.address).value();
  const Socket theirs = loopback.accept();
  if (!choose_control(socket, "bbr")) GTEST_SKIP() << "the system has no control that paces";
  ASSERT_EQ(congestion_control(socket.number()), "bbr");
  const bool near = is_near(socket.number());  // unless the machine was very busy
  pace_only_far_ways(socket.number());
  EXPECT_EQ(congestion_control(socket.number()), near ? "reno" : "bbr");
}

TEST(TcpCongestion, OfAConnectionThatIsNotPacedIsLeftAlone) {
  const Loopback loopback;
  const Socket socket = start_connecting(loopback.address).value();
  const Socket theirs = loopback.accept();
  ASSERT_TRUE(choose_control(socket, "reno"));
  static_cast<void>(choose_control(socket, "cubic"));
  const std::string before = congestion_control(socket.number());
  pace_only_far_ways(socket.number());
  EXPECT_EQ(congestion_control(socket.number()), before);
}

TEST(TcpCongestion, OfAConnectionOfWhichNothingIsKnownIsLeftAlone) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_FALSE(is_near(socket.number()));
  const bool paced = choose_control(socket, "bbr");
  pace_only_far_ways(socket.number());
  EXPECT_EQ(congestion_control(socket.number()) == "bbr", paced);
  const Socket none;
  EXPECT_EQ(congestion_control(none.number()), "");
}

TEST(TcpCongestion, IsChosenByBothEndsOfAFlow) {
  const Loopback loopback;
  FrameSender sender;
  const auto introduce = [](const SocketAddress&) { return Opening{"hello", "key"}; };
  ASSERT_TRUE(sender.open(loopback.address, introduce, 4096).ok());
  Socket accepted = loopback.accept();
  if (!choose_control(sender.socket(), "bbr") || !choose_control(accepted, "bbr"))
    GTEST_SKIP() << "the system has no control that paces";
  const bool sender_near = is_near(sender.socket().number());
  const bool receiver_near = is_near(accepted.number());
  sender.on_events(EPOLLOUT);
  EXPECT_EQ(congestion_control(sender.socket().number()), sender_near ? "reno" : "bbr");
  FrameReceiver receiver;
  ASSERT_TRUE(receiver.attach(std::move(accepted), "key", 4096, 4096).ok());
  EXPECT_EQ(congestion_control(receiver.socket().number()), receiver_near ? "reno" : "bbr");
}

}  // namespace
}  // namespace tutti::transport::tcp
