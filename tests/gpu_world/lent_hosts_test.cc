// Ranks of several hosts whose messages network cards move from device to device, as far as each of
// them lets it: over UCX, between threads of this process. A device's memory is the host's here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "gpu_world/members.hpp"
#include "transport/ucx/transport.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

// What a member's device lets cards do.
enum class Lets { all, reads, writes, nothing };

std::vector<Member> make_members(const std::vector<int>& hosts, const std::vector<Lets>& lets) {
  std::vector<std::string> processes;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    processes.push_back("p" + std::to_string(rank));
  std::vector<Member> members = members_of(processes, hosts);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const Lets mine = lets[rank % lets.size()];
    HostDeviceOptions options{static_cast<int>(rank) + 1, 64, 32, true};
    if (mine == Lets::writes || mine == Lets::nothing) options.network.why_no_reads = "no reads";
    if (mine == Lets::reads || mine == Lets::nothing) options.network.why_no_writes = "no writes";
    members[rank].device = std::make_unique<HostDevice>(options);
  }
  return members;
}

Connect over_ucx(transport::UcxOptions ucx) {
  static std::atomic<std::uint64_t> worlds{0};
  return [ucx, world = ++worlds](transport::TransportOptions options,
                                 const ExchangeFunction& exchange) {
    options.context = world;
    return transport::make_ucx_transport(options, ucx, exchange);
  };
}

// Over all that UCX has, its shared memory, and its sockets as between hosts.
class GpuLentHosts : public ::testing::TestWithParam<transport::UcxOptions> {
 protected:
  void SetUp() override {
    if (const Status status = transport::can_use_ucx(); !status.ok())
      GTEST_SKIP() << status.message();
  }
  static void join(std::vector<Member>& members, const GpuOptions& options = small_options()) {
    join_all(members, over_ucx(GetParam()), options);
    for (const Member& member : members)
      ASSERT_TRUE(member.status.ok()) << member.status.to_string();
  }
};

constexpr std::string_view kWays[] = {"all", "shm", "remote"};

INSTANTIATE_TEST_SUITE_P(Ways, GpuLentHosts,
                         ::testing::Values(transport::UcxOptions{},
                                           transport::UcxOptions{.transports = "posix,cma,self"},
                                           transport::UcxOptions{.transports = "tcp",
                                                                 .all_remote = true}),
                         [](const auto& shown) { return std::string(kWays[shown.index]); });

TEST_P(GpuLentHosts, GivesWhatTheContractsSay) {
  for (const std::vector<int>& hosts :
       {std::vector<int>{0, 1}, {0, 1, 2}, {5, 5, 9, 9}, {0, 0, 1}, {0, 1, 0, 1, 0}}) {
    std::vector<Member> members = make_members(hosts, {Lets::all});
    join(members);
    for (const Member& member : members)
      EXPECT_EQ(member.world->describe_carrier(), "sends from and receives into device memory");
    expect_contracts(members);
    for (const Member& member : members) EXPECT_GT(member.device->flushes(), 0);
    leave_all(members);
  }
}

// Each end as it can: from a device into the host's memory, and the other way round.
TEST_P(GpuLentHosts, NeedNotBeAlike) {
  for (const std::vector<Lets>& lets :
       {std::vector<Lets>{Lets::all, Lets::nothing},
        {Lets::reads, Lets::writes},
        {Lets::writes, Lets::nothing, Lets::all},
        {Lets::nothing, Lets::reads, Lets::nothing, Lets::writes}}) {
    std::vector<Member> members = make_members({0, 1, 2, 2}, lets);
    join(members);
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const Lets mine = lets[rank % lets.size()];
      const std::string how = members[rank].world->describe_carrier();
      const bool reads = mine == Lets::all || mine == Lets::reads;
      const bool writes = mine == Lets::all || mine == Lets::writes;
      EXPECT_EQ(how.find("no reads") == std::string::npos, reads) << how;
      EXPECT_EQ(how.find("no writes") == std::string::npos, writes) << how;
      EXPECT_EQ(how.find("device memory") != std::string::npos, reads || writes) << how;
    }
    expect_contracts(members);
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const Lets mine = lets[rank % lets.size()];
      EXPECT_EQ(members[rank].device->flushes() > 0, mine == Lets::all || mine == Lets::writes);
    }
    leave_all(members);
  }
}

// Nobody's device can: frames hold all of it, as over any transport.
TEST_P(GpuLentHosts, MayAllBeUnableTo) {
  std::vector<Member> members = make_members({0, 1}, {Lets::nothing});
  join(members);
  EXPECT_THAT(members[0].world->describe_carrier(), HasSubstr("page-locked memory (no reads)"));
  EXPECT_THAT(members[0].world->describe_carrier(), HasSubstr("page-locked memory (no writes)"));
  expect_contracts(members);
  leave_all(members);
}

TEST_P(GpuLentHosts, HaveLongerMessagesThanFrames) {
  std::vector<Member> members = make_members({0, 1}, {Lets::all});
  GpuOptions options = small_options();
  options.slot_bytes = 16 * 1024;
  join(members, options);
  std::uint64_t number = 0;
  for (const std::size_t count : {1U, 4097U, 60'000U})
    expect_call(members, Collective::all_reduce, DataType::float32, count, ++number);
  leave_all(members);
}

TEST_P(GpuLentHosts, HearOfAnAbort) {
  std::vector<Member> members = make_members({0, 1, 2}, {Lets::all});
  join(members);
  expect_failure(members, StatusCode::aborted, 2,
                 [&] { EXPECT_TRUE(members[2].world->abort(2).ok()); });
  leave_all(members);
}

TEST_P(GpuLentHosts, HearOfAMismatch) {
  std::vector<Member> members = make_members({0, 1}, {Lets::all});
  join(members);
  std::vector<std::vector<float>> memory = {std::vector<float>(300, 1), std::vector<float>(301, 1)};
  for_all(members, [&](Member& member, Rank rank) {
    const Status status =
        call_and_wait(member, rank, sum_in(memory[static_cast<std::size_t>(rank)]));
    EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
  });
  leave_all(members);
}

TEST_P(GpuLentHosts, HearOfALostHost) {
  std::vector<Member> members = make_members({0, 1}, {Lets::all});
  join(members);
  const auto goes = [&] {
    wait_for_launch(members[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    members[1].world.reset();
  };
  expect_failure(members, StatusCode::peer_lost, 1, goes, "left");
}

// ---- Why not ----

TEST_P(GpuLentHosts, DoNotWhereTheyAreNotTo) {
  std::vector<Member> members = make_members({0, 1}, {Lets::all});
  GpuOptions options = small_options();
  options.network = {"wanted so", "wanted so"};
  join(members, options);
  EXPECT_EQ(members[0].world->describe_carrier(),
            "sends from and receives into page-locked memory (wanted so)");
  expect_contracts(members);
  EXPECT_EQ(members[0].device->flushes(), 0);
  leave_all(members);
}

TEST(GpuLentHostsNot, WhereTheTransportMovesNothingByItself) {
  std::vector<Member> members = make_members({0, 1}, {Lets::all});
  std::atomic<int> given_back = 0;
  for (Member& member : members) member.device->at_deallocation([&] { ++given_back; });
  join_all(members);
  ASSERT_TRUE(members[0].status.ok()) << members[0].status.to_string();
  EXPECT_EQ(given_back, 0) << "that may wait for all that the device does";
  EXPECT_THAT(members[0].world->describe_carrier(),
              HasSubstr("memory moves no memory that is lent"));
  expect_contracts(members);
  leave_all(members);
}

// A device that has no room left for payloads is no reason to fail.
TEST_P(GpuLentHosts, DoNotWhereTheDeviceHasNoRoom) {
  std::vector<Member> members = make_members({0, 1, 2}, {Lets::all});
  std::atomic<int> given_back = 0;
  members[0].device->at_deallocation([&] { ++given_back; });
  members[0].device->fail_allocation_after(2);
  join(members);
  EXPECT_EQ(given_back, 0) << "what was allocated before stays";
  EXPECT_THAT(members[0].world->describe_carrier(), HasSubstr("bytes are left"));
  EXPECT_EQ(members[1].world->describe_carrier(), "sends from and receives into device memory");
  expect_contracts(members);
  leave_all(members);
}

TEST(GpuLentHostsNot, WherePeersDoNotSayHowTheyCarry) {
  HostDevice device;
  ControlShape shape;
  shape.ranks = 2;
  shape.slot_bytes = 64;
  transport::TransportOptions options;
  options.size = 2;
  const std::vector<Rank> peers{1};
  for (const char* const offer : {"", "4", "00", "x"}) {
    auto carrier =
        Carrier::make(device, shape, peers,
                      transport::make_memory_transport(transport::MemoryWorld::make(options), 0),
                      {}, [](std::uint64_t) {});
    ASSERT_TRUE(carrier.ok());
    EXPECT_EQ((*carrier)->offer(), "0");
    const Status status = (*carrier)->start(std::vector<std::string>{"0", offer});
    EXPECT_EQ(status.code(), StatusCode::corrupt_data);
    EXPECT_EQ(status.culprit(), 1);
  }
  EXPECT_EQ(device.allocations(), 0);
}

}  // namespace
}  // namespace tutti::runtime::gpu
