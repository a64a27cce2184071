// Memory in parts that ranks register: who asks whom for which part, what is believed of what
// comes, and what is left when something is wrong or somebody is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gpu_world/parties.hpp"
#include "transport/bootstrap/local_socket.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPage = 4096;

TEST(GpuRegionParts, AreMappedByAllPeersAndLetGo) {
  for (const bool by_handle : {false, true}) {
    Parties parties = parties_of(3);
    connect_all(parties);
    const std::size_t files = open_files();
    std::byte* const memory =
        parties[0]->device.allocate_parts({kPage, 3 * kPage, kPage}, by_handle);
    for (int time = 0; time < 3; ++time) {
      const auto made = parties[0]->regions->add(memory + 8, 4 * kPage);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      ASSERT_TRUE(comes_true([&] { return parties[0]->regions->is_open(memory + 8, 4 * kPage); }));
      EXPECT_EQ(parties[1]->device.imports(), 1);
      EXPECT_EQ(parties[2]->device.imports(), 1);
      EXPECT_EQ(parties[0]->device.shared_parts(), 1);
      EXPECT_EQ(open_files(), files + 3) << "the parts themselves";
      EXPECT_TRUE(parties[0]->regions->remove(*made, well).ok());
      EXPECT_TRUE(comes_true(
          [&] { return parties[1]->device.imports() + parties[2]->device.imports() == 0; }));
      EXPECT_EQ(parties[0]->device.shared_parts(), 0);
    }
    parties[0]->device.deallocate_parts(memory);
    EXPECT_EQ(open_files(), files);
  }
}

// A region is what a registration touches: those of the same parts share it.
TEST(GpuRegionParts, RegistrationsShareARegionWhereTheyTouchTheSame) {
  Parties parties = parties_of(2);
  connect_all(parties);
  Regions& own = *parties[0]->regions;
  std::byte* const memory = parties[0]->device.allocate_parts({kPage, kPage, kPage});
  const auto first = own.add(memory + kPage, kPage);
  const auto same = own.add(memory + kPage + 100, 100);
  ASSERT_TRUE(first.ok() && same.ok());
  ASSERT_TRUE(comes_true([&] { return own.is_open(memory + kPage, kPage); }));
  EXPECT_EQ(own.find(memory + kPage + 100, 100).region, own.find(memory + kPage, kPage).region);
  EXPECT_EQ(own.find(memory + kPage + 100, 100).offset, 100U);
  EXPECT_EQ(parties[0]->device.shared_parts(), 1);
  const auto wider = own.add(memory, 2 * kPage);
  ASSERT_TRUE(wider.ok());
  EXPECT_EQ(own.find(memory + kPage - 1, 2).offset, kPage - 1);
  ASSERT_TRUE(comes_true([&] { return parties[1]->device.imports() == 2; }));
  for (const auto registration : {*first, *same, *wider})
    EXPECT_TRUE(own.remove(registration, well).ok());
  EXPECT_TRUE(comes_true([&] { return parties[1]->device.imports() == 0; }));
  parties[0]->device.deallocate_parts(memory);
}

TEST(GpuRegionParts, ManyAtOnceComeOneAfterTheOther) {
  Parties parties = parties_of(3);
  connect_all(parties);
  const std::size_t files = open_files();
  std::vector<std::pair<Party*, std::byte*>> pieces;
  for (int i = 0; i < 30; ++i)
    for (const auto& party : parties)
      pieces.emplace_back(party.get(), party->device.allocate_parts({kPage, kPage, 2 * kPage}));
  for (const auto& [party, memory] : pieces)
    ASSERT_TRUE(party->regions->add(memory, 4 * kPage).ok());
  for (const auto& [party, memory] : pieces)
    EXPECT_TRUE(comes_true([&, p = party, m = memory] { return p->regions->is_open(m, 1); }));
  for (const auto& party : parties) EXPECT_EQ(party->device.imports(), 60);
  for (const auto& party : parties) EXPECT_TRUE(party->regions->remove_all(well).ok());
  for (const auto& [party, memory] : pieces) {
    HostDevice& device = party->device;
    EXPECT_TRUE(comes_true([&] { return device.imports() + device.shared_parts() == 0; }));
    device.deallocate_parts(memory);
  }
  EXPECT_EQ(open_files(), files);
}

// While parts are under way they are deregistered already, and registered once more.
TEST(GpuRegionParts, MayBeLetGoBeforeTheyHaveCome) {
  Parties parties = parties_of(3);
  connect_all(parties);
  const std::size_t files = open_files();
  std::byte* const memory = parties[0]->device.allocate_parts(std::vector(40, kPage));
  for (int time = 0; time < 100; ++time) {
    const auto made = parties[0]->regions->add(memory, 40 * kPage);
    ASSERT_TRUE(made.ok());
    const auto other = parties[0]->regions->add(memory + 10 * kPage, kPage);
    ASSERT_TRUE(other.ok());
    for (int i = 0; i < time; ++i) std::this_thread::yield();
    ASSERT_TRUE(parties[0]->regions->remove(*made, well).ok());
    EXPECT_TRUE(
        comes_true([&] { return parties[0]->regions->is_open(memory + 10 * kPage, kPage); }));
    ASSERT_TRUE(parties[0]->regions->remove(*other, well).ok());
    EXPECT_TRUE(comes_true(
        [&] { return parties[1]->device.imports() + parties[2]->device.imports() == 0; }));
  }
  EXPECT_EQ(parties[0]->device.shared_parts(), 0);
  parties[0]->device.deallocate_parts(memory);
  EXPECT_EQ(open_files(), files);
}

// ---- What cannot be had ----

TEST(GpuRegionParts, WhatTheOwnerCannotGiveGoesThroughSlots) {
  Parties parties = parties_of(3);
  connect_all(parties);
  std::byte* const memory = parties[0]->device.allocate_parts({kPage, kPage});
  parties[0]->device.fail_next_key();
  const auto made = parties[0]->regions->add(memory, 2 * kPage);
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(parties[0]->wait_for_news(), HasSubstr("rank 0: no key, as a test wants it"));
  EXPECT_FALSE(parties[0]->regions->is_open(memory, kPage));
  EXPECT_TRUE(parties[0]->regions->remove(*made, well).ok());
  EXPECT_TRUE(
      comes_true([&] { return parties[1]->device.imports() + parties[2]->device.imports() == 0; }));
  const auto again = parties[0]->regions->add(memory, 2 * kPage);
  EXPECT_TRUE(again.ok());
  EXPECT_TRUE(comes_true([&] { return parties[0]->regions->is_open(memory, kPage); }));
  EXPECT_TRUE(parties[0]->regions->remove_all(well).ok());
  parties[0]->device.deallocate_parts(memory);
}

TEST(GpuRegionParts, WhatAPeerCannotMapGoesThroughSlots) {
  Parties parties = parties_of(3);
  connect_all(parties);
  parties[1]->device.set_importing(false);
  std::byte* const memory = parties[0]->device.allocate_parts({kPage, kPage});
  ASSERT_TRUE(parties[0]->regions->add(memory, 2 * kPage).ok());
  EXPECT_THAT(parties[0]->wait_for_news(),
              HasSubstr("rank 1: threads of a processor (device 2) cannot load and store"));
  EXPECT_TRUE(comes_true([&] { return parties[1]->device.imports() == 0; }));
  EXPECT_FALSE(parties[0]->regions->is_open(memory, kPage));
  EXPECT_TRUE(parties[0]->regions->remove_all(well).ok());
  EXPECT_TRUE(comes_true([&] { return parties[2]->device.imports() == 0; }));
  parties[0]->device.deallocate_parts(memory);
}

// ---- Who is not what he should be ----

// Speaks for a rank by hand.
class Puppet {
 public:
  // Rank 1 of two, of which the other one is as it should be.
  Puppet() : party_(0) {
    const RegionDoor door = *make_region_door();
    const Status met = party_.regions->connect(*party_.memory, 0, {{1, door, false}},
                                               [this] { return is_idle_.load(); });
    EXPECT_TRUE(met.ok());
    files_ = open_files();
    line_.take(*transport::connect_to_name(party_.regions->door().name.data()));
    RegionNews hello = news(RegionWord::hello);
    hello.secret = party_.regions->door().secret;
    line_.say(hello);
  }

  // Whether the rank's device is.
  void set_idle(bool idle) { is_idle_ = idle; }
  Party& party() { return party_; }
  RegionLine& line() { return line_; }
  std::size_t files() const { return files_; }
  static RegionNews news(RegionWord word, std::uint32_t part = 0) {
    RegionNews made;
    made.word = word;
    made.from = 1;
    made.region = kRegionCount;
    made.generation = 7;
    made.part = part;
    return made;
  }
  HeardNews hear() {
    std::optional<HeardNews> heard;
    EXPECT_TRUE(comes_true([&] { return (heard = line_.hear()) || line_.is_lost(); }));
    return heard ? *std::move(heard) : HeardNews();
  }
  // Two parts, and what is said to that.
  void offer(std::size_t bytes = 2 * kPage) {
    RegionNews open = news(RegionWord::open, 2);
    open.bytes = bytes;
    line_.say(open);
    const HeardNews answer = hear();
    EXPECT_EQ(answer.news.word, RegionWord::want);
    EXPECT_EQ(answer.news.part, 0U);
  }
  static base::Descriptor file(std::size_t bytes = kPage) {
    base::Descriptor made(::memfd_create("part", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(made.number(), static_cast<off_t>(bytes)), 0);
    return made;
  }
  void give(std::uint32_t part, std::size_t bytes = kPage, PartKind kind = PartKind::descriptor,
            base::Descriptor descriptor = file()) {
    RegionNews given = news(RegionWord::part, part);
    given.kind = kind;
    given.bytes = bytes;
    line_.say(given, std::move(descriptor));
  }
  void expect_refused(const char* why) {
    const HeardNews answer = hear();
    EXPECT_EQ(answer.news.word, RegionWord::refused);
    EXPECT_THAT(answer.news.why.data(), HasSubstr(why));
    EXPECT_TRUE(comes_true([&] { return party_.device.imports() == 0; }));
  }

 private:
  std::atomic<bool> is_idle_ = true;
  Party party_;
  RegionLine line_;
  std::size_t files_ = 0;
};

TEST(GpuRegionParts, APuppetCanDoItRight) {
  Puppet puppet;
  puppet.offer();
  puppet.give(0);
  EXPECT_EQ(puppet.hear().news.part, 1U);
  puppet.give(1);
  EXPECT_EQ(puppet.hear().news.word, RegionWord::opened);
  EXPECT_EQ(puppet.party().device.imports(), 1);
  puppet.line().say(Puppet::news(RegionWord::close));
  EXPECT_EQ(puppet.hear().news.word, RegionWord::closed);
  EXPECT_TRUE(comes_true([&] { return puppet.party().device.imports() == 0; }));
}

// What has to wait until the device is idle waits once, whatever else is said of it.
TEST(GpuRegionParts, WhatWaitsIsAskedForOnce) {
  Puppet puppet;
  puppet.set_idle(false);
  puppet.offer();
  puppet.give(0);
  EXPECT_EQ(puppet.hear().news.part, 1U);
  puppet.give(1);
  EXPECT_EQ(puppet.hear().news.word, RegionWord::opened);
  puppet.line().say(Puppet::news(RegionWord::close));
  EXPECT_EQ(puppet.hear().news.word, RegionWord::closed);
  EXPECT_EQ(puppet.party().device.imports(), 1) << "the device is busy";
  puppet.party().device.set_importing(false);
  RegionNews open = Puppet::news(RegionWord::open);
  open.handle = *puppet.party().device.export_memory(puppet.party().piece);
  puppet.line().say(open);
  puppet.line().say(open);
  const HeardNews again = puppet.hear();
  EXPECT_EQ(again.news.word, RegionWord::refused);
  EXPECT_THAT(again.news.why.data(), HasSubstr("is no number of a new region"));
  puppet.party().device.set_importing(true);
  puppet.set_idle(true);
  EXPECT_EQ(puppet.hear().news.word, RegionWord::opened);
  EXPECT_EQ(puppet.party().device.imports(), 1);
  puppet.line().say(Puppet::news(RegionWord::close));
  EXPECT_EQ(puppet.hear().news.word, RegionWord::closed);
}

TEST(GpuRegionParts, OffersThatCannotBeAreRefused) {
  Puppet puppet;
  const auto expect = [&](std::uint32_t region, std::uint32_t parts, std::uint64_t bytes,
                          const char* why) {
    RegionNews open = Puppet::news(RegionWord::open, parts);
    open.region = region;
    open.bytes = bytes;
    puppet.line().say(open);
    puppet.expect_refused(why);
  };
  expect(kRegionCount, kRegionPartsMax + 1, kRegionBytesMax, "there are no");
  expect(kRegionCount, 2, 1, "there are no 1 bytes in 2 parts");
  expect(kRegionCount, 2, kRegionBytesMax + 1, "there are no");
  expect(kRegionCount, 2, ~std::uint64_t{0}, "there are no");
  expect(kSharedRegionCount, 2, 2 * kPage, "is no number of a new region");
  expect(0, 2, 2 * kPage, "is no number of a new region");
}

TEST(GpuRegionParts, PartsThatAreNotAsWasSaidAreRefused) {
  Puppet puppet;
  const auto expect = [&](const char* why, std::size_t bytes, PartKind kind,
                          base::Descriptor descriptor) {
    puppet.offer();
    puppet.give(0, bytes, kind, std::move(descriptor));
    puppet.expect_refused(why);
  };
  expect("is too long", 3 * kPage, PartKind::descriptor, Puppet::file());
  expect("is too long", 0, PartKind::descriptor, Puppet::file());
  expect("is too long", ~std::size_t{0}, PartKind::descriptor, Puppet::file());
  expect("has not come", kPage, PartKind::descriptor, {});
  expect("has no key", kPage, PartKind::none, {});
  expect("has no key", kPage, static_cast<PartKind>(77), {});
  expect("that is no part", kPage, PartKind::descriptor, Puppet::file(2 * kPage));
  expect("that is no part", 2 * kPage, PartKind::descriptor, Puppet::file());
  puppet.offer(3 * kPage);
  puppet.give(0);
  EXPECT_EQ(puppet.hear().news.part, 1U);
  puppet.give(1);
  puppet.expect_refused("2 parts have 8192 of 12288 bytes");
}

// They are answers to nothing, and what was asked for may still come.
TEST(GpuRegionParts, WhatNobodyAskedForIsIgnored) {
  Puppet puppet;
  puppet.give(0);
  puppet.offer();
  puppet.give(1);
  puppet.give(7);
  RegionNews other = Puppet::news(RegionWord::part);
  other.generation = 8;
  other.kind = PartKind::descriptor;
  puppet.line().say(other, Puppet::file());
  other.generation = 7;
  other.region = kRegionCount + 1;
  puppet.line().say(other, Puppet::file());
  puppet.give(0);
  EXPECT_EQ(puppet.hear().news.part, 1U);
  puppet.give(0);
  puppet.give(1);
  EXPECT_EQ(puppet.hear().news.word, RegionWord::opened);
  EXPECT_EQ(puppet.party().device.imports(), 1);
}

TEST(GpuRegionParts, OthersThanTheFirstWaitForTheirTurn) {
  Puppet puppet;
  puppet.offer();
  RegionNews second = Puppet::news(RegionWord::open, 1);
  second.region = kRegionCount + 1;
  second.bytes = kPage;
  puppet.line().say(second);
  puppet.line().say(Puppet::news(RegionWord::no_part));  // of the first
  const HeardNews next = puppet.hear();
  EXPECT_EQ(next.news.word, RegionWord::want);
  EXPECT_EQ(next.news.region, kRegionCount + 1);
  EXPECT_TRUE(comes_true([&] { return puppet.party().device.imports() == 1; }))
      << "of the first nothing is left";
  second.word = RegionWord::close;
  puppet.line().say(second);
  EXPECT_EQ(puppet.hear().news.word, RegionWord::closed);
  EXPECT_TRUE(comes_true([&] { return puppet.party().device.imports() == 0; }));
  puppet.offer();
}

// Nothing of what was under way is left.
TEST(GpuRegionParts, APeerThatGoesWhileItGivesLeavesNothing) {
  Puppet puppet;
  puppet.offer();
  puppet.give(0);
  EXPECT_EQ(puppet.hear().news.part, 1U);
  puppet.line() = RegionLine();
  EXPECT_TRUE(comes_true([&] { return puppet.party().device.imports() == 0; }));
  EXPECT_TRUE(comes_true([&] { return open_files() <= puppet.files(); }));
}

TEST(GpuRegionParts, APeerThatGoesWhileItIsGivenLeavesNothing) {
  Puppet puppet;
  Party& owner = puppet.party();
  std::byte* const memory = owner.device.allocate_parts({kPage, kPage});
  const auto made = owner.regions->add(memory, 2 * kPage);
  ASSERT_TRUE(made.ok());
  RegionNews want = puppet.hear().news;
  ASSERT_EQ(want.word, RegionWord::open);
  EXPECT_EQ(want.part, 2U);
  want.word = RegionWord::want;
  want.part = 0;
  puppet.line().say(want);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is under way
  puppet.line() = RegionLine();
  EXPECT_TRUE(owner.regions->remove(*made, well).ok());
  EXPECT_EQ(owner.device.shared_parts(), 0);
  owner.device.deallocate_parts(memory);
  EXPECT_TRUE(comes_true([&] { return open_files() <= puppet.files(); }));
}

TEST(GpuRegionParts, OnlyWhatIsThereIsGiven) {
  Puppet puppet;
  Party& owner = puppet.party();
  std::byte* const memory = owner.device.allocate_parts({kPage, kPage});
  ASSERT_TRUE(owner.regions->add(memory, 2 * kPage).ok());
  const RegionNews offered = puppet.hear().news;
  const auto ask = [&](std::uint32_t region, std::uint32_t generation, std::uint32_t part) {
    RegionNews want = offered;
    want.word = RegionWord::want;
    want.region = region;
    want.generation = generation;
    want.part = part;
    puppet.line().say(want);
    return puppet.hear();
  };
  const auto [region, generation] = std::pair(offered.region, offered.generation);
  EXPECT_EQ(ask(region, generation, 2).news.word, RegionWord::no_part);
  EXPECT_EQ(ask(region, generation, ~0U).news.word, RegionWord::no_part);
  EXPECT_EQ(ask(region, generation + 1, 0).news.word, RegionWord::no_part);
  EXPECT_EQ(ask(region + 1, generation, 0).news.word, RegionWord::no_part);
  EXPECT_EQ(ask(0, 0, 0).news.word, RegionWord::no_part);
  const HeardNews part = ask(region, generation, 1);
  EXPECT_EQ(part.news.word, RegionWord::part);
  EXPECT_EQ(part.news.bytes, kPage);
  EXPECT_TRUE(part.descriptor.open());
  owner.device.deallocate_parts(memory);
}

// Who asks and asks and does not listen does not fill the owner's table of descriptors.
TEST(GpuRegionParts, WhoDoesNotListenGetsFewDescriptors) {
  Puppet puppet;
  Party& owner = puppet.party();
  std::byte* const memory = owner.device.allocate_parts({kPage});
  ASSERT_TRUE(owner.regions->add(memory, kPage).ok());
  RegionNews want = puppet.hear().news;
  want.word = RegionWord::want;
  want.part = 0;
  constexpr int kTimes = 4000;
  for (int time = 0; time < kTimes; ++time) {
    puppet.line().say(want);
    while (puppet.line().has_more()) puppet.line().flush();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(open_files(), puppet.files() + 2 + 16);
  int parts = 0;
  for (int time = 0; time < kTimes; ++time)
    parts += puppet.hear().news.word == RegionWord::part ? 1 : 0;
  EXPECT_GT(parts, 16);
  EXPECT_LT(parts, kTimes);
  owner.device.deallocate_parts(memory);
}

// ---- A line by itself ----

struct Ends {
  Ends() {
    int numbers[2] = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, numbers), 0);
    here.take(base::Descriptor(numbers[0]));
    there = base::Descriptor(numbers[1]);
  }
  // A message with so many descriptors.
  void send(const RegionNews& news, std::size_t count) const {
    iovec data = {const_cast<RegionNews*>(&news), sizeof news};
    std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
    msghdr header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      const int number = there.number();
      std::memcpy(CMSG_DATA(rights) + i * sizeof number, &number, sizeof number);
    }
    EXPECT_EQ(::sendmsg(there.number(), &header, 0), static_cast<ssize_t>(sizeof news));
  }

  RegionLine here;
  base::Descriptor there;
};

TEST(GpuRegionLine, TakesOneDescriptorWhereOneIsToCome) {
  const std::size_t files = open_files();
  for (const std::size_t count : {1U, 2U, 3U, 200U})
    for (const PartKind kind : {PartKind::none, PartKind::descriptor, PartKind::handle}) {
      Ends ends;
      RegionNews news;
      news.kind = kind;
      ends.send(news, count);
      const auto heard = ends.here.hear();
      const bool fits = count == 1 && kind == PartKind::descriptor;
      EXPECT_EQ(heard.has_value(), fits) << count;
      EXPECT_EQ(ends.here.is_lost(), !fits);
      if (heard) {
        EXPECT_TRUE(heard->descriptor.open());
      }
    }
  EXPECT_EQ(open_files(), files);
}

TEST(GpuRegionLine, EndsWithWhoNeverListens) {
  Ends ends;
  int said = 0;
  for (; !ends.here.is_lost() && said < 100000; ++said) ends.here.say({});
  EXPECT_LT(said, 20000);
  EXPECT_TRUE(ends.here.is_lost());
}

// Also where a socket takes them in pieces.
TEST(GpuRegionLine, BringsEachDescriptorWithItsMessage) {
  int numbers[2] = {};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, numbers), 0);
  const int small = 1;
  ::setsockopt(numbers[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  RegionLine from;
  RegionLine to;
  from.take(base::Descriptor(numbers[0]));
  to.take(base::Descriptor(numbers[1]));
  const auto size_of_file = [](std::uint32_t i) { return std::size_t{1000} + i; };
  for (std::uint32_t i = 0; i < 100; ++i) {
    RegionNews news;
    news.part = i;
    news.kind = i % 3 == 0 ? PartKind::none : PartKind::descriptor;
    base::Descriptor file(i % 3 == 0 ? -1 : ::memfd_create("one", MFD_CLOEXEC));
    if (file.open()) {
      ASSERT_EQ(::ftruncate(file.number(), static_cast<off_t>(size_of_file(i))), 0);
    }
    from.say(news, std::move(file));
  }
  EXPECT_GT(from.unsent_descriptors(), 0U);
  for (std::uint32_t i = 0; i < 100; ++i) {
    std::optional<HeardNews> heard;
    ASSERT_TRUE(comes_true([&] { return from.flush(), heard = to.hear(), heard.has_value(); }));
    EXPECT_EQ(heard->news.part, i);
    ASSERT_EQ(heard->descriptor.open(), i % 3 != 0);
    if (i % 3 == 0) continue;
    EXPECT_EQ(static_cast<std::size_t>(::lseek(heard->descriptor.number(), 0, SEEK_END)),
              size_of_file(i));
  }
}

}  // namespace
}  // namespace tutti::runtime::gpu
