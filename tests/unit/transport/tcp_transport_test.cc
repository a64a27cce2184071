// tcp_transport_test.cc: what only TCP has: connections that break, strangers on the port, peers
// that speak nonsense, bounded buffers. What all transports share is in conformance_test.cc.
#include "transport/tcp/transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "conformance.hpp"
#include "transport/bootstrap/group.hpp"
#include "transport/bootstrap/socket.hpp"
#include "transport/tcp/wire.hpp"

namespace tutti::transport {
namespace {

using testing::HasSubstr;

TransportOptions two_ranks() {
  TransportOptions options;
  options.size = 2;
  options.frame_bytes_max = 4096;
  options.queue_bytes = 16384;
  options.job_secret = "s3cret";
  return options;
}

conformance::World make_world(const TransportOptions& options) {
  return conformance::make_by_exchange(options, make_tcp_transport);
}

// A rank 1 that is a plain socket, to say what no Tutti says. Rank 0 is real.
struct Puppet {
  Puppet() {
    listener = listen_on(parse_address("127.0.0.1", 0).value()).value();
    tcp::Card card;
    card.host = "127.0.0.1";
    card.port = static_cast<std::uint16_t>(local_address(listener)->port());
    card.nonce = std::string(kNonceBytes, 'p');
    card.frame_bytes_max = options.frame_bytes_max;
    card.channel_count = 1;
    const auto exchange = [&](const std::string& mine) -> Result<std::vector<std::string>> {
      rank0_card = tcp::parse_card(mine).value();
      return std::vector<std::string>{mine, tcp::encode_card(card)};
    };
    rank0 = std::move(make_tcp_transport(options, exchange)).value();
    endpoint = rank0->endpoint(1, 0).value();
  }

  // Connects to rank 0 with a genuine greeting, or another one.
  void greet(const std::string& secret = "s3cret") {
    socket = start_connecting(parse_address("127.0.0.1", rank0_card.port).value()).value();
    const std::string greeting =
        tcp::encode_greeting({0, 1, 0, 0, tcp::Purpose::frames}, Authenticator(secret),
                             {std::string(kNonceBytes, 'p'), rank0_card.nonce,
                              local_address(socket).value().identity()});
    say(greeting);
  }
  void say(std::string_view bytes) {
    ASSERT_EQ(::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void say_frame(std::uint32_t bytes, std::uint32_t tag, std::string_view payload) {
    const tcp::FrameHeader header{bytes, tag};
    say(std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + std::string(payload));
  }
  // Polls until the transport fails, and says how.
  Status failure() {
    for (int i = 0; i < 20000; ++i) {
      Frame frame;
      endpoint->peek(frame);
      if (const auto polled = rank0->poll(); !polled.ok()) return polled.status();
      rank0->sleep(100);
    }
    return Status();
  }
  bool receives(Frame& frame) {
    for (int i = 0; i < 20000 && !endpoint->peek(frame); ++i) {
      EXPECT_TRUE(rank0->poll().ok());
      rank0->sleep(100);
    }
    return endpoint->peek(frame);
  }

  TransportOptions options = two_ranks();
  Socket listener;
  Socket socket;
  tcp::Card rank0_card;
  std::unique_ptr<Transport> rank0;
  Endpoint* endpoint = nullptr;
};

// What the puppet hears of rank 0's own connection, and says on its way back.
struct WayBack {
  explicit WayBack(Puppet& puppet) {
    SocketAddress origin;
    pollfd waiting{puppet.listener.number(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, 10'000), 1);
    socket = accept_from(puppet.listener, origin);
    key = tcp::last_words_key(
        {0, 0, 1, 0, tcp::Purpose::frames}, Authenticator("s3cret"),
        {puppet.rank0_card.nonce, std::string(kNonceBytes, 'p'), origin.identity()});
  }
  void say(std::string_view bytes) {
    ASSERT_EQ(::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  Socket socket;
  std::string key;
};

// A frame of three bytes.
std::string short_frame(std::uint32_t tag) {
  const tcp::FrameHeader header{3, tag};
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + std::string("abc") +
         std::string(tcp::padded(3) - 3, '\0');
}

// Polls until the transport fails, and says how; ok when it does not for two seconds.
Status failure_of(Transport& transport) {
  Status status;
  for (int i = 0; i < 20000 && status.ok(); ++i) {
    status = transport.poll().status();
    if (status.ok()) transport.sleep(100);
  }
  return status;
}

TEST(TcpTransport, FramesFromThePuppetArrive) {
  Puppet puppet;
  puppet.greet();
  puppet.say(short_frame(42));
  Frame frame;
  ASSERT_TRUE(puppet.receives(frame));
  EXPECT_EQ(frame.tag, 42U);
  EXPECT_EQ(frame.payload.size(), 3U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame.payload.data()) % 8, 0U);
}

// Heard on the wire, and said again from elsewhere before the first one was accepted.
TEST(TcpTransport, AGreetingFromAnotherPlaceIsIgnored) {
  Puppet puppet;
  const Socket elsewhere =
      start_connecting(parse_address("127.0.0.1", puppet.rank0_card.port).value()).value();
  puppet.socket =
      start_connecting(parse_address("127.0.0.1", puppet.rank0_card.port).value()).value();
  puppet.say(tcp::encode_greeting({0, 1, 0, 0, tcp::Purpose::frames}, Authenticator("s3cret"),
                                  {std::string(kNonceBytes, 'p'), puppet.rank0_card.nonce,
                                   local_address(elsewhere).value().identity()}));
  puppet.say_frame(0, 1, "");
  Frame frame;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(puppet.rank0->poll().ok());
    ASSERT_FALSE(puppet.endpoint->peek(frame));
  }
  puppet.greet();
  puppet.say_frame(0, 2, "");
  ASSERT_TRUE(puppet.receives(frame));
  EXPECT_EQ(frame.tag, 2U);
}

// What answers rank 0 says goodbye, or that a third rank is lost, without a proof.
TEST(TcpTransport, LastWordsWithoutAProofAreNotBelieved) {
  for (const std::uint32_t words : {tcp::kGoodbyeAlone, tcp::kGoodbyeFailed | 7U}) {
    Puppet puppet;
    std::string false_words = tcp::encode_last_words(words, "guess");
    SocketAddress origin;
    pollfd waiting{puppet.listener.number(), POLLIN, 0};
    ASSERT_EQ(::poll(&waiting, 1, 10'000), 1);
    puppet.socket = accept_from(puppet.listener, origin);
    puppet.say(false_words);
    const Status status = puppet.failure();
    EXPECT_EQ(status.code(), StatusCode::peer_lost);
    EXPECT_EQ(status.culprit(), 1) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank 1 cannot be reached"));
  }
}

TEST(TcpTransport, AFrameThatIsTooLongIsCorruptData) {
  Puppet puppet;
  puppet.greet();
  puppet.say_frame(4097, 0, "");
  const Status status = puppet.failure();
  EXPECT_EQ(status.code(), StatusCode::corrupt_data);
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  EXPECT_EQ(puppet.endpoint->status(), status);
  EXPECT_TRUE(puppet.endpoint->reserve(8).empty());
}

TEST(TcpTransport, APeerThatHangsUpInAFrameIsLost) {
  Puppet puppet;
  puppet.greet();
  puppet.say_frame(100, 0, "half");
  puppet.socket.close();
  const Status status = puppet.failure();
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 hung up"));
}

TEST(TcpTransport, AProofWithAnotherSecretIsIgnored) {
  Puppet puppet;
  puppet.greet("guess");
  puppet.say_frame(0, 1, "");
  Frame frame;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(puppet.rank0->poll().ok());
    ASSERT_FALSE(puppet.endpoint->peek(frame));
  }
  puppet.greet();  // the real one still gets in
  puppet.say_frame(0, 2, "");
  ASSERT_TRUE(puppet.receives(frame));
  EXPECT_EQ(frame.tag, 2U);
}

// The higher rank goes on where the lower one has connected to, whichever of its words come first.
TEST(TcpTransport, ThePuppetMovesToOurConnection) {
  for (const bool proof_first : {false, true}) {
    Puppet puppet;
    puppet.greet();
    puppet.say(short_frame(1));
    WayBack back(puppet);
    const std::string proof = tcp::encode_last_words(tcp::kMoved, back.key);
    if (proof_first) back.say(proof + short_frame(2));
    Frame frame;
    ASSERT_TRUE(puppet.receives(frame));
    EXPECT_EQ(frame.tag, 1U);
    puppet.endpoint->release();
    EXPECT_FALSE(puppet.endpoint->peek(frame));
    puppet.say_frame(tcp::kMovedBytes, 0, "");
    if (!proof_first) {
      for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(puppet.rank0->poll().ok());
        ASSERT_FALSE(puppet.endpoint->peek(frame));
      }
      back.say(proof.substr(0, 5));
      ASSERT_TRUE(puppet.rank0->poll().ok());
      back.say(proof.substr(5));
      back.say(short_frame(2));
    }
    ASSERT_TRUE(puppet.receives(frame));
    EXPECT_EQ(frame.tag, 2U);
    puppet.endpoint->release();
    // Its own connection has nothing more to say, and its end means nothing.
    puppet.socket.close();
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(puppet.rank0->poll().ok());
    back.say(short_frame(3));
    ASSERT_TRUE(puppet.receives(frame));
    EXPECT_EQ(frame.tag, 3U);
  }
}

// What it has sent so far is no frame. Whether the system says that it hung up or that it cannot be
// reached depends on who notices first.
void expect_lost_when_it_hangs_up(Puppet& puppet, WayBack& back) {
  Frame frame;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(puppet.rank0->poll().ok());
    ASSERT_FALSE(puppet.endpoint->peek(frame));
  }
  puppet.socket.close();
  back.socket.close();
  const Status status = puppet.failure();
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_EQ(status.culprit(), 1);
}

TEST(TcpTransport, OneThatMovedAndHangsUpIsLost) {
  Puppet puppet;
  puppet.greet();
  WayBack back(puppet);
  back.say(tcp::encode_last_words(tcp::kMoved, back.key) + short_frame(2).substr(0, 9));
  puppet.say_frame(tcp::kMovedBytes, 0, "");
  expect_lost_when_it_hangs_up(puppet, back);
}

// It said that it moves, and never came.
TEST(TcpTransport, OneThatMovesAndHangsUpIsLost) {
  Puppet puppet;
  puppet.greet();
  WayBack back(puppet);
  puppet.say_frame(tcp::kMovedBytes, 0, "");
  expect_lost_when_it_hangs_up(puppet, back);
}

TEST(TcpTransport, FramesFromOurWayBackNeedAProof) {
  Puppet puppet;
  puppet.greet();
  WayBack back(puppet);
  back.say(tcp::encode_last_words(tcp::kMoved, "guess") + short_frame(2));
  puppet.say_frame(tcp::kMovedBytes, 0, "");
  const Status status = puppet.failure();
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  Frame frame;
  EXPECT_FALSE(puppet.endpoint->peek(frame));
}

TEST(TcpTransport, ASecondConnectionForTheSameFramesIsIgnored) {
  Puppet puppet;
  puppet.greet();
  puppet.say_frame(0, 1, "");
  Frame frame;
  ASSERT_TRUE(puppet.receives(frame));
  const Socket first = std::move(puppet.socket);
  puppet.greet();
  puppet.say_frame(0, 2, "");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(puppet.rank0->poll().ok());
  ASSERT_TRUE(puppet.endpoint->peek(frame));
  EXPECT_EQ(frame.tag, 1U);
  puppet.endpoint->release();
  EXPECT_FALSE(puppet.endpoint->peek(frame));
}

TEST(TcpTransport, JunkOnThePortDisturbsNobody) {
  Puppet puppet;
  std::vector<Socket> junk;
  for (int i = 0; i < 600; ++i) {
    junk.push_back(
        start_connecting(parse_address("127.0.0.1", puppet.rank0_card.port).value()).value());
    const std::string words(static_cast<std::size_t>(i), 'j');
    ::send(junk.back().number(), words.data(), words.size(), MSG_NOSIGNAL);
    ASSERT_TRUE(puppet.rank0->poll().ok());
  }
  puppet.greet();
  puppet.say_frame(0, 1, "");
  Frame frame;
  EXPECT_TRUE(puppet.receives(frame));
}

TEST(TcpTransport, APeerThatNobodyHearsIsReportedWhenItsPortIsClosed) {
  Puppet puppet;
  puppet.listener.close();
  const Status status = puppet.failure();
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

TEST(TcpTransport, ARankThatLeftIsAnErrorOnlyToThoseWhoStillNeedIt) {
  conformance::World world = make_world(two_ranks());
  Endpoint* endpoint = world.transports[0]->endpoint(1, 0).value();
  ASSERT_TRUE(world.transports[1]->endpoint(0, 0).ok());
  world.transports[1].reset();
  for (int i = 0; i < 100; ++i) {
    world.transports[0]->sleep(100);
    ASSERT_TRUE(world.transports[0]->poll().ok());
  }
  EXPECT_EQ(endpoint->reserve(8).data(), nullptr);
  EXPECT_EQ(endpoint->status().code(), StatusCode::peer_lost);
  EXPECT_THAT(endpoint->status().message(), HasSubstr("rank 1 has left"));
  EXPECT_FALSE(world.transports[0]->poll().ok());
}

TEST(TcpTransport, FramesOfOneWhoLeftBeforeWeLookedCanBeRead) {
  conformance::World world = make_world(two_ranks());
  Endpoint* sender = world.transports[1]->endpoint(0, 0).value();
  while (!world.transports[1]->flushed() || sender->reserve(5).empty())
    ASSERT_TRUE(world.transports[1]->poll().ok());
  sender->commit(9, 5);
  while (!world.transports[1]->flushed()) ASSERT_TRUE(world.transports[1]->poll().ok());
  world.transports[1].reset();
  // Rank 0's own connection is refused now; what rank 1 said is there all the same.
  Endpoint* reader = world.transports[0]->endpoint(1, 0).value();
  Frame frame;
  for (int i = 0; i < 2000 && !reader->peek(frame); ++i) {
    ASSERT_TRUE(world.transports[0]->poll().ok());
    world.transports[0]->sleep(100);
  }
  ASSERT_TRUE(reader->peek(frame));
  EXPECT_EQ(frame.tag, 9U);
  reader->release();
  EXPECT_TRUE(world.transports[0]->poll().ok());
}

// Both ranks keep sending and nobody reads: signals still get through, and then the frames.
TEST(TcpTransport, SignalsPassFullQueues) {
  TransportOptions options = two_ranks();
  conformance::World world = make_world(options);
  std::array<Endpoint*, 2> endpoints{};
  for (Rank rank = 0; rank < 2; ++rank)
    endpoints[static_cast<std::size_t>(rank)] =
        world.transports[static_cast<std::size_t>(rank)]->endpoint(1 - rank, 0).value();
  std::array<std::uint32_t, 2> sent{};
  for (int idle = 0; idle < 50; ++idle) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (; endpoints[rank]->reserve(4096).data() != nullptr; idle = 0)
        endpoints[rank]->commit(sent[rank]++, 4096);
      ASSERT_TRUE(world.transports[rank]->poll().ok());
    }
  }
  endpoints[0]->signal(Signal::granted, 77);
  for (int i = 0; i < 2000 && endpoints[1]->signalled(Signal::granted) == 0; ++i)
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
  EXPECT_EQ(endpoints[1]->signalled(Signal::granted), 77U);
  EXPECT_FALSE(world.transports[0]->flushed());
  for (std::uint32_t received = 0; received < sent[0];) {
    Frame frame;
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
    while (endpoints[1]->peek(frame)) {
      ASSERT_EQ(frame.tag, received++);
      endpoints[1]->release();
    }
  }
  EXPECT_TRUE(world.transports[0]->flushed());
  EXPECT_GE(world.transports[0]->memory_bytes(), 2 * options.queue_bytes);
}

// Rank 2 is dead; rank 1 notices and gives up, and rank 0, which knows rank 1 only, hears who it
// was.
TEST(TcpTransport, TheNewsOfALostRankTravelsOn) {
  TransportOptions options = two_ranks();
  options.size = 3;
  conformance::World world = make_world(options);
  ASSERT_TRUE(world.transports[0]->endpoint(1, 0).ok());
  ASSERT_TRUE(world.transports[1]->endpoint(0, 0).ok());
  for (int i = 0; i < 10; ++i)
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
  world.transports[2].reset();  // its port is closed from here on
  Endpoint* lost = world.transports[1]->endpoint(2, 0).value();
  EXPECT_THAT(failure_of(*world.transports[1]).message(), HasSubstr("rank 2 cannot be reached"));
  EXPECT_FALSE(lost->status().ok());
  EXPECT_TRUE(world.transports[0]->poll().ok());
  world.transports[1].reset();
  EXPECT_EQ(failure_of(*world.transports[0]),
            Status(StatusCode::peer_lost, "rank 2 was lost, says rank 1", 2));
}

// Rank 0 tells on a channel of its own why it leaves; rank 1, which has never heard of it there, is
// refused by it on another one, and asks for that one first.
TEST(TcpTransport, WhyAPeerLeftCountsForMoreThanHowItsConnectionsEnded) {
  TransportOptions options = two_ranks();
  options.channel_count = 2;
  conformance::World world = make_world(options);
  world.transports[0]->give_up(Status(StatusCode::mismatch, "other calls"));
  ASSERT_TRUE(world.transports[0]->endpoint(1, 1).ok());
  world.transports[0].reset();
  ASSERT_TRUE(world.transports[1]->endpoint(0, 0).ok());
  EXPECT_EQ(failure_of(*world.transports[1]),
            Status(StatusCode::mismatch, "rank 0 failed: mismatch"));
}

// Rank 1 left because of a failure before rank 0 met it, and told rank 2 only.
TEST(TcpTransport, WhoFindsAClosedPortLetsOthersSayWhy) {
  TransportOptions options = two_ranks();
  options.size = 3;
  conformance::World world = make_world(options);
  ASSERT_TRUE(world.transports[1]->endpoint(2, 0).ok());
  world.transports[1]->give_up(Status(StatusCode::mismatch, "other calls"));
  world.transports[1].reset();
  ASSERT_TRUE(world.transports[0]->endpoint(1, 0).ok());
  ASSERT_TRUE(world.transports[0]->poll().ok());  // rank 0 knows that the port is closed
  ASSERT_EQ(failure_of(*world.transports[2]).code(), StatusCode::mismatch);
  ASSERT_TRUE(world.transports[2]->endpoint(0, 0).ok());
  world.transports[2].reset();
  EXPECT_EQ(failure_of(*world.transports[0]).code(), StatusCode::mismatch);
}

TEST(TcpTransport, AfterALossTheOtherConnectionsGoOn) {
  TransportOptions options = two_ranks();
  options.size = 3;
  conformance::World world = make_world(options);
  world.transports[2].reset();
  ASSERT_TRUE(world.transports[1]->endpoint(2, 0).ok());
  ASSERT_FALSE(failure_of(*world.transports[1]).ok());
  Endpoint* to = world.transports[1]->endpoint(0, 0).value();
  EXPECT_EQ(world.transports[0]->caller(0), -1);
  ASSERT_NE(to->reserve(3).data(), nullptr);
  to->commit(7, 3);
  for (int i = 0; i < 2000 && world.transports[0]->caller(0) < 0; ++i) {
    static_cast<void>(world.transports[1]->poll());
    ASSERT_TRUE(world.transports[0]->poll().ok());
  }
  ASSERT_EQ(world.transports[0]->caller(0), 1);
  Endpoint* from = world.transports[0]->endpoint(1, 0).value();
  EXPECT_EQ(world.transports[0]->caller(0), -1);
  Frame frame;
  for (int i = 0; i < 2000 && !from->peek(frame); ++i) {
    static_cast<void>(world.transports[1]->poll());
    ASSERT_TRUE(world.transports[0]->poll().ok());
  }
  EXPECT_EQ(frame.tag, 7u);
  EXPECT_EQ(frame.payload.size(), 3u);
}

TEST(TcpTransport, SettingsThatDifferAreNamed) {
  conformance::ThreadExchange exchange(2);
  conformance::in_threads(2, [&](Rank rank) {
    TransportOptions options = two_ranks();
    options.rank = rank;
    if (rank == 1) options.frame_bytes_max = 8192;
    const Status status = make_tcp_transport(options, exchange.of(rank)).status();
    EXPECT_EQ(status.code(), StatusCode::mismatch);
    EXPECT_THAT(status.message(), HasSubstr("8192"));
  });
}

TEST(TcpTransport, ARankThatCannotListenTellsAll) {
  conformance::ThreadExchange exchange(2);
  conformance::in_threads(2, [&](Rank rank) {
    TransportOptions options = two_ranks();
    options.rank = rank;
    if (rank == 1) options.bind_address = "0.0.0.0";
    const Status status = make_tcp_transport(options, exchange.of(rank)).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("0.0.0.0"));
  });
}

TEST(TcpTransport, WithoutASecretOnlyLoopbackWillDo) {
  TransportOptions options;
  options.bind_address = "192.0.2.1";
  const auto alone = [](const std::string& mine) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{mine};
  };
  const Status status = make_tcp_transport(options, alone).status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("TUTTI_JOB_SECRET_FILE"));
}

// Rank 1 is a process of its own that dies by SIGKILL with frames in flight.
TEST(TcpTransport, AKilledProcessIsNamed) {
  Socket listener = listen_on(parse_address("127.0.0.1", 0).value()).value();
  BootstrapOptions meeting;
  meeting.size = 2;
  meeting.port = local_address(listener)->port();
  meeting.secret = "s3cret";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  const Rank rank = child == 0 ? 1 : 0;
  meeting.rank = rank;
  if (rank == 0) meeting.listening_socket = ::dup(listener.number());
  TransportOptions options = two_ranks();
  options.rank = rank;
  auto group = join(meeting);
  if (child == 0) {
    if (!group.ok()) ::_exit(1);
    auto made =
        make_tcp_transport(options, [&](const auto& mine) { return (*group)->exchange(mine); });
    if (!made.ok()) ::_exit(1);
    Endpoint* endpoint = (*made)->endpoint(0, 0).value();
    while (endpoint->reserve(100).empty()) ::usleep(100);
    endpoint->commit(1, 100);
    while (true) {
      if (!(*made)->poll().ok()) ::_exit(1);
      (*made)->sleep(1000);
    }
  }
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  auto made =
      make_tcp_transport(options, [&](const auto& mine) { return (*group)->exchange(mine); });
  ASSERT_TRUE(made.ok());
  Endpoint* endpoint = (*made)->endpoint(1, 0).value();
  Frame frame;
  for (int i = 0; i < 20000 && !endpoint->peek(frame); ++i) {
    ASSERT_TRUE((*made)->poll().ok());
    (*made)->sleep(1000);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  Result<bool> polled = (*made)->poll();
  for (int i = 0; i < 20000 && polled.ok(); ++i) {
    (*made)->sleep(1000);
    polled = (*made)->poll();
  }
  EXPECT_EQ(polled.status().code(), StatusCode::peer_lost);
  EXPECT_THAT(polled.status().message(), HasSubstr("rank 1"));
  EXPECT_FALSE(endpoint->peek(frame));
}

}  // namespace
}  // namespace tutti::transport
