// bootstrap_group_test.cc: joining over real sockets, with ranks as threads: late ranks, missing
// ones, wrong secrets and strangers.
#include "transport/bootstrap/group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <thread>

#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/message.hpp"
#include "transport/bootstrap/socket.hpp"

namespace tutti::transport {
namespace {

using testing::HasSubstr;
using Joined = Result<std::unique_ptr<BootstrapGroup>>;

// Where rank 0 shall listen: a socket that is bound already, so that no other process gets the
// port in between.
struct Place {
  explicit Place(const std::string& host = "127.0.0.1") : address(host) {
    auto addresses = resolve(host, 0);
    if (!addresses.ok()) return;
    auto socket = listen_on(addresses->front());
    if (!socket.ok()) return;
    listener = std::move(*socket);
    port = local_address(listener)->port();
  }
  BootstrapOptions options(Rank rank, int size, const std::string& secret = "s3cret") {
    BootstrapOptions made;
    made.rank = rank;
    made.size = size;
    made.address = address;
    made.port = port;
    made.secret = secret;
    made.deadline_ms = 20'000;
    if (rank == 0) made.listening_socket = ::dup(listener.number());
    return made;
  }
  std::string address;
  Socket listener;
  int port = 0;
};

void in_threads(int count, const std::function<void(Rank)>& body) {
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < count; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

void expect_exchange(const std::string& host, int size, const std::string& secret,
                     bool local_names = true) {
  Place place(host);
  if (!place.listener) GTEST_SKIP() << "no " << host << " here";
  in_threads(size, [&](Rank rank) {
    BootstrapOptions options = place.options(rank, size, secret);
    options.local_names = local_names;
    Joined group = join(options);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    for (std::uint64_t round = 0; round < 3; ++round) {
      const auto blob = [&](int of) { return std::string(1000, static_cast<char>('a' + of)); };
      const auto all = (*group)->exchange(blob(rank), round);
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      ASSERT_EQ(all->size(), static_cast<std::size_t>(size));
      for (int of = 0; of < size; ++of) EXPECT_EQ((*all)[static_cast<std::size_t>(of)], blob(of));
    }
  });
}

TEST(Bootstrap, OneRankNeedsNobody) {
  BootstrapOptions options;
  Joined group = join(options);
  ASSERT_TRUE(group.ok());
  EXPECT_EQ((*group)->exchange("me")->front(), "me");
}

TEST(Bootstrap, RanksMeetAndExchange) {
  for (const int size : {1, 2, 3, 4, 9}) expect_exchange("127.0.0.1", size, "s3cret");
}
TEST(Bootstrap, RanksThatCannotFindEachOtherAreIntroduced) {
  for (const int size : {2, 4, 9}) expect_exchange("127.0.0.1", size, "s3cret", false);
}
TEST(Bootstrap, RanksMeetOverIPv6) { expect_exchange("::1", 3, "s3cret"); }
TEST(Bootstrap, LoopbackNeedsNoSecret) { expect_exchange("localhost", 2, ""); }

TEST(Bootstrap, TheLargestBlobsPass) {
  Place place;
  in_threads(3, [&](Rank rank) {
    Joined group = join(place.options(rank, 3));
    ASSERT_TRUE(group.ok());
    const std::string blob(64 * 1024, static_cast<char>('0' + rank));
    EXPECT_EQ((*group)->exchange(blob)->at(2), std::string(64 * 1024, '2'));
    EXPECT_EQ((*group)->exchange(blob + "x").status().code(), StatusCode::invalid_argument);
  });
}

TEST(Bootstrap, RankZeroMayStartLate) {
  Place place;
  const int port = place.port;
  place.listener.close();  // nobody listens until rank 0 comes
  in_threads(2, [&](Rank rank) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(60));
    BootstrapOptions options = place.options(rank, 2);
    options.listening_socket = -1;
    options.port = port;
    EXPECT_TRUE(join(options).ok());
  });
}

TEST(Bootstrap, TheMissingAreNamedToAllWhoCame) {
  Place place;
  in_threads(2, [&](Rank rank) {
    BootstrapOptions options = place.options(rank, 4);
    options.deadline_ms = 300;
    const Status status = join(options).status();
    EXPECT_EQ(status.code(), StatusCode::timeout);
    EXPECT_THAT(status.message(), HasSubstr("ranks 2, 3 did not arrive within 0.3 s"));
  });
}

TEST(Bootstrap, AnAbsentRankZeroIsATimeout) {
  Place place;
  place.listener.close();
  BootstrapOptions options = place.options(1, 2);
  options.deadline_ms = 50;
  const Status status = join(options).status();
  EXPECT_EQ(status.code(), StatusCode::timeout);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 did not answer rank 1 at 127.0.0.1:"));
  EXPECT_THAT(status.message(), HasSubstr("Connection refused"));
}

TEST(Bootstrap, AWrongSecretIsNamedOnBothSides) {
  Place place;
  in_threads(2, [&](Rank rank) {
    BootstrapOptions options = place.options(rank, 2, rank == 0 ? "right" : "wrong");
    options.deadline_ms = 300;
    const Status status = join(options).status();
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
    EXPECT_THAT(status.message(), HasSubstr("secret"));
    EXPECT_EQ(status.code(), rank == 0 ? StatusCode::timeout : StatusCode::invalid_argument);
  });
}

TEST(Bootstrap, WithoutASecretOnlyLoopbackWillDo) {
  for (const Rank rank : {0, 1}) {
    BootstrapOptions options;
    options.rank = rank;
    options.size = 2;
    options.address = "192.0.2.1";
    options.port = 1;
    const Status status = join(options).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("TUTTI_JOB_SECRET_FILE"));
  }
}

TEST(Bootstrap, StrangersOnThePortDoNotBreakTheJoin) {
  Place place;
  std::vector<Socket> strangers;
  for (int i = 0; i < 40; ++i) {
    auto socket = start_connecting(local_address(place.listener).value());
    ASSERT_TRUE(socket.ok());
    const std::string_view words = "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
    if (i % 2 == 0) {
      ASSERT_GT(::send(socket->number(), words.data(), words.size(), MSG_NOSIGNAL), 0);
    }
    if (i % 3 != 0) strangers.push_back(std::move(*socket));  // the others hang up at once
  }
  in_threads(3, [&](Rank rank) {
    Joined group = join(place.options(rank, 3));
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    EXPECT_TRUE((*group)->exchange("x").ok());
  });
}

TEST(Bootstrap, ARankThatLeavesBetweenExchangesIsNamed) {
  Place place;
  in_threads(3, [&](Rank rank) {
    Joined group = join(place.options(rank, 3));
    ASSERT_TRUE(group.ok());
    ASSERT_TRUE((*group)->exchange("first").ok());
    if (rank == 2) return;
    const Status status = (*group)->exchange("second").status();
    EXPECT_EQ(status.code(), StatusCode::peer_lost);
    EXPECT_THAT(status.message(), HasSubstr("rank 2 hung up"));
    EXPECT_EQ(status.culprit(), 2);
  });
}

TEST(Bootstrap, WhoComesLateToAFailedExchangeHearsTheFirstCause) {
  Place place;
  std::latch gone(2);
  in_threads(3, [&](Rank rank) {
    Joined group = join(place.options(rank, 3));
    ASSERT_TRUE(group.ok());
    ASSERT_TRUE((*group)->exchange("first").ok());
    // Rank 0 sees rank 2 leave, says so, and is gone itself before rank 1 sends its part.
    if (rank == 1) gone.wait();
    if (rank != 2) {
      const Status status = (*group)->exchange("second").status();
      EXPECT_EQ(status.culprit(), 2) << status.to_string();
    }
    group = Status(StatusCode::aborted, "left");
    if (rank != 1) gone.count_down();
  });
}

TEST(Bootstrap, RankZeroIsNotTroubledByThoseWhoFindTheirParents) {
  Place place;
  in_threads(16, [&](Rank rank) {
    Joined group = join(place.options(rank, 16));
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    EXPECT_EQ((*group)->counts().introductions, 0U);
    EXPECT_LE((*group)->counts().connections, 4U);
    EXPECT_TRUE((*group)->exchange("x").ok());
  });
}

TEST(Bootstrap, BadNewsEndTheJoinForAll) {
  Place place;
  in_threads(4, [&](Rank rank) {
    BootstrapOptions options = place.options(rank, 5);  // the fifth never comes
    int asked = 0;
    if (rank == 3) {
      options.bad_news = [&] {
        return ++asked < 5 ? Status() : Status(StatusCode::peer_lost, "rank 4 crashed", 4);
      };
    }
    EXPECT_EQ(join(options).status(), Status(StatusCode::peer_lost, "rank 4 crashed", 4));
  });
}

TEST(Bootstrap, BadNewsEndAnExchangeForAll) {
  Place place;
  std::atomic<int> ended = 0;
  in_threads(4, [&](Rank rank) {
    BootstrapOptions options = place.options(rank, 4);
    std::atomic<bool> bad = false;
    if (rank == 1) {
      options.bad_news = [&] {
        return bad ? Status(StatusCode::peer_lost, "rank 3 crashed", 3) : Status();
      };
    }
    Joined group = join(options);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    ASSERT_TRUE((*group)->exchange("first").ok());
    bad = true;
    // Rank 3 keeps its connections, and takes no part.
    while (rank == 3 && ended < 3) std::this_thread::yield();
    if (rank == 3) return;
    EXPECT_EQ((*group)->exchange("second").status(),
              Status(StatusCode::peer_lost, "rank 3 crashed", 3));
    ++ended;
  });
}

TEST(Bootstrap, TwoProcessesOfOneRankAreNamedToAll) {
  Place place;
  in_threads(4, [&](Rank which) {
    const Rank rank = which == 3 ? 2 : which;
    const Status status = join(place.options(rank, 4)).status();
    EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("two processes were started as rank 2"));
  });
}

// Some send nothing, some junk, some a hello; some hang up at once.
void send_junk(const SocketAddress& address, int count, std::atomic<bool>& enough) {
  std::vector<Socket> open;
  const Hello hello{CallPurpose::attach, 1, 0, 4, "", std::string(kNonceBytes, 'j')};
  const std::string words[] = {"", "GET / HTTP/1.1\r\n\r\n", std::string(300, '\xff'),
                               encode_message(MessageKind::hello, encode_hello(hello))};
  for (int i = 0; i < count && !enough; ++i) {
    auto socket = start_connecting(address);
    if (!socket.ok()) continue;
    pollfd connected{socket->number(), POLLOUT, 0};
    ::poll(&connected, 1, 1000);
    const std::string& said = words[i % 4];
    if (!said.empty())
      static_cast<void>(::send(socket->number(), said.data(), said.size(), MSG_NOSIGNAL));
    open.push_back(std::move(*socket));
    if (open.size() > 200) open.erase(open.begin(), open.begin() + 100);
  }
}

TEST(Bootstrap, TenThousandStrangersOnlyMoveACounter) {
  Place place;
  const SocketAddress address = local_address(place.listener).value();
  constexpr int kStrangers = 10'000;
  std::atomic<bool> enough = false;
  std::size_t turned_away = 0;
  std::thread strangers;
  in_threads(4, [&](Rank rank) {
    BootstrapOptions options = place.options(rank, 4);
    // Two come once all the strangers have been there.
    if (rank == 1) strangers = std::thread([&] { send_junk(address, kStrangers, enough); });
    if (rank == 1) strangers.join();
    options.local_names = rank != 1;
    Joined group = join(options);
    enough = true;
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    EXPECT_EQ((*group)->exchange("x")->size(), 4U);
    if (rank == 0) turned_away = (*group)->counts().turned_away;
  });
  std::printf("%zu of %d strangers turned away\n", turned_away, kStrangers);
  EXPECT_GT(turned_away, static_cast<std::size_t>(kStrangers * 9 / 10));
}

TEST(Bootstrap, ImpossibleOptionsAreRefused) {
  BootstrapOptions options;
  options.size = 2;
  EXPECT_EQ(join(options).status().code(), StatusCode::invalid_argument);  // no port
  options.port = 1;
  options.rank = 2;
  EXPECT_EQ(join(options).status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace tutti::transport
