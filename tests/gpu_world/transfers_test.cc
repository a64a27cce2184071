// Sends and receives of ranks of a device world: one launch for all that a rank begins together,
// from where the bytes lie or through slots, and no rank takes part that has nothing to do with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gpu_world/registered.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

// What two ranks have to do with each other: the first sends to the second.
struct Pair {
  Rank from = 0;
  Rank to = 0;
  std::size_t bytes = 0;
};

// Memory for them, in one piece of each rank: what it sends, then what it receives.
class Mail {
 public:
  explicit Mail(std::vector<Pair> pairs) : pairs_(std::move(pairs)) {}

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Pair& pair : pairs_) sum += 2 * pair.bytes;
    return sum;
  }
  GpuCall call_of(Rank rank, std::byte* memory) const {
    GpuCall call;
    std::size_t at = 0;
    for (const auto& [from, to, bytes] : pairs_) {
      if (from == rank) call.transfers.push_back({true, to, memory + at, bytes});
      if (to == rank) call.transfers.push_back({false, from, memory + at + bytes, bytes});
      at += 2 * bytes;
    }
    return call;
  }
  void fill(std::byte* memory, int seed) const {
    for (std::size_t at = 0; at < bytes(); ++at) memory[at] = value(at, seed);
  }
  // That what a rank has received is what others had at the places of what they sent.
  void expect_received(Rank rank, const std::byte* memory, int seed) const {
    std::size_t at = 0;
    for (const auto& [from, to, bytes] : pairs_) {
      for (std::size_t i = 0; to == rank && i < bytes; ++i)
        ASSERT_EQ(memory[at + bytes + i], value(at + i, seed + from))
            << "byte " << i << " from rank " << from << " to " << to;
      at += 2 * bytes;
    }
  }

 private:
  static std::byte value(std::size_t at, int seed) {
    return static_cast<std::byte>(at * 13 + at / 256 + static_cast<std::size_t>(seed) * 29);
  }
  const std::vector<Pair> pairs_;
};

std::vector<Pair> pairs_of(int ranks) {
  std::vector<Pair> pairs;
  std::size_t bytes = 0;
  for (Rank from = 0; from < ranks; ++from)
    for (Rank to = 0; to < ranks; ++to, bytes = (bytes * 5 + 3) % 4001)
      for (int times = (from + to) % 3; times > 0; --times) pairs.push_back({from, to, bytes});
  return pairs;
}

// ---- Ranks of one process ----

using Memories = std::vector<std::vector<std::byte>>;

Memories memories_for(const Mail& mail, int ranks, int seed) {
  Memories memories(static_cast<std::size_t>(ranks), std::vector<std::byte>(mail.bytes()));
  for (int rank = 0; rank < ranks; ++rank)
    mail.fill(memories[static_cast<std::size_t>(rank)].data(), seed + rank);
  return memories;
}

Status call(Stage& stage, Rank rank, const Mail& mail, Memories& memories) {
  const GpuCall made = mail.call_of(rank, memories[static_cast<std::size_t>(rank)].data());
  return stage.world().rank(rank).call(made, stage.stream(rank));
}

void expect_received(const Mail& mail, const Memories& memories, int seed) {
  for (std::size_t rank = 0; rank < memories.size(); ++rank)
    mail.expect_received(static_cast<Rank>(rank), memories[rank].data(), seed);
}

TEST(GpuTransfers, AreOneLaunchOfEachRank) {
  for (const bool direct : {true, false}) {
    HostDevice device;
    GpuOptions options = small_options();
    options.direct = direct;
    const auto stage = make_stage(device, 4, options);
    ASSERT_NE(stage, nullptr);
    const Mail mail(pairs_of(4));
    Memories memories = memories_for(mail, 4, 1);
    for (Rank rank = 0; rank < 4; ++rank) {
      const Status status = call(*stage, rank, mail, memories);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const DeviceExchange& exchange = *device.last_launch().exchange;
      EXPECT_EQ(device.launches(), rank + 1);
      EXPECT_EQ(device.last_launch().blocks, exchange.blocks);
      EXPECT_EQ(exchange.blocks, 2U);  // all that it may have
      EXPECT_EQ(exchange.timeout_ns, 60'000'000'000U);
      // What is received comes first, and nobody reads it.
      const DeviceTransfer* const last =
          exchange.transfers() + exchange.rows()[exchange.row_count - 1].end - 1;
      EXPECT_EQ(exchange.transfers()->shared.region, 0U);
      EXPECT_EQ(last->shared.region, direct ? kEverywhere : 0U);
    }
    const Status status = stage->synchronize();
    EXPECT_TRUE(status.ok()) << status.to_string();
    expect_received(mail, memories, 1);
  }
}

TEST(GpuTransfers, OnlyThoseTwoRanksTakePart) {
  HostDevice device;
  const auto stage = make_stage(device, 3);
  ASSERT_NE(stage, nullptr);
  const Mail first({{0, 2, 700}});
  const Mail second({{2, 1, 5}, {2, 2, 9000}});
  Memories one = memories_for(first, 3, 1);
  Memories two = memories_for(second, 3, 2);
  for (int times = 0; times < 3; ++times) {
    for (const Rank rank : {0, 2}) ASSERT_TRUE(call(*stage, rank, first, one).ok());
    if (times == 1) {
      ASSERT_TRUE(stage->run(sum_of(300)).ok());  // all of them
    }
    for (const Rank rank : {2, 1}) ASSERT_TRUE(call(*stage, rank, second, two).ok());
  }
  ASSERT_TRUE(stage->synchronize().ok());
  expect_received(first, one, 1);
  expect_received(second, two, 2);
}

TEST(GpuTransfers, TellTheDeviceNothingOfWhatIsMadeAgain) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  const Mail mail({{0, 1, 1000}, {1, 0, 3}});
  Memories memories = memories_for(mail, 2, 1);
  for (const Rank rank : {0, 1}) ASSERT_TRUE(call(*stage, rank, mail, memories).ok());
  ASSERT_TRUE(stage->synchronize().ok());
  const Launch before = device.last_launch();
  const int copies = device.copies_in();
  for (const Rank rank : {0, 1}) ASSERT_TRUE(call(*stage, rank, mail, memories).ok());
  ASSERT_TRUE(stage->synchronize().ok());
  EXPECT_EQ(device.copies_in(), copies);
  EXPECT_EQ(device.last_launch().exchange, before.exchange);
}

// Of any number, again and again: what is over makes room for what comes.
TEST(GpuTransfers, RecordsOfManyAreUsedAgain) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  int allocations = 0;
  for (std::size_t n = 1; n <= 400; ++n) {
    const Mail mail(std::vector<Pair>(n % 2 == 0 ? 3 : 33, Pair{1, 0, n}));
    Memories memories = memories_for(mail, 2, 1);
    for (const Rank rank : {0, 1}) ASSERT_TRUE(call(*stage, rank, mail, memories).ok());
    ASSERT_TRUE(stage->synchronize().ok());
    expect_received(mail, memories, 1);
    if (n == 200) allocations = device.allocations();
  }
  EXPECT_EQ(device.allocations(), allocations);
}

TEST(GpuTransfers, ACapturedGraphReplaysWithNewData) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  const Mail mail({{0, 1, 3000}, {1, 0, 10}, {0, 1, 2}});
  Memories memories = memories_for(mail, 2, 1);
  std::vector<GraphHandle> graphs;
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(device.begin_capture(stage->stream(rank)).ok());
    ASSERT_TRUE(call(*stage, rank, mail, memories).ok());
    graphs.push_back(*device.end_capture(stage->stream(rank)));
  }
  for (int replay = 0; replay < 3; ++replay) {
    for (std::size_t rank = 0; rank < 2; ++rank)
      mail.fill(memories[rank].data(), 10 * replay + static_cast<int>(rank));
    for (const Rank rank : {0, 1})
      ASSERT_TRUE(device.replay(graphs[static_cast<std::size_t>(rank)], stage->stream(rank)).ok());
    ASSERT_TRUE(stage->synchronize().ok());
    expect_received(mail, memories, 10 * replay);
  }
  for (const GraphHandle graph : graphs) device.destroy_graph(graph);
}

// ---- What cannot be, and what fails ----

TEST(GpuTransfers, AreRefusedWhereTheyCannotBeRight) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  std::byte byte{};
  const auto refused = [&](const GpuTransfer& transfer) {
    GpuCall call;
    call.transfers.push_back(transfer);
    const Status status = stage->world().rank(1).call(call, stage->stream(1));
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << status.to_string();
    return status.message();
  };
  EXPECT_THAT(refused({true, 2, &byte, 1}),
              HasSubstr("rank 1: send to rank 2: it is not one of 2"));
  EXPECT_THAT(refused({false, -1, &byte, 1}), HasSubstr("receive from rank -1: it is not"));
  EXPECT_THAT(refused({false, 0, nullptr, 1}), HasSubstr("its buffer is null"));
  EXPECT_THAT(refused({true, 0, &byte, kCountMax + 1}), HasSubstr("bytes are too many"));
  EXPECT_EQ(device.launches(), 0);
}

TEST(GpuTransfers, WhoDoesNotComeIsNamed) {
  HostDevice device;
  GpuOptions options = small_options();
  options.timeout = std::chrono::milliseconds(50);
  const auto stage = make_stage(device, 3, options);
  ASSERT_NE(stage, nullptr);
  const Mail mail({{2, 2, 5}, {1, 2, 5}});
  Memories memories = memories_for(mail, 3, 1);
  ASSERT_TRUE(call(*stage, 2, mail, memories).ok());
  const Status status = stage->world().rank(2).synchronize(stage->stream(2));
  EXPECT_EQ(status.code(), StatusCode::timeout);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_THAT(status.message(), HasSubstr("rank 2, receive from rank 1, number 2 of those"));
  EXPECT_THAT(status.message(), HasSubstr("waiting for data of rank 1"));
  EXPECT_THAT(status.message(), HasSubstr("rank 1 is missing"));
}

TEST(GpuTransfers, SizesThatDifferAreToldByBothEnds) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  const Mail mail({{0, 1, 2000}});
  Memories memories = memories_for(mail, 2, 1);
  ASSERT_TRUE(call(*stage, 0, mail, memories).ok());
  GpuCall smaller = mail.call_of(1, memories[1].data());
  --smaller.transfers[0].bytes;
  ASSERT_TRUE(stage->world().rank(1).call(smaller, stage->stream(1)).ok());
  const Status receiver = stage->world().rank(1).synchronize(stage->stream(1));
  EXPECT_EQ(receiver.code(), StatusCode::mismatch);
  EXPECT_THAT(receiver.message(), HasSubstr("sends and receives differ in size"));
  const Status sender = stage->world().rank(0).synchronize(stage->stream(0));
  EXPECT_EQ(sender.code(), StatusCode::mismatch);
  EXPECT_THAT(sender.message(), HasSubstr("rank 0, send to rank 1"));
}

TEST(GpuTransfers, LanesAreAtMostTheChannels) {
  HostDevice device;
  GpuOptions options = small_options();
  options.lanes = 1;
  EXPECT_EQ(make_stage(device, 2, options)->world().shape().lanes, 1U);
  options.lanes = kLanesMax;
  EXPECT_EQ(make_stage(device, 2, options)->world().shape().lanes, 2U);
  for (const int lanes : {-1, kLanesMax + 1}) {
    options.lanes = lanes;
    EXPECT_EQ(Stage::make(on(device, 2), options).status().code(), StatusCode::invalid_argument);
  }
}

// ---- Ranks of several processes, or hosts ----

// How many of a rank's transfers are told to others as memory.
int offers(const Member& member) {
  const Launch launch = member.device->last_launch();
  const DeviceExchange& exchange = *launch.exchange;
  int count = 0;
  for (std::uint32_t i = 0; i < exchange.row_count; ++i) {
    const ExchangeRow& row = exchange.rows()[i];
    const bool is_sent = row.sends != 0 && row.lane == 0 && row.peer != launch.world->rank;
    for (std::uint32_t t = row.begin; is_sent && t < row.end; ++t)
      if (exchange.transfers()[t].shared.region != 0) ++count;
  }
  return count;
}

void expect_mail(std::vector<Member>& members, const Pieces& pieces, const Mail& mail, int seed) {
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    mail.fill(pieces[rank]->memory(), seed + static_cast<int>(rank));
  for_all(members, [&](Member& member, Rank rank) {
    std::byte* const memory = pieces[static_cast<std::size_t>(rank)]->memory();
    const Status status = call_and_wait(member, rank, mail.call_of(rank, memory));
    EXPECT_TRUE(status.ok()) << status.to_string();
    mail.expect_received(rank, memory, seed);
  });
}

TEST(GpuTransfersOfProcesses, GoDirectWhileTheirMemoryIsRegistered) {
  std::vector<Member> members = members_of({"a", "b", "c"});
  join_all(members);
  {
    const Mail mail(pairs_of(3));
    Pieces pieces = pieces_of(members);
    expect_mail(members, pieces, mail, 1);
    for (const Member& member : members) EXPECT_EQ(offers(member), 0);
    register_all(pieces);
    expect_mail(members, pieces, mail, 2);
    for (const Member& member : members) EXPECT_GT(offers(member), 0);
    for (const auto& piece : pieces) ASSERT_TRUE(piece->deregister().ok());
    expect_mail(members, pieces, mail, 3);
    for (const Member& member : members) EXPECT_EQ(offers(member), 0);
  }
  leave_all(members);
}

TEST(GpuTransfersOfProcesses, ALostPeerEndsThem) {
  std::vector<Member> members = members_of({"a", "b"});
  join_all(members);
  {
    const Mail mail({{1, 0, 5}});
    Pieces pieces = pieces_of(members);
    EXPECT_TRUE(members[0].world->tell_ended(1).ok());
    const Status status = call_and_wait(members[0], 0, mail.call_of(0, pieces[0]->memory()));
    EXPECT_EQ(status.code(), StatusCode::peer_lost);
    EXPECT_EQ(status.culprit(), 1) << status.to_string();
  }
  leave_all(members);
}

TEST(GpuTransfersOfHosts, AreLeftToOthers) {
  std::vector<Member> members = members_of({"a", "b"}, {0, 1});
  join_all(members);
  std::byte byte{};
  GpuCall call;
  call.transfers.push_back({false, 1, &byte, 1});
  EXPECT_EQ(call_and_wait(members[0], 0, call).code(), StatusCode::unsupported);
  leave_all(members);
}

}  // namespace
}  // namespace tutti::runtime::gpu
