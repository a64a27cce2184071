// ucx_lent_test.cc: memory that is lent to UCX: it moves what frames say, from memory to memory,
// and keeps it until it has done with it. What a GPU's memory would be is the host's here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "transport/memory/transport.hpp"
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

std::shared_ptr<std::byte> make_memory(std::size_t bytes) {
  return {new std::byte[bytes](), std::default_delete<std::byte[]>()};
}

std::byte content(std::size_t number, std::size_t at) {
  return static_cast<std::byte>(number * 31 + at * 7 + at / 251);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Ranks 0 and 1, each with memory of its own that is lent.
class UcxLent : public testing::TestWithParam<UcxOptions> {
 protected:
  static constexpr std::size_t kBytes = 512 * 1024;

  UcxLent() : world_(conformance::make_ucx_world(ranks(2), GetParam())) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      memory_.push_back(make_memory(kBytes));
      const auto region = world_.transports[rank]->lend({memory_[rank], kBytes, MemoryKind::host});
      EXPECT_TRUE(region.ok()) << region.status().to_string();
      regions_.push_back(region.value());
      endpoints_.push_back(
          world_.transports[rank]->endpoint(1 - static_cast<Rank>(rank), 0).value());
    }
  }

  bool eventually(const std::function<bool()>& holds) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      for (const auto& transport : world_.transports) EXPECT_TRUE(transport->poll().ok());
    }
    return true;
  }

  // From rank 0 to rank 1.
  bool send(std::size_t number, std::size_t at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) memory_[0].get()[at + i] = content(number, i);
    const std::string head = "head " + std::to_string(number);
    return eventually([&] {
      return endpoints_[0]->send_lent(static_cast<std::uint32_t>(number), bytes_of(head),
                                      {regions_[0], at, bytes});
    });
  }
  void expect_announced(std::size_t number, std::size_t bytes) {
    Frame frame;
    ASSERT_TRUE(eventually([&] { return endpoints_[1]->peek(frame); }));
    EXPECT_EQ(frame.tag, number);
    EXPECT_EQ(frame.lent_bytes, bytes);
    const std::string head = "head " + std::to_string(number);
    EXPECT_EQ(
        std::string(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()),
        head);
  }
  void fetch(std::size_t at, std::size_t bytes) {
    ASSERT_TRUE(eventually([&] { return endpoints_[1]->fetch({regions_[1], at, bytes}); }));
    endpoints_[1]->release();
  }
  void expect_content(std::size_t number, std::size_t at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(memory_[1].get()[at + i], content(number, i)) << number << ": " << i;
  }

  conformance::World world_;
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<std::uint32_t> regions_;
  std::vector<Endpoint*> endpoints_;
};

constexpr std::string_view kWays[] = {"all", "shm", "tcp", "remote"};

INSTANTIATE_TEST_SUITE_P(Ways, UcxLent,
                         testing::Values(UcxOptions{}, UcxOptions{.transports = kShm},
                                         UcxOptions{.transports = "tcp"},
                                         UcxOptions{.transports = "tcp", .all_remote = true}),
                         [](const auto& shown) { return std::string(kWays[shown.index]); });

// Short ones and long ones, many more than a ring holds, several on their way at once.
TEST_P(UcxLent, GoesFromMemoryToMemory) {
  constexpr std::size_t kSlots = 6;
  constexpr std::size_t kSlotBytes = 64 * 1024;
  constexpr std::size_t kFrames = 150;
  const auto bytes_of_frame = [](std::size_t number) {
    return number % 5 == 0 ? 1 + number : 16 + number * 433 % (kSlotBytes - 15);
  };
  for (std::size_t first = 0; first < kFrames; first += kSlots) {
    for (std::size_t i = 0; i < kSlots; ++i)
      ASSERT_TRUE(send(first + i, i * kSlotBytes, bytes_of_frame(first + i)));
    for (std::size_t i = 0; i < kSlots; ++i) {
      expect_announced(first + i, bytes_of_frame(first + i));
      fetch((kSlots - 1 - i) * kSlotBytes, bytes_of_frame(first + i));
    }
    ASSERT_TRUE(eventually([&] { return endpoints_[1]->fetched() == first + kSlots; }));
    ASSERT_TRUE(eventually([&] { return endpoints_[0]->lent_read() == first + kSlots; }));
    for (std::size_t i = 0; i < kSlots; ++i)
      expect_content(first + i, (kSlots - 1 - i) * kSlotBytes, bytes_of_frame(first + i));
  }
}

TEST_P(UcxLent, KeepsTheOrderAmongOtherFrames) {
  const std::string other = "plain";
  ASSERT_TRUE(send(1, 0, 1000));
  ASSERT_TRUE(eventually([&] { return endpoints_[0]->send(2, {}, bytes_of(other)); }));
  ASSERT_TRUE(send(3, 1000, 1000));
  expect_announced(1, 1000);
  fetch(0, 1000);
  Frame frame;
  ASSERT_TRUE(eventually([&] { return endpoints_[1]->peek(frame); }));
  EXPECT_EQ(frame.tag, 2U);
  EXPECT_EQ(frame.lent_bytes, 0U);
  endpoints_[1]->release();
  expect_announced(3, 1000);
  fetch(1000, 1000);
  ASSERT_TRUE(eventually([&] { return endpoints_[1]->fetched() == 2; }));
  expect_content(3, 1000, 1000);
}

// Nothing is read, or counted as read, before it is fetched.
TEST_P(UcxLent, IsReadWhenItIsFetched) {
  ASSERT_TRUE(send(1, 0, 100'000));
  expect_announced(1, 100'000);
  for (int i = 0; i < 200; ++i)
    for (const auto& transport : world_.transports) ASSERT_TRUE(transport->poll().ok());
  EXPECT_EQ(endpoints_[0]->lent_read(), 0U);
  EXPECT_FALSE(world_.transports[0]->flushed()) << "who leaves now would take it along";
  EXPECT_EQ(memory_[1].get()[99'999], std::byte{0});
  fetch(0, 100'000);
  ASSERT_TRUE(eventually([&] { return endpoints_[0]->lent_read() == 1; }));
  expect_content(1, 0, 100'000);
}

TEST_P(UcxLent, MayBeLeftUnfetched) {
  ASSERT_TRUE(send(1, 0, 50'000));
  expect_announced(1, 50'000);
  endpoints_[1]->release();
  EXPECT_TRUE(eventually([&] { return endpoints_[0]->lent_read() == 1; }));
  ASSERT_TRUE(send(2, 0, 50'000));
  expect_announced(2, 50'000);
  fetch(0, 50'000);
  ASSERT_TRUE(eventually([&] { return endpoints_[1]->fetched() == 1; }));
  expect_content(2, 0, 50'000);
}

TEST_P(UcxLent, GoesBackWhenTheTransportGoes) {
  ASSERT_TRUE(send(1, 0, 50'000));
  expect_announced(1, 50'000);
  fetch(0, 50'000);
  ASSERT_TRUE(eventually([&] { return endpoints_[0]->lent_read() == 1; }));
  ASSERT_TRUE(eventually([&] { return endpoints_[1]->fetched() == 1; }));
  EXPECT_GT(memory_[0].use_count(), 1);
  world_.transports.clear();
  for (const auto& memory : memory_) EXPECT_EQ(memory.use_count(), 1);
}

// What was announced and left to lie does not keep its sender from going in good order.
TEST_P(UcxLent, ThatNobodyFetchedGoesBackToo) {
  ASSERT_TRUE(send(1, 0, 50'000));
  expect_announced(1, 50'000);
  world_.transports[1].reset();
  EXPECT_EQ(memory_[1].use_count(), 1);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (endpoints_[0]->lent_read() == 0 && std::chrono::steady_clock::now() < limit)
    static_cast<void>(world_.transports[0]->poll());
  world_.transports[0].reset();
}

// ---- What is not lent ----

TEST(UcxLentMemory, OfAGpuWantsAUcxThatKnowsIt) {
  const auto context = ucx::Context::get(kShm);
  ASSERT_TRUE(context.ok());
  EXPECT_TRUE((*context)->knows(UCS_MEMORY_TYPE_HOST));
  if ((*context)->knows(UCS_MEMORY_TYPE_CUDA)) GTEST_SKIP() << "this UCX knows CUDA";
  conformance::World world = conformance::make_ucx_world(ranks(2), {.transports = kShm});
  EXPECT_TRUE(world.transports[0]->can_lend(MemoryKind::host).ok());
  EXPECT_THAT(world.transports[0]->can_lend(MemoryKind::cuda).message(), HasSubstr("without CUDA"));
  const auto memory = make_memory(64);
  const auto region = world.transports[0]->lend({memory, 64, MemoryKind::cuda});
  EXPECT_EQ(region.status().code(), StatusCode::unsupported);
  EXPECT_THAT(region.status().message(), HasSubstr("without CUDA"));
  EXPECT_EQ(memory.use_count(), 1);
}

TEST(LentMemory, IsNotTakenByTransportsThatMoveNothingByThemselves) {
  TransportOptions options;
  options.size = 2;
  const auto transport = make_memory_transport(MemoryWorld::make(options), 0);
  const auto region = transport->lend({make_memory(64), 64, MemoryKind::host});
  EXPECT_EQ(region.status().code(), StatusCode::unsupported);
  EXPECT_THAT(region.status().message(), HasSubstr("memory moves no memory that is lent"));
  Endpoint& endpoint = *transport->endpoint(1, 0).value();
  EXPECT_FALSE(endpoint.send_lent(1, {}, {1, 0, 64}));
  EXPECT_FALSE(endpoint.fetch({1, 0, 64}));
}

// ---- Peers that make no sense, or go ----

std::uint32_t lend(Puppet& puppet, const std::shared_ptr<std::byte>& memory, std::size_t bytes) {
  return puppet.rank0->lend({memory, bytes, MemoryKind::host}).value();
}

RecordHeader lent_header(const Puppet& puppet) {
  RecordHeader header = puppet.header;
  header.kind = RecordKind::lent;
  return header;
}

Status failure_of(Puppet& puppet) {
  Status status;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (status.ok() && std::chrono::steady_clock::now() < limit) {
    puppet.worker->progress();
    status = puppet.rank0->poll().status();
  }
  return status;
}

TEST(UcxLentMemory, NonsenseOfItIsAnErrorThatNamesItsRank) {
  struct Nonsense {
    const char* name;
    std::size_t bytes;
    unsigned flags;
    bool lends;
  };
  for (const Nonsense& nonsense :
       {Nonsense{"nothing is lent here", 5000, UCP_AM_SEND_FLAG_RNDV, false},
        Nonsense{"it came along", 50, UCP_AM_SEND_FLAG_EAGER, true},
        Nonsense{"nothing", 0, UCP_AM_SEND_FLAG_EAGER, true}}) {
    SCOPED_TRACE(nonsense.name);
    Puppet puppet;
    const auto memory = make_memory(8192);
    if (nonsense.lends) lend(puppet, memory, 8192);
    ASSERT_TRUE(puppet.say(lent_header(puppet), std::string(nonsense.bytes, 'x'), nonsense.flags,
                           ucx::kHeaderBytes + 4));
    const Status status = failure_of(puppet);
    EXPECT_EQ(status.code(), StatusCode::corrupt_data);
    EXPECT_EQ(status.culprit(), 1);
    EXPECT_THAT(status.message(), HasSubstr("a lent frame that cannot be one"));
  }
}

// A frame's number and place are believed as far as any frame's.
TEST(UcxLentMemory, IsAnnouncedInOrder) {
  Puppet puppet;
  const auto memory = make_memory(8192);
  lend(puppet, memory, 8192);
  RecordHeader header = lent_header(puppet);
  header.position = 64;
  ASSERT_TRUE(
      puppet.say(header, std::string(5000, 'x'), UCP_AM_SEND_FLAG_RNDV, ucx::kHeaderBytes + 4));
  EXPECT_THAT(failure_of(puppet).message(), HasSubstr("another one's place"));
}

// Where a worker goes while UCX 1.13 still greets its peer, an assertion ends the process, in most
// runs of these (docs/ucx.md).
constexpr bool kAssertsAboutGreetings = UCP_API_VERSION < UCP_VERSION(1, 14);

// UCX may still be writing: nobody else gets that memory any more.
TEST(UcxLentMemory, ThatIsBeingWrittenIsKept) {
  if (kAssertsAboutGreetings) GTEST_SKIP() << "this UCX ends a process that leaves early";
  const auto memory = make_memory(1 << 20);
  {
    Puppet puppet("tcp");
    const std::uint32_t region = lend(puppet, memory, 1 << 20);
    const std::string payload(1 << 20, 'x');
    void* const request =
        puppet.begin(lent_header(puppet), payload, UCP_AM_SEND_FLAG_RNDV, ucx::kHeaderBytes + 4);
    Endpoint& endpoint = *puppet.rank0->endpoint(1, 0).value();
    Frame frame;
    ASSERT_TRUE(puppet.receives(endpoint, frame));
    ASSERT_TRUE(endpoint.fetch({region, 0, 1 << 20}));
    endpoint.release();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(puppet.rank0->poll().ok());
    EXPECT_EQ(endpoint.fetched(), 0U) << "nobody moves the sender";
    puppet.rank0.reset();
    EXPECT_GT(memory.use_count(), 1);
    ASSERT_TRUE(request != nullptr && !UCS_PTR_IS_ERR(request));
    puppet.f().request_free(request);
  }
  EXPECT_GT(memory.use_count(), 1);
}

TEST(UcxLentMemory, ThatMayBeReadIsKept) {
  if (kAssertsAboutGreetings) GTEST_SKIP() << "this UCX ends a process that leaves early";
  const auto memory = make_memory(1 << 20);
  Puppet puppet("tcp");
  const std::uint32_t region = lend(puppet, memory, 1 << 20);
  Endpoint& endpoint = *puppet.rank0->endpoint(1, 0).value();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!endpoint.send_lent(1, {}, {region, 0, 1 << 20})) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
    puppet.worker->progress();
    ASSERT_TRUE(puppet.rank0->poll().ok());
  }
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(puppet.rank0->poll().ok());
  puppet.rank0.reset();
  EXPECT_GT(memory.use_count(), 1) << "the peer has heard of it, and has not come for it";
}

}  // namespace
}  // namespace tutti::transport
