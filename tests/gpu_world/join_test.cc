// Ranks that join a world from several processes. Here these are threads, each with a device of its
// own, that take one another for other processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "gpu_world/members.hpp"
#include "runtime/gpu/host/device_stock.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

TEST(GpuWorldOfProcesses, GivesWhatTheContractsSay) {
  for (const std::vector<std::string>& processes :
       {std::vector<std::string>{"a"}, {"a", "b"}, {"a", "b", "a"}, {"a", "b", "c", "d", "e"}}) {
    std::vector<Member> members = members_of(processes);
    join_all(members);
    for (const Member& member : members)
      ASSERT_TRUE(member.status.ok()) << member.status.to_string();
    expect_contracts(members);
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

TEST(GpuWorldOfProcesses, AnAbortEndsTheCallsOfAll) {
  std::vector<Member> members = members_of({"a", "b", "c"});
  join_all(members);
  expect_failure(members, StatusCode::aborted, 2,
                 [&] { EXPECT_TRUE(members[2].world->abort(2).ok()); });
  EXPECT_EQ(members[2].world->rank(2).failure().code(), StatusCode::aborted);
  leave_all(members);
}

// The process of a peer has ended: calls that need it fail and name it, and until one does nothing
// is wrong.
TEST(GpuWorldOfProcesses, ALostPeerFailsTheCallsThatNeedIt) {
  std::vector<Member> members = members_of({"a", "b"});
  join_all(members);
  EXPECT_TRUE(members[0].world->tell_ended(1).ok());
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
