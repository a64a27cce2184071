// Ranks that join a world from several processes. Here these are threads, each with a device of its
// own, that take one another for other processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <thread>

#include "collectives/contract.hpp"
#include "gpu/call_data.hpp"
#include "gpu_world/host_device.hpp"
#include "gpu_world/worlds.hpp"
#include "runtime/gpu/host/device_stock.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

// An all-gather of texts among threads.
class Table {
 public:
  explicit Table(int ranks) : texts_(static_cast<std::size_t>(ranks)), barrier_(ranks) {}

  std::vector<std::string> exchange(Rank rank, const std::string& mine) {
    texts_[static_cast<std::size_t>(rank)] = mine;
    barrier_.arrive_and_wait();
    std::vector<std::string> all = texts_;
    barrier_.arrive_and_wait();
    return all;
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

struct Member {
  std::unique_ptr<HostDevice> device;
  std::string process;
  std::unique_ptr<GpuWorld> world;
  Status status;
};

std::vector<Member> members_of(const std::vector<std::string>& processes) {
  std::vector<Member> members;
  for (const std::string& process : processes) {
    Member& member = members.emplace_back();
    member.process = process;
    member.device = std::make_unique<HostDevice>(
        HostDeviceOptions{static_cast<int>(members.size()), 64, 32, true});
  }
  return members;
}

// Each rank on a thread.
void for_all(std::vector<Member>& members, const std::function<void(Member&, Rank)>& work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < members.size(); ++i)
    threads.emplace_back([&, i] { work(members[i], static_cast<Rank>(i)); });
  for (std::thread& thread : threads) thread.join();
}

void join_all(std::vector<Member>& members, const GpuOptions& options = small_options()) {
  Table table(static_cast<int>(members.size()));
  for_all(members, [&](Member& member, Rank rank) {
    GpuSeat seat;
    seat.device = member.device.get();
    seat.rank = rank;
    seat.ranks = static_cast<int>(members.size());
    seat.process = member.process;
    seat.exchange = [&](const std::string& mine) -> Result<std::vector<std::string>> {
      return table.exchange(rank, mine);
    };
    auto world = GpuWorld::join(seat, options);
    member.status = world.status();
    if (world.ok()) member.world = *std::move(world);
  });
}

// As those that join leave: after a word to all others, and when all have said it.
void leave_all(std::vector<Member>& members) {
  for (Member& member : members)
    if (member.world) {
      EXPECT_FALSE(members.size() > 1 && member.world->have_others_left());
      break;
    }
  for (Member& member : members)
    if (member.world) member.world->say_goodbye();
  for (Member& member : members)
    if (member.world) {
      EXPECT_TRUE(member.world->have_others_left());
      member.world.reset();
      EXPECT_EQ(member.device->allocations(), 0);
      EXPECT_EQ(member.device->imports(), 0);
    }
}

Status call_and_wait(Member& member, Rank rank, const GpuCall& call) {
  const StreamHandle stream = *member.device->make_stream();
  GpuRank& mine = member.world->rank(rank);
  Status status = mine.call(call, stream);
  if (status.ok()) status = mine.synchronize(stream);
  member.device->destroy_stream(stream);
  return status;
}

TEST(GpuWorldOfProcesses, GivesWhatTheContractsSay) {
  for (const std::vector<std::string>& processes :
       {std::vector<std::string>{"a"}, {"a", "b"}, {"a", "b", "a"}, {"a", "b", "c", "d", "e"}}) {
    std::vector<Member> members = members_of(processes);
    join_all(members);
    for (const Member& member : members)
      ASSERT_TRUE(member.status.ok()) << member.status.to_string();
    const auto ranks = static_cast<int>(members.size());
    std::uint64_t number = 0;
    for (const Collective collective : kAllCollectives)
      for (const std::size_t count : {0U, 1U, 13U, 500U}) {
        if (collective == Collective::barrier && count > 0) continue;
        ScheduleShape shape;
        shape.collective = collective;
        shape.ranks = ranks;
        shape.root = ranks - 1;
        const bool in_place = ++number % 2 == 0 && collectives::may_run_in_place(collective);
        CallData data({shape, DataType::float32, ReduceOp::sum, count, in_place, number});
        for_all(members, [&](Member& member, Rank rank) {
          std::vector<std::byte> memory = data.seat(rank).image;
          GpuCall call;
          call.collective = collective;
          call.root = shape.root;
          call.count = count;
          call.input = memory.data() + data.seat(rank).input_at;
          call.output = memory.data() + data.seat(rank).output_at;
          const Status status = call_and_wait(member, rank, call);
          EXPECT_TRUE(status.ok()) << status.to_string();
          EXPECT_EQ(data.judge(rank, memory.data()), "") << to_string(collective) << " " << count;
        });
      }
    leave_all(members);
  }
}

// Whoever cannot, nobody has a world, and all know why.
TEST(GpuWorldOfProcesses, IsNotMadeWhereARankHasNoMemory) {
  std::vector<Member> members = members_of({"a", "b", "c"});
  members[1].device->fail_next_allocation();
  join_all(members);
  for (const Member& member : members) {
    EXPECT_EQ(member.status.code(), StatusCode::unsupported);
    EXPECT_THAT(member.status.message(), HasSubstr("rank 1: "));
    EXPECT_THAT(member.status.message(), HasSubstr("as a test wants it"));
    EXPECT_EQ(member.device->allocations(), 0);
  }
}

TEST(GpuWorldOfProcesses, IsNotMadeWhereARankDoesNotReachOthers) {
  std::vector<Member> members = members_of({"a", "b", "c"});
  members[2].device =
      std::make_unique<HostDevice>(HostDeviceOptions{2, 64, 32, /*reaches_peers=*/false});
  join_all(members);
  for (const Member& member : members) {
    EXPECT_EQ(member.status.code(), StatusCode::unsupported);
    EXPECT_THAT(member.status.message(), HasSubstr("rank 2: "));
    EXPECT_EQ(member.device->allocations(), 0);
    EXPECT_EQ(member.device->imports(), 0);
  }
}

TEST(GpuWorldOfProcesses, IsNotMadeWithoutANumberOfChannels) {
  std::vector<Member> members = members_of({"a"});
  GpuOptions options = small_options();
  options.channels = 0;
  join_all(members, options);
  EXPECT_THAT(members[0].status.message(), HasSubstr("a number of channels"));
}

GpuCall sum_in(std::vector<float>& memory) {
  GpuCall call;
  call.input = call.output = memory.data();
  call.count = memory.size();
  return call;
}

TEST(GpuWorldOfProcesses, AnAbortEndsTheCallsOfAll) {
  std::vector<Member> members = members_of({"a", "b", "c"});
  join_all(members);
  std::vector<float> memory(300, 1);
  std::thread waiting([&] {
    const Status status = call_and_wait(members[0], 0, sum_in(memory));
    EXPECT_EQ(status.code(), StatusCode::aborted);
    EXPECT_EQ(status.culprit(), 2) << status.to_string();
  });
  EXPECT_TRUE(members[2].world->abort(2).ok());
  waiting.join();
  EXPECT_EQ(members[2].world->rank(2).failure().code(), StatusCode::aborted);
  leave_all(members);
}

// The process of a peer has ended: calls that need it fail and name it, and until one does nothing
// is wrong.
TEST(GpuWorldOfProcesses, ALostPeerFailsTheCallsThatNeedIt) {
  std::vector<Member> members = members_of({"a", "b"});
  join_all(members);
  EXPECT_TRUE(members[0].world->tell_lost(1).ok());
  EXPECT_TRUE(members[0].world->rank(0).failure().ok());
  std::vector<float> memory(300, 1);
  const Status status = call_and_wait(members[0], 0, sum_in(memory));
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_EQ(status.culprit(), 1) << status.to_string();
  leave_all(members);
}

// Seats are given back when their world goes, or is retired.
TEST(DeviceStock, SeatsAreSharedByAllProcessesAlike) {
  DeviceStock stock([](int ordinal) -> Result<std::unique_ptr<Device>> {
    return std::unique_ptr<Device>(new HostDevice({ordinal, 16, 2, true}));
  });
  auto first = stock.take_seat(0, 2);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ((*first)->channels(), 4);
  auto second = stock.take_seat(0, 1);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->channels(), 6);
  EXPECT_THAT(stock.take_seat(0, 1).status().message(), HasSubstr("left 0 streams"));
  GpuSeat seat;
  seat.process = "a";
  seat.exchange = [](const std::string& mine) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{mine};
  };
  GpuOptions options = small_options();
  options.channels = 3;
  ASSERT_TRUE((*first)->join(seat, options).ok());
  EXPECT_EQ((*first)->world().shape().channels, 3U);
  second->reset();
  second = stock.take_seat(0, 1);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->channels(), 6);  // half of 13
  stock.retire(*std::move(first));
  second->reset();
  second = stock.take_seat(0, 1);
  EXPECT_EQ((*second)->channels(), 8);
}

}  // namespace
}  // namespace tutti::runtime::gpu
