// Ranks of several hosts: what their kernels tell one another is carried by the hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "gpu_world/members.hpp"
#include "runtime/gpu/host/plans.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> processes(std::size_t ranks) {
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < ranks; ++rank) names.push_back("p" + std::to_string(rank));
  return names;
}

// Alone on their hosts, equally many, unequally many, and not in order.
TEST(GpuWorldOfHosts, GivesWhatTheContractsSay) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 1},
                                        {0, 1, 2},
                                        {5, 5, 9, 9},
                                        {0, 0, 1},
                                        {0, 1, 0, 1, 0},
                                        {0, 0, 0, 1, 1, 1}}) {
    std::vector<Member> members = members_of(processes(hosts.size()), hosts);
    join_all(members);
    for (const Member& member : members)
      ASSERT_TRUE(member.status.ok()) << member.status.to_string();
    expect_contracts(members);
    leave_all(members);
  }
}

// Every type is as good as the next one for a carrier; one of two bytes and one of eight.
TEST(GpuWorldOfHosts, CarriesOtherTypesToo) {
  std::vector<Member> members = members_of(processes(3), {0, 1, 1});
  join_all(members);
  ASSERT_TRUE(members[0].status.ok()) << members[0].status.to_string();
  std::uint64_t number = 0;
  for (const DataType type : {DataType::bfloat16, DataType::int64, DataType::uint8})
    for (const Collective collective : {Collective::all_reduce, Collective::all_to_all})
      expect_call(members, collective, type, 1237, ++number);
  leave_all(members);
}

std::string algorithm_for(const std::vector<int>& hosts, Collective collective) {
  PlansOptions options;
  options.ranks = 8;
  options.channels = 4;
  options.slot_bytes = 64 * 1024;
  options.direct = false;
  options.hosts = hosts;
  collectives::PlanQuery query;
  query.collective = collective;
  query.count = std::size_t{4} << 20;
  const auto plan = (*Plans::make(options))->find(query);
  return plan.ok() ? plan->programs->algorithm : plan.status().to_string();
}

// What goes between hosts goes once.
TEST(GpuWorldOfHosts, PlansByHosts) {
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
    EXPECT_EQ(algorithm_for({0, 0, 0, 0, 1, 1, 1, 1}, collective), "hierarchical");
    EXPECT_NE(algorithm_for({}, collective), "hierarchical");
    EXPECT_NE(algorithm_for({0, 1, 0, 1, 0, 1, 0, 1}, collective), "hierarchical")
        << "its groups are consecutive ranks";
  }
}

TEST(GpuWorldOfHosts, HasFewChannelsAndNothingOfLowLatency) {
  std::vector<Member> members = members_of(processes(2), {0, 1});
  GpuOptions options = small_options();
  options.channels = 8;
  join_all(members, options);
  ASSERT_TRUE(members[0].status.ok()) << members[0].status.to_string();
  EXPECT_EQ(members[0].world->shape().channels, 4U);
  EXPECT_EQ(members[0].world->shape().flagged_bytes, 0U);
  leave_all(members);
}

TEST(GpuWorldOfHosts, IsNotMadeWhereMessagesDoNotFitFrames) {
  std::vector<Member> members = members_of(processes(2), {0, 1});
  GpuOptions options = small_options();
  options.slot_bytes = 4096;
  join_all(members, options);
  for (const Member& member : members) {
    EXPECT_EQ(member.status.code(), StatusCode::unsupported);
    EXPECT_THAT(member.status.message(), HasSubstr("use smaller slots"));
    EXPECT_EQ(member.device->allocations(), 0);
  }
}

TEST(GpuWorldOfHosts, AnAbortEndsTheCallsOfAll) {
  std::vector<Member> members = members_of(processes(3), {0, 1, 2});
  join_all(members);
  expect_failure(members, StatusCode::aborted, 2,
                 [&] { EXPECT_TRUE(members[2].world->abort(2).ok()); });
  leave_all(members);
}

// Also where the world goes at once: why it went is told before its connections end.
TEST(GpuWorldOfHosts, WhoGoesTellsWhyFirst) {
  std::vector<Member> members = members_of(processes(2), {0, 1});
  join_all(members);
  expect_failure(members, StatusCode::aborted, 1, [&] {
    wait_for_launch(members[0]);
    EXPECT_TRUE(members[1].world->abort(1).ok());
    members[1].world.reset();
  });
}

// A kernel tells why it left, across hosts as within one.
TEST(GpuWorldOfHosts, AMismatchIsToldToAll) {
  std::vector<Member> members = members_of(processes(2), {0, 1});
  join_all(members);
  std::vector<std::vector<float>> memory = {std::vector<float>(300, 1), std::vector<float>(301, 1)};
  for_all(members, [&](Member& member, Rank rank) {
    const Status status =
        call_and_wait(member, rank, sum_in(memory[static_cast<std::size_t>(rank)]));
    EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
  });
  leave_all(members);
}

// The other host goes without a word while a kernel waits for it, which is told what the connection
// says of it.
TEST(GpuWorldOfHosts, AHostThatIsLostWithinACallFailsIt) {
  std::vector<Member> members = members_of(processes(2), {0, 1});
  join_all(members);
  const auto goes = [&] {
    wait_for_launch(members[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it has told all that it has
    members[1].world.reset();
  };
  expect_failure(members, StatusCode::peer_lost, 1, goes, "left");
}

// It has gone before.
TEST(GpuWorldOfHosts, ALostHostFailsTheCallsThatNeedIt) {
  std::vector<Member> members = members_of(processes(2), {0, 1});
  join_all(members);
  members[1].world.reset();
  std::vector<float> memory(300, 1);
  const Status status = call_and_wait(members[0], 0, sum_in(memory));
  EXPECT_EQ(status.code(), StatusCode::peer_lost) << status.to_string();
  EXPECT_EQ(status.culprit(), 1) << status.to_string();
  EXPECT_TRUE(others_leave(*members[0].world)) << "nobody is waited for who cannot come";
}

// Its process is seen to end before its last words have been read: what it sent still counts, and
// the connection tells whether it had left.
TEST(GpuWorldOfHosts, TheEndOfAProcessAloneFailsNothing) {
  std::vector<Member> members = members_of(processes(2), {0, 1});
  join_all(members);
  EXPECT_TRUE(members[0].world->tell_ended(1).ok());
  expect_call(members, Collective::all_reduce, DataType::float32, 300, 1);
  leave_all(members);
}

}  // namespace
}  // namespace tutti::runtime::gpu
