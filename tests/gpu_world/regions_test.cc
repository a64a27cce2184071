// Memory that ranks register, which take one another for other processes: calls in it go direct,
// as far as all peers have it mapped, and are right whoever has registered what and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include "gpu_world/registered.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::vector<Member> joined(const std::vector<std::string>& processes,
                           const GpuOptions& options = small_options()) {
  std::vector<Member> members = members_of(processes);
  join_all(members, options);
  for (const Member& member : members) EXPECT_TRUE(member.status.ok()) << member.status.to_string();
  return members;
}

int imports(const std::vector<Member>& members) {
  int sum = 0;
  for (const Member& member : members) sum += member.device->imports();
  return sum;
}

// Devices forget what they had mapped when they are idle.
void expect_imports(const std::vector<Member>& members, int wanted) {
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  while (imports(members) != wanted && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(imports(members), wanted);
}

// What its contract says, for all collectives; and not through slots where data is large enough to
// be told where it lies.
class GpuRegions : public ::testing::TestWithParam<Made> {};

INSTANTIATE_TEST_SUITE_P(Made, GpuRegions, ::testing::Values(Made::whole, Made::in_parts),
                         [](const auto& made) {
                           return made.param == Made::whole ? "Whole" : "InParts";
                         });

TEST_P(GpuRegions, RegisteredMemoryGoesDirect) {
  for (const std::vector<std::string>& processes :
       {std::vector<std::string>{"a", "b"}, {"a", "b", "a"}, {"a", "b", "c", "d"}}) {
    std::vector<Member> members = joined(processes);
    {
      Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
      register_all(pieces);
      RegisteredCase what;
      for (what.collective = Collective::all_reduce;
           const Collective collective : kAllCollectives) {
        if (collective == Collective::barrier) continue;
        what.collective = collective;
        for (const bool in_place : {false, true}) {
          if (in_place && !collectives::may_run_in_place(collective)) continue;
          what.in_place = in_place;
          for (what.count = 1; what.count < 2000; what.count = 9 * what.count + 4, ++what.seed)
            expect_call_in(members, pieces, what);
        }
      }
      const std::uint64_t before = queued(members);
      for (const Collective collective :
           {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
        what = {};
        what.collective = collective;
        what.count = 3000;
        expect_call_in(members, pieces, what);
      }
      EXPECT_EQ(queued(members), before) << processes.size();
    }
    leave_all(members);
  }
}

TEST_F(GpuRegions, OtherMemoryGoesThroughSlots) {
  std::vector<Member> members = joined({"a", "b", "c"});
  {
    Pieces pieces = pieces_of(members);
    expect_call_in(members, pieces, {});
    EXPECT_GT(queued(members), 0U);
  }
  leave_all(members);
}

// Whoever has registered, and be it only one, at whatever offset, all end and are right.
TEST_P(GpuRegions, RanksRegisterWhatTheyLike) {
  std::vector<Member> members = joined({"a", "b", "c"});
  for (unsigned who = 0; who < 8; ++who) {
    Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
    for (unsigned rank = 0; rank < 3; ++rank)
      if ((who >> rank & 1U) != 0) {
        ASSERT_TRUE(pieces[rank]->register_now().ok());
      }
    RegisteredCase what;
    what.seed = who + 1;
    what.at = 256 * who;
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast, Collective::all_to_all}) {
      what.collective = collective;
      expect_call_in(members, pieces, what);  // peers may not have mapped it yet
      for (const auto& piece : pieces)
        if (piece->is_registered()) piece->wait_until_mapped();
      what.in_place = collectives::may_run_in_place(collective);
      expect_call_in(members, pieces, what);
      what.in_place = false;
    }
  }
  leave_all(members);
}

// Only a part of an allocation: what lies beyond goes through slots.
TEST_P(GpuRegions, APartOfAnAllocationIsRegistered) {
  std::vector<Member> members = joined({"a", "b"});
  {
    Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
    std::vector<Regions::Registration> parts;
    for (const auto& piece : pieces) {
      const auto made = piece->rank().register_memory(piece->memory(), 32768);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      parts.push_back(*made);
      while (!piece->rank().is_mapped(piece->memory(), 32768)) std::this_thread::yield();
      EXPECT_FALSE(piece->rank().is_mapped(piece->memory(), 32769));
      EXPECT_FALSE(piece->rank().is_mapped(piece->memory() + 32768, 1));
    }
    RegisteredCase what;
    expect_call_in(members, pieces, what);
    EXPECT_EQ(queued(members), 0U);
    what.at = 65536;
    expect_call_in(members, pieces, what);
    EXPECT_GT(queued(members), 0U);
    const auto beyond = pieces[0]->rank().register_memory(pieces[0]->memory() + 8, 256 * 1024);
    EXPECT_EQ(beyond.status().code(), StatusCode::invalid_argument);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      EXPECT_TRUE(pieces[i]->rank().deregister_memory(parts[i]).ok());
  }
  leave_all(members);
}

// Peers open an allocation once, and close it with its last registration.
TEST_F(GpuRegions, AnAllocationIsMappedOnce) {
  std::vector<Member> members = joined({"a", "b", "c"});
  {
    Pieces pieces = pieces_of(members);
    const int before = imports(members);
    std::vector<Regions::Registration> all;
    for (std::size_t at = 0; at < 5; ++at) {
      const auto made = pieces[0]->rank().register_memory(pieces[0]->memory() + 512 * at, 512);
      ASSERT_TRUE(made.ok());
      all.push_back(*made);
    }
    while (!pieces[0]->rank().is_mapped(pieces[0]->memory(), 512)) std::this_thread::yield();
    EXPECT_EQ(imports(members), before + 2);
    for (const Regions::Registration registration : all) {
      EXPECT_EQ(imports(members), before + 2);
      EXPECT_TRUE(pieces[0]->rank().deregister_memory(registration).ok());
    }
    expect_imports(members, before);
    EXPECT_EQ(pieces[0]->rank().deregister_memory(all.front()).code(),
              StatusCode::invalid_argument);
  }
  leave_all(members);
}

// The same call again, in memory that has the address of one that is gone.
TEST_P(GpuRegions, AnAddressMayComeBackAsAnotherAllocation) {
  std::vector<Member> members = joined({"a", "b"});
  const RegisteredCase what;
  for (int time = 0; time < 20; ++time) {
    Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
    if (time % 3 == 0) {
      expect_call_in(members, pieces, what);
      continue;
    }
    register_all(pieces);
    const std::uint64_t before = queued(members);
    expect_call_in(members, pieces, what);
    EXPECT_EQ(queued(members), before);
    for (const auto& piece : pieces) EXPECT_TRUE(piece->deregister().ok());
    expect_call_in(members, pieces, what);
    const std::uint64_t between = queued(members);
    EXPECT_GT(between, before);
    register_all(pieces);
    expect_call_in(members, pieces, what);
    EXPECT_EQ(queued(members), between);
  }
  leave_all(members);
}

TEST_P(GpuRegions, ThereMayBeMany) {
  std::vector<Member> members = joined({"a", "b"});
  {
    std::vector<Pieces> all;
    for (int i = 0; i < 60; ++i)
      register_all(all.emplace_back(pieces_of(members, 32 * 1024, GetParam())));
    const RegisteredCase what;
    for (std::size_t i = 0; i < all.size(); i += 7) expect_call_in(members, all[i], what);
    EXPECT_EQ(queued(members), 0U);
  }
  expect_imports(members, 2);  // control memory
  leave_all(members);
}

// Factors, and exchanges in place, go by way of scratch memory, which is mapped by itself.
TEST_F(GpuRegions, ScratchMemoryIsMappedByItself) {
  std::vector<Member> members = joined({"a", "b", "c"});
  {
    Pieces pieces = pieces_of(members);
    register_all(pieces);
    std::uint64_t before = 0;
    for (int time = 0; time < 50; ++time) {
      before = queued(members);
      for_all(members, [&](Member& member, Rank rank) {
        std::byte* const memory = pieces[static_cast<std::size_t>(rank)]->memory();
        auto* const numbers = reinterpret_cast<float*>(memory);
        for (int i = 0; i < 9000; ++i) numbers[i] = static_cast<float>(10000 * rank + i);
        GpuCall call;
        call.collective = Collective::all_to_all;
        call.input = call.output = memory;
        call.count = 3000;
        EXPECT_TRUE(call_and_wait(member, rank, call).ok());
        for (int i = 0; i < 9000; ++i)
          ASSERT_EQ(numbers[i], static_cast<float>(10000 * (i / 3000) + 3000 * rank + i % 3000));
      });
      if (queued(members) == before) break;
    }
    EXPECT_EQ(queued(members), before);
  }
  leave_all(members);
}

// A graph goes direct while its memory is registered, and through slots before and after.
TEST_P(GpuRegions, GraphsFollowWhatIsRegistered) {
  std::vector<Member> members = joined({"a", "b"});
  {
    Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
    register_all(pieces);
    RegisteredCase what;
    what.in_place = true;
    const CallData data = data_of(what, 2);
    std::vector<StreamHandle> streams;
    std::vector<GraphHandle> graphs;
    for (Rank rank = 0; rank < 2; ++rank) {
      HostDevice& device = *members[static_cast<std::size_t>(rank)].device;
      Piece& piece = *pieces[static_cast<std::size_t>(rank)];
      streams.push_back(*device.make_stream());
      ASSERT_TRUE(device.begin_capture(streams.back()).ok());
      ASSERT_TRUE(
          piece.rank().call(call_in(what, data, rank, piece.memory(), 2), streams.back()).ok());
      graphs.push_back(*device.end_capture(streams.back()));
    }
    const auto replay = [&] {
      for_all(members, [&](Member& member, Rank rank) {
        const auto i = static_cast<std::size_t>(rank);
        const std::vector<std::byte>& image = data.seat(rank).image;
        std::memcpy(pieces[i]->memory() + what.at, image.data(), image.size());
        EXPECT_TRUE(member.device->replay(graphs[i], streams[i]).ok());
        EXPECT_TRUE(pieces[i]->rank().synchronize(streams[i]).ok());
        EXPECT_EQ(data.judge(rank, pieces[i]->memory() + what.at), "");
      });
    };
    for (int time = 0; time < 3; ++time) replay();
    EXPECT_EQ(queued(members), 0U);
    EXPECT_TRUE(pieces[0]->deregister().ok());
    replay();
    const std::uint64_t after = queued(members);
    EXPECT_GT(after, 0U);
    EXPECT_TRUE(pieces[1]->deregister().ok());
    replay();
    EXPECT_GT(queued(members), after);
    for (std::size_t i = 0; i < 2; ++i) {
      members[i].device->destroy_graph(graphs[i]);
      members[i].device->destroy_stream(streams[i]);
    }
  }
  leave_all(members);
}

// Who deregisters waits for its own calls, which no peer's outlast.
TEST_P(GpuRegions, MemoryStaysWhileACallUsesIt) {
  std::vector<Member> members = joined({"a", "b"});
  {
    Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
    register_all(pieces);
    const RegisteredCase what;
    const CallData data = data_of(what, 2);
    const StreamHandle stream = *members[0].device->make_stream();
    std::memcpy(pieces[0]->memory() + what.at, data.seat(0).image.data(),
                data.seat(0).image.size());
    ASSERT_TRUE(
        pieces[0]->rank().call(call_in(what, data, 0, pieces[0]->memory(), 2), stream).ok());
    wait_for_launch(members[0]);
    const DeviceWorld* const world = members[0].device->last_launch().world;
    while (std::atomic_ref(world->visits[0]).load() % 2 == 0) std::this_thread::yield();
    std::atomic<bool> gone = false;
    std::thread owner([&] {
      EXPECT_TRUE(pieces[0]->deregister().ok());
      gone = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_FALSE(gone);
    std::memcpy(pieces[1]->memory() + what.at, data.seat(1).image.data(),
                data.seat(1).image.size());
    EXPECT_TRUE(call_and_wait(members[1], 1, call_in(what, data, 1, pieces[1]->memory(), 2)).ok());
    EXPECT_TRUE(pieces[0]->rank().synchronize(stream).ok());
    owner.join();
    EXPECT_EQ(data.judge(0, pieces[0]->memory() + what.at), "");
    members[0].device->destroy_stream(stream);
  }
  leave_all(members);
}

// Peers are in a call that waits for who deregisters. Their driver would not forget a mapping
// before that call is over, nor let anybody in; so nobody asks it to.
TEST_P(GpuRegions, PeersMayWaitForWhoDeregisters) {
  std::vector<Member> members = joined({"a", "b", "c"});
  {
    Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
    Pieces others = pieces_of(members, 256 * 1024, GetParam());
    register_all(pieces);
    const int mapped = imports(members);
    for (const std::size_t count : {2U, 3000U}) {  // with low latency, and direct
      RegisteredCase what;
      what.count = count;
      const CallData data = data_of(what, 3);
      const auto call = [&](Rank rank) {
        const auto i = static_cast<std::size_t>(rank);
        std::byte* const memory = pieces[i]->memory();
        std::memcpy(memory + what.at, data.seat(rank).image.data(), data.seat(rank).image.size());
        const Status status = call_and_wait(members[i], rank, call_in(what, data, rank, memory, 3));
        EXPECT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(data.judge(rank, memory + what.at), "");
      };
      ASSERT_TRUE(others[0]->register_now().ok());
      others[0]->wait_until_mapped();
      const std::vector<int> before{members[1].device->launches(), members[2].device->launches()};
      std::vector<std::thread> callers;
      for (const Rank rank : {1, 2}) callers.emplace_back(call, rank);
      for (std::size_t i = 1; i < 3; ++i)
        while (members[i].device->launches() == before[i - 1]) std::this_thread::yield();
      const Status gone = others[0]->deregister();
      EXPECT_TRUE(gone.ok()) << gone.to_string();
      // What is registered now is mapped all the same.
      ASSERT_TRUE(others[0]->register_now().ok());
      others[0]->wait_until_mapped();
      EXPECT_TRUE(others[0]->deregister().ok());
      call(0);
      for (std::thread& caller : callers) caller.join();
      expect_imports(members, mapped);
    }
  }
  leave_all(members);
}

// What has the address of memory that was let go of, and that a device in a call has not forgotten,
// is mapped when the call is over.
TEST_F(GpuRegions, AnAddressThatIsNotForgottenIsMappedLater) {
  std::vector<Member> members = joined({"a", "b"});
  {
    Pieces pieces = pieces_of(members);
    Pieces others = pieces_of(members);
    std::vector<float> sums(300, 1);
    ASSERT_TRUE(others[0]->register_now().ok());
    others[0]->wait_until_mapped();
    std::thread caller([&] { EXPECT_TRUE(call_and_wait(members[1], 1, sum_in(sums)).ok()); });
    wait_for_launch(members[1]);
    for (int time = 0; time < 2; ++time) {
      EXPECT_TRUE(others[0]->deregister().ok());
      members[0].device->renew(others[0]->memory());
      ASSERT_TRUE(others[0]->register_now().ok());
      // So that what was said of the one before has been heard.
      ASSERT_TRUE(pieces[0]->register_now().ok());
      pieces[0]->wait_until_mapped();
      EXPECT_FALSE(others[0]->rank().is_mapped(others[0]->memory(), 1));
      EXPECT_TRUE(pieces[0]->deregister().ok());
    }
    std::vector<float> mine(300, 2);
    EXPECT_TRUE(call_and_wait(members[0], 0, sum_in(mine)).ok());
    caller.join();
    EXPECT_EQ(sums.front(), 3);
    others[0]->wait_until_mapped();
    ASSERT_TRUE(others[1]->register_now().ok());
    others[1]->wait_until_mapped();
    const std::uint64_t before = queued(members);
    expect_call_in(members, others, {});
    EXPECT_EQ(queued(members), before);
  }
  leave_all(members);
}

// While calls go on, ranks register and deregister as they like.
TEST_P(GpuRegions, ComeAndGoBesideCalls) {
  std::vector<Member> members = joined({"a", "b", "c"});
  {
    Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
    std::atomic<bool> ends = false;
    std::vector<std::thread> owners;
    for (const auto& piece : pieces)
      owners.emplace_back([&] {
        while (!ends) {
          EXPECT_TRUE(piece->register_now().ok());
          if (reinterpret_cast<std::uintptr_t>(piece.get()) % 64 < 32) piece->wait_until_mapped();
          std::this_thread::yield();
          EXPECT_TRUE(piece->deregister().ok());
        }
      });
    RegisteredCase what;
    for (int time = 0; time < 30; ++time, ++what.seed) {
      what.collective = time % 2 == 0 ? Collective::all_reduce : Collective::all_gather;
      expect_call_in(members, pieces, what);
    }
    ends = true;
    for (std::thread& owner : owners) owner.join();
  }
  leave_all(members);
}

// ---- What goes wrong ----

TEST_P(GpuRegions, AnAbortLeavesNothingMapped) {
  std::vector<Member> members = joined({"a", "b", "c"});
  {
    Pieces pieces = pieces_of(members, 256 * 1024, GetParam());
    register_all(pieces);
    const RegisteredCase what;
    const CallData data = data_of(what, 3);
    std::vector<std::thread> callers;
    for (const Rank rank : {0, 1})
      callers.emplace_back([&, rank] {
        const auto i = static_cast<std::size_t>(rank);
        const Status status =
            call_and_wait(members[i], rank, call_in(what, data, rank, pieces[i]->memory(), 3));
        EXPECT_EQ(status.code(), StatusCode::aborted) << status.to_string();
      });
    wait_for_launch(members[0]);
    EXPECT_TRUE(members[2].world->abort(2).ok());
    for (const auto& piece : pieces) EXPECT_TRUE(piece->deregister().ok());
    for (std::thread& caller : callers) caller.join();
    expect_imports(members, 6);  // control memory
    for (const Member& member : members) EXPECT_EQ(member.device->shared_parts(), 0);
  }
  leave_all(members);
}

// Nothing is lost but speed, and it is said why.
TEST_F(GpuRegions, WhatAPeerCannotMapGoesThroughSlots) {
  std::vector<Member> members = members_of({"a", "b"});
  std::mutex mutex;
  std::string heard;
  members[0].tell = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    heard = text;
  };
  join_all(members);
  members[1].device->set_importing(false);
  {
    Pieces pieces = pieces_of(members);
    for (const auto& piece : pieces) EXPECT_TRUE(piece->register_now().ok());
    pieces[1]->wait_until_mapped();
    for (std::string text; text.empty(); std::this_thread::yield()) {
      const std::lock_guard lock(mutex);
      text = heard;
    }
    EXPECT_THAT(heard,
                HasSubstr("rank 1: threads of a processor (device 2) cannot load and store"));
    expect_call_in(members, pieces, {});
    EXPECT_GT(queued(members), 0U);
    EXPECT_FALSE(pieces[0]->rank().is_mapped(pieces[0]->memory(), 1));
  }
  leave_all(members);
}

TEST_F(GpuRegions, MemoryThatOtherProcessesCannotHaveIsRefused) {
  std::vector<Member> members = joined({"a", "b"});
  {
    Pieces pieces = pieces_of(members);
    members[0].device->set_reachable(false);
    const Status refused = pieces[0]->register_now();
    EXPECT_EQ(refused.code(), StatusCode::unsupported);
    EXPECT_THAT(refused.message(), HasSubstr("other processes can have memory of cudaMalloc"));
    expect_call_in(members, pieces, {});
  }
  leave_all(members);
}

// Where lowering is to be staged, nothing is direct.
TEST_F(GpuRegions, AreNotThereWhereNothingIsToBeDirect) {
  GpuOptions options = small_options();
  options.direct = false;
  std::vector<Member> members = joined({"a", "b"}, options);
  {
    Pieces pieces = pieces_of(members);
    EXPECT_TRUE(pieces[0]->register_now().ok());
    EXPECT_FALSE(pieces[0]->is_registered());
    expect_call_in(members, pieces, {});
    EXPECT_GT(queued(members), 0U);
  }
  leave_all(members);
}

}  // namespace
}  // namespace tutti::runtime::gpu
