// How ranks talk to each other about memory that they register, without a world around it: what
// they hold of each other, who may come in, and what is left when one is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gpu_world/parties.hpp"
#include "transport/bootstrap/local_socket.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TEST(GpuRegionTalk, APeerThatIsGoneHoldsNothing) {
  Parties parties = parties_of(3);
  connect_all(parties);
  const auto first = parties[0]->regions->add(parties[0]->piece, 4096);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(comes_true([&] { return parties[0]->has_opened(); }));
  EXPECT_EQ(parties[1]->device.imports(), 1);
  parties[1]->regions.reset();
  EXPECT_EQ(parties[1]->device.imports(), 0);
  const auto begin = Clock::now();
  EXPECT_TRUE(parties[0]->regions->remove(*first, well).ok());
  EXPECT_TRUE(comes_true([&] { return parties[2]->device.imports() == 0; }));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
}

// Its process has ended, though a child of it has copies of its sockets.
TEST(GpuRegionTalk, APeerThatIsSaidToBeGoneHoldsNothing) {
  Parties parties = parties_of(2);
  connect_all(parties);
  const auto made = parties[0]->regions->add(parties[0]->piece, 4096);
  ASSERT_TRUE(made.ok() && comes_true([&] { return parties[0]->has_opened(); }));
  std::vector<std::byte*> controls{parties[0]->memory->control(), parties[1]->memory->control()};
  ASSERT_TRUE(
      parties[1]->memory->connect(direct_links(parties[1]->memory->shape(), 1, controls)).ok());
  std::atomic_ref(parties[1]->memory->world()->visits[0]) = 1;  // it does not let go
  std::thread owner(
      [&] { EXPECT_TRUE(parties[0]->regions->remove(*made, [] { return true; }).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  parties[0]->regions->lose(1);
  owner.join();
}

// That it is gone shows when it is told something, just after its line was looked at.
TEST(GpuRegionTalk, APeerThatGoesWhileItIsToldHoldsNothing) {
  RegionLine line;
  std::atomic<bool> asks = false;
  std::atomic<bool> looks = false;
  Parties parties = parties_of(2);
  Party& rank = *parties[0];
  // Asked between a look at all lines and the wait for the next news, as something is to be
  // forgotten: true when the rank has given the line up.
  const auto is_idle = [&] {
    if (!asks) return false;
    looks = true;
    pollfd end{line.socket().number(), 0, 0};
    return ::poll(&end, 1, 10'000) == 1;
  };
  ASSERT_TRUE(
      rank.regions->connect(*rank.memory, 0, {{1, *make_region_door(), false}}, is_idle).ok());
  line.take(*transport::connect_to_name(rank.regions->door().name.data()));
  RegionNews news;
  news.from = 1;
  news.secret = rank.regions->door().secret;
  line.say(news);
  news.word = RegionWord::open;
  news.region = kRegionCount;
  news.generation = 1;
  news.handle = parties[1]->device.share_memory(parties[1]->piece, 4096)->handle;
  line.say(news);
  ASSERT_TRUE(comes_true([&] { return rank.device.imports() == 1; }));
  news.word = RegionWord::close;
  line.say(news);
  ASSERT_TRUE(rank.regions->add(rank.piece, 4096).ok());
  ASSERT_TRUE(comes_true([&] {
    const auto heard = line.hear();
    return heard && heard->news.word == RegionWord::closed;
  }));
  asks = true;
  ASSERT_TRUE(comes_true([&] { return looks.load(); }));
  ASSERT_EQ(::shutdown(line.socket().number(), SHUT_RD), 0);
  EXPECT_TRUE(rank.regions->remove_all(well).ok());
}

// Whoever comes late hears what was said before.
TEST(GpuRegionTalk, WhatIsSaidWaitsForWhoIsNotThere) {
  Parties parties = parties_of(3);
  ASSERT_TRUE(connect(parties, *parties[0]).ok());
  ASSERT_TRUE(parties[0]->regions->add(parties[0]->piece, 4096).ok());
  ASSERT_TRUE(connect(parties, *parties[1]).ok());
  ASSERT_TRUE(comes_true([&] { return parties[1]->device.imports() == 1; }));
  EXPECT_FALSE(parties[0]->has_opened());
  ASSERT_TRUE(connect(parties, *parties[2]).ok());
  EXPECT_TRUE(comes_true([&] { return parties[0]->has_opened(); }));
}

TEST(GpuRegionTalk, OnlyWhoKnowsTheSecretComesIn) {
  Parties parties = parties_of(2);
  ASSERT_TRUE(connect(parties, *parties[0]).ok());
  const RegionDoor& door = parties[0]->regions->door();
  RegionNews lies;
  lies.from = 1;
  RegionNews nonsense;
  nonsense.magic = 7;
  nonsense.secret = door.secret;
  RegionNews elsewhere;
  elsewhere.from = 5;
  elsewhere.secret = door.secret;
  RegionNews early;
  early.from = 1;
  early.word = RegionWord::open;
  early.secret = door.secret;
  for (const RegionNews& said : {lies, nonsense, elsewhere, early}) {
    RegionLine line;
    line.take(*transport::connect_to_name(door.name.data()));
    line.say(said);
    EXPECT_TRUE(comes_true([&] { return !line.hear() && line.is_lost(); }));
  }
  ASSERT_TRUE(parties[0]->regions->add(parties[0]->piece, 4096).ok());
  ASSERT_TRUE(connect(parties, *parties[1]).ok());
  EXPECT_TRUE(comes_true([&] { return parties[0]->has_opened(); }));
}

TEST(GpuRegionTalk, WhoIsNotThereIsNamed) {
  Parties parties = parties_of(2);
  std::vector<RegionPeer> peers{{0, parties[0]->regions->door(), false}};
  parties[0]->regions.reset();
  const Status status = parties[1]->regions->connect(*parties[1]->memory, 1, peers, idle);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_THAT(status.message(), HasSubstr("rank 0"));
}

// A peer that is in a call that has failed lets go when it has left it.
TEST(GpuRegionTalk, AfterAFailurePeersLeaveTheirCallsFirst) {
  Parties parties = parties_of(2);
  connect_all(parties);
  const auto made = parties[0]->regions->add(parties[0]->piece, 4096);
  ASSERT_TRUE(made.ok() && comes_true([&] { return parties[0]->has_opened(); }));
  std::vector<std::byte*> controls{parties[0]->memory->control(), parties[1]->memory->control()};
  ASSERT_TRUE(
      parties[1]->memory->connect(direct_links(parties[1]->memory->shape(), 1, controls)).ok());
  std::atomic_ref visits(parties[1]->memory->world()->visits[1]);
  visits = 1;
  std::atomic<bool> gone = false;
  std::thread owner([&] {
    EXPECT_TRUE(parties[0]->regions->remove(*made, [] { return true; }).ok());
    gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(gone);
  EXPECT_EQ(parties[1]->device.imports(), 1);
  visits = 2;
  owner.join();
  EXPECT_TRUE(comes_true([&] { return parties[1]->device.imports() == 0; }));
}

TEST(GpuRegionTalk, WhatIsInUseIsNotGivenBack) {
  Parties parties = parties_of(2);
  connect_all(parties);
  const auto made = parties[0]->regions->add(parties[0]->piece, 4096);
  ASSERT_TRUE(made.ok() && comes_true([&] { return parties[0]->has_opened(); }));
  std::vector<std::byte*> controls{parties[0]->memory->control(), parties[1]->memory->control()};
  ASSERT_TRUE(
      parties[0]->memory->connect(direct_links(parties[0]->memory->shape(), 0, controls)).ok());
  std::atomic_ref visits(parties[0]->memory->world()->visits[0]);
  visits = 3;
  const Status status = parties[0]->regions->remove(*made, well);
  EXPECT_EQ(status.code(), StatusCode::timeout);
  EXPECT_THAT(status.message(), HasSubstr("must not be given back"));
  EXPECT_EQ(parties[1]->device.imports(), 1);
  visits = 4;
  EXPECT_TRUE(parties[0]->regions->remove_all(well).ok());
  EXPECT_TRUE(comes_true([&] { return parties[1]->device.imports() == 0; }));
}

// ---- What a rank notes of its own ----

OwnRegions own_of(std::uint32_t end = 5) { return OwnRegions(2, end, {1, 2}); }
std::byte* at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

TEST(GpuOwnRegions, OpensWhenAllHaveIt) {
  OwnRegions own = own_of();
  const Allocation memory{at(0x1000), 256, 1};
  const auto added = own.add(at(0x1010), 16, memory);
  ASSERT_TRUE(added.ok() && added->is_new);
  EXPECT_EQ(own.find(at(0x1014), 12), (MemoryRef{2, 1, 0x14}));
  EXPECT_EQ(own.find(at(0x1014), 13), MemoryRef());
  EXPECT_EQ(own.find(at(0x100f), 2), MemoryRef());
  EXPECT_FALSE(own.heard_opened(1, 2, 2));
  EXPECT_FALSE(own.heard_opened(1, 7, 1));
  EXPECT_FALSE(own.heard_opened(1, 2, 1));
  EXPECT_FALSE(own.heard_opened(1, 2, 1));
  EXPECT_TRUE(own.heard_opened(2, 2, 1));
  EXPECT_EQ(own.at(2).phase, OwnRegions::Region::Phase::open);
}

TEST(GpuOwnRegions, ANumberIsUsedAgainWhenAllHaveLetGo) {
  OwnRegions own = own_of(3);
  const auto first = own.add(at(0x1000), 16, {at(0x1000), 256, 1});
  ASSERT_TRUE(first.ok());
  const Allocation other{at(0x1000), 256, 2};
  EXPECT_EQ(own.add(at(0x1000), 16, other).status().code(), StatusCode::unsupported);
  const auto closing = own.remove(first->registration);
  ASSERT_TRUE(closing.ok() && *closing == 2U);
  own.heard_closed(1, 2, 1);  // nobody was asked
  own.told_to_close(2);
  own.heard_closed(1, 2, 1);
  EXPECT_EQ(own.add(at(0x1000), 16, other).status().code(), StatusCode::unsupported);
  own.heard_closed(2, 2, 1);
  const auto second = own.add(at(0x1000), 16, other);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(own.find(at(0x1000), 16), (MemoryRef{2, 2, 0}));
  own.lost(1);
  own.lost(2);
  ASSERT_TRUE(own.remove(second->registration).ok());
  own.told_to_close(2);
  EXPECT_EQ(own.at(2).phase, OwnRegions::Region::Phase::unused);
}

TEST(GpuOwnRegions, TheLatestRegistrationCounts) {
  OwnRegions own = own_of();
  ASSERT_TRUE(own.add(at(0x1000), 16, {at(0x1000), 256, 1}).ok());
  const auto second = own.add(at(0x1000), 16, {at(0x1000), 256, 2});
  ASSERT_TRUE(second.ok() && second->is_new);
  EXPECT_EQ(own.find(at(0x1000), 16).region, second->region);
}

TEST(GpuOwnRegions, WhatOnePeerRefusesIsNotOpened) {
  OwnRegions own = own_of();
  ASSERT_TRUE(own.add(at(0x1000), 16, {at(0x1000), 256, 1}).ok());
  EXPECT_TRUE(own.heard_refused(1, 2, 1));
  EXPECT_FALSE(own.heard_refused(2, 2, 1));
  EXPECT_FALSE(own.heard_opened(2, 2, 1));
  EXPECT_FALSE(own.heard_opened(1, 2, 1));
}

}  // namespace
}  // namespace tutti::runtime::gpu
