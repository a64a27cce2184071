// ucx_transport_test.cc: what only UCX has: a library that may be missing, strangers who can send
// to whoever they reach, peers that speak nonsense, deaths that the network does not tell. What all
// transports share is in ucx_conformance_test.cc.
#include "transport/ucx/transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include "transport/tcp/wire.hpp"
#include "transport/ucx/death_watch.hpp"
#include "transport/ucx/ring.hpp"
#include "transport/ucx/wire.hpp"
#include "transport/ucx/worker.hpp"
#include "unit/transport/ucx_puppet.hpp"
#include "unit/transport/ucx_worlds.hpp"

namespace tutti::transport {
namespace {

using testing::HasSubstr;
using ucx::kShm;
using ucx::Puppet;
using ucx::ranks;
using ucx::RecordHeader;
using ucx::RecordKind;

// Polls until the transport fails, and says how; ok when it does not for a while.
Status failure_of(Transport& transport) {
  Status status;
  for (int i = 0; i < 4000 && status.ok(); ++i) {
    status = transport.poll().status();
    if (status.ok()) transport.sleep(1000);
  }
  return status;
}

// Until ranks 0 and 1 can send to each other.
void connect(const conformance::World& world) {
  Endpoint& there = *world.transports[0]->endpoint(1, 0).value();
  Endpoint& back = *world.transports[1]->endpoint(0, 0).value();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (there.reserve(8).data() == nullptr || back.reserve(8).data() == nullptr) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
  }
}

// A child that does nothing until it is killed.
pid_t fork_sleeper() {
  const pid_t child = fork();
  if (child != 0) return child;
  while (true) ::pause();
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// ---- The library ----

TEST(UcxLibrary, WhatIsMissingIsSaidWithTheRemedy) {
  const ucx::Library none = ucx::find_library_in("libno-such-ucp.so.0");
  EXPECT_EQ(none.functions, nullptr);
  EXPECT_THAT(none.error, HasSubstr("libno-such-ucp.so.0"));
  EXPECT_THAT(none.error, HasSubstr("apt install libucx0"));
  const ucx::Library other = ucx::find_library_in("libm.so.6");
  EXPECT_EQ(other.functions, nullptr);
  EXPECT_THAT(other.error, HasSubstr("it has no ucp_get_version"));
}

// ---- What a peer says ----

TEST(UcxTransport, FramesFromThePuppetArrive) {
  Puppet puppet;
  Endpoint& endpoint = *puppet.rank0->endpoint(1, 0).value();
  ASSERT_TRUE(puppet.say(puppet.header, "abc"));
  Frame frame;
  ASSERT_TRUE(puppet.receives(endpoint, frame));
  EXPECT_EQ(frame.tag, 42u);
  EXPECT_EQ(std::memcmp(frame.payload.data(), "abc", 3), 0);
}

struct Nonsense {
  const char* name;
  void (*change)(RecordHeader&);
  std::size_t bytes;
  const char* why;
  std::size_t more_header = 0;
};

TEST(UcxTransport, NonsenseIsAnErrorThatNamesItsRank) {
  const Nonsense kNonsense[] = {
      {"no kind", [](RecordHeader& h) { h.kind = static_cast<RecordKind>(99); }, 3,
       "no known kind"},
      {"no channel", [](RecordHeader& h) { h.channel = 1; }, 3, "a channel that there is not"},
      {"too long", [](RecordHeader&) {}, 4097, "too long"},
      {"out of order", [](RecordHeader& h) { h.number = 64; }, 3, "out of its order"},
      {"no place", [](RecordHeader& h) { h.position = 3; }, 3, "in no place"},
      {"another place", [](RecordHeader& h) { h.position = 64; }, 3, "another one's place"},
      {"released", [](RecordHeader& h) { h.released = 1; }, 3, "has released more frames"},
      {"short news", [](RecordHeader& h) { h.kind = RecordKind::news; }, 39, "news that are none"},
      {"long header", [](RecordHeader&) {}, 3, "a header that is too long", 1},
      {"nothing lent", [](RecordHeader& h) { h.kind = RecordKind::lent; }, 3, "cannot be one", 1},
      {"long news", [](RecordHeader& h) { h.kind = RecordKind::news; }, 41, "news that are none"},
  };
  for (const Nonsense& nonsense : kNonsense) {
    SCOPED_TRACE(nonsense.name);
    Puppet puppet;
    RecordHeader header = puppet.header;
    nonsense.change(header);
    ASSERT_TRUE(puppet.say(header, std::string(nonsense.bytes, 'x'), 0,
                           ucx::kHeaderBytes + nonsense.more_header));
    const Status status = failure_of(*puppet.rank0);
    EXPECT_EQ(status.code(), StatusCode::corrupt_data);
    EXPECT_EQ(status.culprit(), 1);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 sent something that makes no sense"));
    EXPECT_THAT(status.message(), HasSubstr(nonsense.why));
  }
}

// The data of a long one stay with its sender until they are asked for.
TEST(UcxTransport, LongNonsenseIsNotFetched) {
  Puppet puppet;
  EXPECT_TRUE(puppet.say(puppet.header, std::string(100'000, 'x'), UCP_AM_SEND_FLAG_RNDV));
  EXPECT_THAT(failure_of(*puppet.rank0).message(), HasSubstr("too long"));
  Puppet other;
  RecordHeader header = other.header;
  header.kind = RecordKind::news;
  EXPECT_TRUE(other.say(header, std::string(40, 'x'), UCP_AM_SEND_FLAG_RNDV));
  EXPECT_THAT(failure_of(*other.rank0).message(), HasSubstr("news that are none"));
}

TEST(UcxTransport, StrangersAreNotHeard) {
  Puppet puppet;
  Endpoint& endpoint = *puppet.rank0->endpoint(1, 0).value();
  RecordHeader header = puppet.header;
  header.key = {};
  ASSERT_TRUE(puppet.say(header, "no key"));
  ASSERT_TRUE(puppet.say(header, std::string(4000, 'x'), UCP_AM_SEND_FLAG_RNDV));
  header.kind = RecordKind::failed;
  ASSERT_TRUE(puppet.say(header, ""));
  header = puppet.header;
  header.key = ucx::key_of({7, 1, 0}, Authenticator("guess"), std::string(kNonceBytes, 'p'),
                           puppet.rank0_card.nonce);
  ASSERT_TRUE(puppet.say(header, "another job's"));
  for (const std::uint32_t from : {0u, 2u, ~0u}) {
    header = puppet.header;
    header.from = from;
    ASSERT_TRUE(puppet.say(header, "another rank's"));
  }
  ASSERT_TRUE(puppet.say(puppet.header, "half a header", 0, ucx::kHeaderBytes - 1));
  ASSERT_TRUE(puppet.say(puppet.header, "genuine"));
  Frame frame;
  ASSERT_TRUE(puppet.receives(endpoint, frame));
  EXPECT_EQ(frame.payload.size(), 7u);
  endpoint.release();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(puppet.rank0->poll().ok());
  EXPECT_FALSE(endpoint.peek(frame));
}

TEST(UcxTransport, WhoSaysGoodbyeHasLeftAndWhoFailsSaysWhy) {
  Puppet left;
  Endpoint& endpoint = *left.rank0->endpoint(1, 0).value();
  RecordHeader goodbye = left.header;
  goodbye.kind = RecordKind::goodbye;
  ASSERT_TRUE(left.say(goodbye, ""));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(left.rank0->poll().ok());
  EXPECT_EQ(endpoint.reserve(8).data(), nullptr);
  EXPECT_THAT(failure_of(*left.rank0).message(), HasSubstr("rank 1 has left"));

  Puppet failed;
  RecordHeader words = failed.header;
  words.kind = RecordKind::failed;
  words.tag = tcp::failed_words(Status(StatusCode::timeout, "", 1));
  ASSERT_TRUE(failed.say(words, ""));
  const Status status = failure_of(*failed.rank0);
  EXPECT_EQ(status.code(), StatusCode::timeout);
  EXPECT_EQ(status.culprit(), 1);
}

// A receiver that has released less than half of the ring keeps it to itself until it is asked; the
// question holds until there is an answer, whatever else is said meanwhile.
TEST(UcxTransport, WhoAsksForRoomGetsItAsSoonAsThereIsSome) {
  conformance::World world = conformance::make_ucx_world(ranks(2), {.transports = kShm});
  Endpoint& out = *world.transports[0]->endpoint(1, 0).value();
  Endpoint& in = *world.transports[1]->endpoint(0, 0).value();
  const auto poll = [&] {
    for (int i = 0; i < 50; ++i)
      for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
  };
  connect(world);
  const TransportOptions options = ranks(2);
  const std::size_t fill = ucx::ring_bytes(options.queue_bytes, options.frame_bytes_max) / 4096;
  for (std::size_t i = 0; i < fill; ++i) {
    ASSERT_NE(out.reserve(4096).data(), nullptr);
    out.commit(1, 4096);
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(out.reserve(4096).data(), nullptr);
  poll();
  ASSERT_NE(in.reserve(8).data(), nullptr);  // says nothing new of room
  in.commit(2, 8);
  Frame frame;
  ASSERT_TRUE(in.peek(frame));
  in.release();
  poll();
  EXPECT_NE(out.reserve(4096).data(), nullptr);
}

// ---- Deaths ----

TEST(UcxTransport, ADistantPeerThatIsGoneIsLost) {
  Puppet puppet("tcp", ::getpid(), true);
  ASSERT_TRUE(puppet.rank0->endpoint(1, 0).ok());
  Frame frame;
  ASSERT_TRUE(puppet.say(puppet.header, "abc"));
  ASSERT_TRUE(puppet.receives(*puppet.rank0->endpoint(1, 0).value(), frame));
  puppet.worker.reset();
  const Status status = failure_of(*puppet.rank0);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 is gone"));
  EXPECT_FALSE(puppet.rank0->endpoint(1, 0).value()->status().ok());
}

TEST(UcxTransport, ThePeerOfAProcessThatDiesIsLost) {
  const pid_t child = fork_sleeper();
  Puppet puppet(kShm, child);
  ASSERT_TRUE(puppet.rank0->endpoint(1, 0).ok());
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(puppet.rank0->poll().ok());
  end(child);
  const Status status = failure_of(*puppet.rank0);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_THAT(status.message(), HasSubstr("its process has ended"));
}

// Who never sleeps sees it all the same.
TEST(UcxTransport, ThePeerOfAProcessThatDiesIsLostToWhoOnlyPolls) {
  const pid_t child = fork_sleeper();
  Puppet puppet(kShm, child);
  ASSERT_TRUE(puppet.rank0->endpoint(1, 0).ok());
  end(child);
  Status status;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (status.ok() && std::chrono::steady_clock::now() < limit)
    status = puppet.rank0->poll().status();
  EXPECT_EQ(status.culprit(), 1);
}

TEST(UcxTransport, AProcessThatWasGoneBeforeTheFirstUseIsLost) {
  const pid_t child = fork_sleeper();
  Puppet puppet(kShm, child);
  end(child);
  ASSERT_TRUE(puppet.rank0->endpoint(1, 0).ok());
  EXPECT_THAT(failure_of(*puppet.rank0).message(), HasSubstr("its process is gone"));
}

TEST(UcxTransport, WhoGivesUpNamesWithWhomThatBegan) {
  conformance::World world = conformance::make_ucx_world(ranks(3), {.transports = "tcp"});
  connect(world);
  world.transports[0]->give_up(Status(StatusCode::peer_lost, "rank 2 was lost", 2));
  world.transports[0].reset();
  const Status status = failure_of(*world.transports[1]);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_EQ(status.culprit(), 2);
  EXPECT_THAT(status.message(), HasSubstr("says rank 0"));
}

// ---- Making one ----

Status made_with(const TransportOptions& options, ucx::Card other) {
  const auto exchange = [&](const std::string& mine) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{mine, ucx::encode_card(other)};
  };
  return make_ucx_transport(options, {.transports = kShm}, exchange).status();
}

TEST(UcxTransport, RanksThatCannotTalkToEachOtherSayWhy) {
  const TransportOptions options = ranks(2);
  ucx::Card card;
  card.address = "anything";
  card.nonce = std::string(kNonceBytes, 'p');
  card.host = ucx::process_world();
  card.frame_bytes_max = options.frame_bytes_max;
  card.ring_bytes = ucx::ring_bytes(options.queue_bytes, options.frame_bytes_max);
  card.channel_count = 1;
  card.context = options.context;
  EXPECT_TRUE(made_with(options, card).ok());
  ucx::Card other = card;
  other.ring_bytes += 64;
  EXPECT_EQ(made_with(options, other).code(), StatusCode::mismatch);
  EXPECT_THAT(made_with(options, other).message(), HasSubstr("rank 1 has other settings"));
  other = card;
  other.status = Status(StatusCode::unsupported, "no UCX there");
  EXPECT_THAT(made_with(options, other).message(), HasSubstr("rank 1"));
  TransportOptions open = options;
  open.job_secret.clear();
  EXPECT_TRUE(made_with(open, card).ok());
  card.host = "elsewhere";
  EXPECT_TRUE(made_with(options, card).ok());
  EXPECT_THAT(made_with(open, card).message(), HasSubstr("TUTTI_JOB_SECRET_FILE"));
}

TEST(UcxTransport, TransportsThatUcxHasNotAreAnError) {
  const auto alone = [](const std::string& mine) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{mine};
  };
  const Status status = make_ucx_transport(ranks(1), {.transports = "no_such"}, alone).status();
  EXPECT_EQ(status.code(), StatusCode::system_error);
  EXPECT_THAT(status.message(), HasSubstr("TUTTI_LOG=info says more: UCX: ucp_init"));
}

TEST(UcxTransport, MemoryIsForWhoIsUsed) {
  conformance::World world = conformance::make_ucx_world(ranks(2), {.transports = kShm});
  EXPECT_EQ(world.transports[0]->memory_bytes(), 0u);
  Endpoint& out = *world.transports[0]->endpoint(1, 0).value();
  const std::size_t idle = world.transports[0]->memory_bytes();
  EXPECT_LT(idle, 16384u);
  for (int i = 0; i < 10'000 && out.reserve(8).data() == nullptr; ++i)
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
  EXPECT_EQ(world.transports[0]->memory_bytes(),
            idle + ucx::ring_bytes(16384, ranks(2).frame_bytes_max));
}

TEST(UcxTransport, WhatUcxSaysIsNoPartOfTheProgramsOutput) {
  const auto alone = [](const std::string& mine) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{mine};
  };
  for (const base::LogLevel level : {base::LogLevel::warn, base::LogLevel::info}) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_FALSE(make_ucx_transport(ranks(1), {.log = level, .transports = "no_such"}, alone).ok());
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    const std::string said = testing::internal::GetCapturedStderr();
    if (level == base::LogLevel::info)
      EXPECT_THAT(said, HasSubstr("'no_such' is not available"));
    else
      EXPECT_EQ(said, "");
  }
}

// UCX's threads stay with the parent.
TEST(UcxTransport, AForkedChildIsRefusedAndDisturbsNobody) {
  conformance::World world = conformance::make_ucx_world(ranks(2), {.transports = kShm});
  Endpoint& out = *world.transports[0]->endpoint(1, 0).value();
  Endpoint& in = *world.transports[1]->endpoint(0, 0).value();
  const pid_t child = fork();
  if (child == 0) {
    world.transports.clear();
    const auto alone = [](const std::string& mine) -> Result<std::vector<std::string>> {
      return std::vector<std::string>{mine};
    };
    const Status status = make_ucx_transport(ranks(1), {.transports = kShm}, alone).status();
    const bool refused = status.code() == StatusCode::unsupported &&
                         status.message().find("forked") != std::string::npos;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Frame frame;
  bool sent = false;
  for (int i = 0; i < 10'000 && !in.peek(frame); ++i) {
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
    if (sent || out.reserve(8).data() == nullptr) continue;
    out.commit(5, 8);
    sent = true;
  }
  ASSERT_TRUE(in.peek(frame));
  EXPECT_EQ(frame.tag, 5u);
}

TEST(UcxDeathWatch, ReportsWhoDiesOnce) {
  ucx::DeathWatch watch;
  int pipe[2] = {-1, -1};
  ASSERT_EQ(::pipe(pipe), 0);
  ASSERT_TRUE(watch.start(pipe[0]).ok());
  const pid_t child = fork_sleeper();
  EXPECT_TRUE(watch.add(3, static_cast<std::uint32_t>(child)));
  EXPECT_TRUE(watch.add(4, static_cast<std::uint32_t>(::getpid())));
  std::vector<Rank> dead;
  const auto note = [&](Rank rank) { dead.push_back(rank); };
  watch.wait(1000, note);
  EXPECT_TRUE(dead.empty());
  end(child);
  for (int i = 0; i < 100 && dead.empty(); ++i) watch.wait(100'000, note);
  watch.wait(1000, note);
  EXPECT_EQ(dead, std::vector<Rank>{3});
  EXPECT_FALSE(watch.add(5, static_cast<std::uint32_t>(child)));
  for (const int end : pipe) ::close(end);
}

}  // namespace
}  // namespace tutti::transport
