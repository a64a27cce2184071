// net_plugin_test.cc: what only net plugins have: how libraries are found, what they say of
// themselves, connections that fail. What all transports share is in
// net_plugin_conformance_test.cc, what a peer says that is no Tutti in net_plugin_puppet_test.cc.
#include "transport/net_plugin/transport.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "transport/net_plugin/plugin.hpp"
#include "transport/net_plugin/wire.hpp"
#include "unit/transport/net_plugin_worlds.hpp"

namespace tutti::transport {
namespace {

using conformance::failure_of;
using conformance::make_net_plugin_world;
using conformance::ranks;
using conformance::set_net_faults;
using net_plugin::Device;
using net_plugin::Handle;
using net_plugin::open_device;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::string& names) {
  const auto device = open_device({.names = names}, 1, 0);
  EXPECT_FALSE(device.ok()) << names;
  EXPECT_EQ(device.status().code(), StatusCode::unsupported);
  return device.status().message();
}

int version_of(const std::string& names) {
  const auto device = open_device({.names = names}, 1, 0);
  EXPECT_TRUE(device.ok()) << device.status().to_string();
  return device.ok() ? (*device)->version() : 0;
}

// What a library that is open counts.
int counted_by(const std::string& library, const char* counter) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return -1;
  const auto count = reinterpret_cast<int (*)()>(::dlsym(handle, counter));
  const int counted = count == nullptr ? -1 : count();
  ::dlclose(handle);
  return counted;
}
int open_objects(const std::string& library) { return counted_by(library, "kit_net_open_objects"); }

// ---- Finding a library ----

TEST(NetPlugin, TheNewestVersionOfALibraryIsTaken) { EXPECT_EQ(version_of("kit"), 11); }

TEST(NetPlugin, EveryVersionIsRead) {
  EXPECT_EQ(version_of("kit_v8"), 8);
  EXPECT_EQ(version_of("kit_v9"), 9);
  EXPECT_EQ(version_of("kit_v10"), 10);
  EXPECT_EQ(version_of("kit_v11"), 11);
}

TEST(NetPlugin, ANameIsTriedAsItIsAndThenAsPeopleAbbreviateIt) {
  EXPECT_EQ(version_of("libnccl-net-kit_v9.so"), 9);
  EXPECT_EQ(version_of("kit_v9"), 9);
}

TEST(NetPlugin, TheFirstOfAListThatCanServeIsTaken) {
  EXPECT_EQ(version_of("kit_v10,kit_v8"), 10);
  EXPECT_EQ(version_of(",no_such,kit_nothing,,kit_deviceless,kit_odd,kit_v8,kit_v9"), 8);
}

TEST(NetPlugin, WhatWasTriedAndWhyItWillNotDoIsSaid) {
  const std::string error = error_of("no_such,kit_nothing,kit_deviceless,kit_odd,kit_hole");
  EXPECT_THAT(error, HasSubstr("NCCL_NET_PLUGIN"));
  EXPECT_THAT(error, HasSubstr("'no_such' cannot be opened (no_such: "));
  EXPECT_THAT(error, HasSubstr("; libnccl-net-no_such.so: "));
  EXPECT_THAT(error, HasSubstr("'kit_nothing' is a library without any of ncclNetPlugin_v11"));
  EXPECT_THAT(error, HasSubstr("'kit_deviceless' kit: has 0 devices"));
  EXPECT_THAT(error, HasSubstr("'kit_odd' a plugin without a name: its device 2 can have no"));
  EXPECT_THAT(error, HasSubstr("'kit_hole' kit: leaves out functions"));
}

TEST(NetPlugin, WithoutANameTheDefaultIsTried) {
  if (void* const found = ::dlopen("libnccl-net.so", RTLD_NOW); found != nullptr) {
    ::dlclose(found);
    GTEST_SKIP() << "this machine has a libnccl-net.so";
  }
  EXPECT_THAT(error_of(""), AllOf(HasSubstr("'libnccl-net.so'"), Not(HasSubstr("libnccl-net-"))));
}

TEST(NetPlugin, NoneIsNone) { EXPECT_THAT(error_of("none"), HasSubstr("NCCL_NET_PLUGIN=none")); }

// A library of version 11 has something for each communicator, and gives it back.
TEST(NetPlugin, WhatWasOpenedIsClosed) {
  for (const char* plugin : {"kit_v8", "kit_v11"}) {
    {
      conformance::World world = make_net_plugin_world(ranks(3), plugin);
      for (const auto& transport : world.transports) ASSERT_NE(transport, nullptr);
      ASSERT_TRUE(world.transports[0]->endpoint(1, 0).ok());
      for (int i = 0; i < 50; ++i)
        for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
      // Four who still listen, two connections with two ends each, what these have registered, and
      // in version 11 a context for each rank.
      EXPECT_EQ(open_objects(std::string("libnccl-net-") + plugin + ".so"),
                4 + 4 + 4 + (plugin == std::string("kit_v11") ? 3 : 0));
    }
    EXPECT_EQ(open_objects(std::string("libnccl-net-") + plugin + ".so"), 0) << plugin;
  }
}

TEST(NetPlugin, OnlyADeviceThatTakesHostMemoryIsUsed) {
  // The first device of the plugin does not, and it refuses to listen there.
  for (int turn = 0; turn < 3; ++turn) {
    auto device = open_device({.names = "kit_v9"}, 1, turn);
    ASSERT_TRUE(device.ok());
    EXPECT_TRUE((*device)->properties().host_memory);
    Handle handle;
    void* listener = nullptr;
    ASSERT_TRUE((*device)->listen(handle, listener).ok());
    (*device)->close_listener(listener);
  }
}

TEST(NetPlugin, DevicesAreTakenInTurn) {
  for (const char* plugin : {"kit_v8", "kit_v11"})
    for (int turn = 0; turn < 5; ++turn)
      EXPECT_EQ((*open_device({.names = plugin}, 1, turn))->properties().speed_mbps,
                10'001 + turn % 2);
}

// Of two communicators of a process one may begin while the other ends.
TEST(NetPlugin, APluginBeginsAndEndsOneAtATime) {
  set_net_faults({});
  conformance::in_threads(4, [](Rank rank) {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(open_device({.names = "kit_v11"}, 1, rank).ok());
  });
  EXPECT_EQ(counted_by("libnccl-net-kit_v11.so", "kit_net_meetings"), 0);
}

// ---- Making a transport ----

std::vector<Status> statuses_of(int size, const std::function<Result<std::unique_ptr<Transport>>(
                                              TransportOptions, const ExchangeFunction&)>& make) {
  set_net_faults({});
  std::vector<Status> statuses(static_cast<std::size_t>(size));
  conformance::ThreadExchange exchange(size);
  conformance::in_threads(size, [&](Rank rank) {
    TransportOptions options = ranks(size);
    options.rank = rank;
    statuses[static_cast<std::size_t>(rank)] = make(options, exchange.of(rank)).status();
  });
  return statuses;
}

TEST(NetPlugin, ARankWithoutAPluginTellsAll) {
  const auto statuses = statuses_of(3, [](const auto& options, const auto& exchange) {
    return make_net_plugin_transport(options, {.names = options.rank == 1 ? "no_such" : "kit_v8"},
                                     exchange);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_THAT(status.message(), HasSubstr("libnccl-net-no_such.so"));
  }
  EXPECT_THAT(statuses[0].message(), HasSubstr("rank 1"));
}

TEST(NetPlugin, DifferentPluginsAreAMismatch) {
  const auto statuses = statuses_of(2, [](const auto& options, const auto& exchange) {
    return make_net_plugin_transport(options, {.names = options.rank == 1 ? "kit_v9" : "kit_v8"},
                                     exchange);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::mismatch);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("kit v8"), HasSubstr("kit v9")));
  }
}

TEST(NetPlugin, SettingsThatDifferAreNamed) {
  const std::pair<const char*, std::function<void(TransportOptions&)>> others[] = {
      {"8192", [](TransportOptions& options) { options.frame_bytes_max = 8192; }},
      {"5 frames of 4096", [](TransportOptions& options) { options.queue_bytes = 5 * 4096; }},
      {"2 against 1 channels", [](TransportOptions& options) { options.channel_count = 2; }},
      {"context 8 against 7", [](TransportOptions& options) { options.context = 8; }},
  };
  for (const auto& other : others) {
    const char* const what = other.first;
    const auto statuses = statuses_of(2, [&](TransportOptions options, const auto& exchange) {
      if (options.rank == 1) other.second(options);
      return make_net_plugin_transport(options, {.names = "kit_v10"}, exchange);
    });
    for (const Status& status : statuses) EXPECT_EQ(status.code(), StatusCode::mismatch) << what;
    EXPECT_THAT(statuses[0].message(), HasSubstr(what));
  }
}

TEST(NetPlugin, WhatADeviceCannotCarryIsSaid) {
  const auto refusal = [](std::size_t frame_bytes_max, int channels) {
    TransportOptions options = ranks(2);
    options.frame_bytes_max = frame_bytes_max;
    options.channel_count = channels;
    const auto alone = [](const std::string& mine) -> Result<std::vector<std::string>> {
      return std::vector<std::string>(2, mine);
    };
    return make_net_plugin_transport(options, {.names = "kit_v9"}, alone).status();
  };
  constexpr std::size_t kGibibyte = std::size_t{1} << 30;
  EXPECT_THAT(refusal(kGibibyte - 1, 1).message(),
              HasSubstr("the net plugin kit carries at most 1073741824 bytes"));
  EXPECT_EQ(refusal(kGibibyte, 1).code(), StatusCode::invalid_argument);
  EXPECT_THAT(refusal(4096, 40'000).message(), HasSubstr("65536 connections, and 2 ranks need"));
}

// Cards come from others: one that listens for fewer than there are is not looked up in.
TEST(NetPlugin, ACardMustListenForEverybody) {
  for (const std::size_t handles : {0U, 1U, 3U}) {
    const auto exchange = [&](const std::string& mine) -> Result<std::vector<std::string>> {
      net_plugin::Card card = net_plugin::parse_card(mine).value();
      card.handles.resize(handles);
      return std::vector<std::string>{mine, net_plugin::encode_card(card)};
    };
    set_net_faults({});
    const Status status =
        make_net_plugin_transport(ranks(2), {.names = "kit_v11"}, exchange).status();
    EXPECT_EQ(status, Status(StatusCode::corrupt_data, "rank 1 does not listen for everybody"));
  }
}

TEST(NetPlugin, MoreRanksThanACardCanListenForAreRefused) {
  TransportOptions options = ranks(100);
  options.channel_count = 6;
  std::string card;
  const auto alone = [&](const std::string& mine) -> Result<std::vector<std::string>> {
    card = mine;
    return std::vector<std::string>(100, mine);
  };
  const Status status = make_net_plugin_transport(options, {.names = "kit_v8"}, alone).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_FALSE(net_plugin::parse_card(card).ok());
}

TEST(NetPlugin, DamagedCardsAreNotRead) {
  net_plugin::Card card;
  card.plugin = "kit";
  card.nonce = std::string(kNonceBytes, 'n');
  card.handles.resize(2);
  card.handles[1].bytes.fill(std::byte{5});
  const std::string whole = net_plugin::encode_card(card);
  const auto read = net_plugin::parse_card(whole);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->handles[0].bytes, card.handles[0].bytes);
  EXPECT_EQ(read->handles[1].bytes, card.handles[1].bytes);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(net_plugin::parse_card(whole.substr(0, bytes)).ok()) << bytes;
  EXPECT_FALSE(net_plugin::parse_card(whole + "x").ok());
  card.status = Status(StatusCode::system_error, "no luck");
  EXPECT_EQ(net_plugin::parse_card(net_plugin::encode_card(card)).status(), card.status);
}

// ---- Connections that fail ----

TEST(NetPlugin, AnErrorOfThePluginNamesTheRank) {
  for (const char* plugin : {"kit_v8", "kit_v11"}) {
    conformance::World world = make_net_plugin_world(ranks(2), plugin, {.fail_after = 20});
    Endpoint* endpoint = world.transports[0]->endpoint(1, 0).value();
    Endpoint* other = world.transports[1]->endpoint(0, 0).value();
    Status status;
    std::uint32_t sent = 0;
    for (int i = 0; i < 20000 && status.ok(); ++i) {
      if (endpoint->reserve(8).data() != nullptr) endpoint->commit(sent++, 8);
      Frame frame;
      while (other->peek(frame)) other->release();
      static_cast<void>(world.transports[1]->poll());
      status = world.transports[0]->poll().status();
      world.transports[0]->sleep(100);
    }
    EXPECT_EQ(status.code(), StatusCode::peer_lost) << status.to_string();
    EXPECT_EQ(status.culprit(), 1);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1"), HasSubstr("ncclSystemError")));
    EXPECT_EQ(endpoint->status(), status);
    EXPECT_EQ(endpoint->reserve(8).data(), nullptr);
    Frame frame;
    EXPECT_FALSE(endpoint->peek(frame));
  }
  set_net_faults({});
}

TEST(NetPlugin, ARankThatLeftIsAnErrorOnlyToThoseWhoStillNeedIt) {
  conformance::World world = make_net_plugin_world(ranks(2), "kit_v11");
  Endpoint* endpoint = world.transports[0]->endpoint(1, 0).value();
  ASSERT_TRUE(world.transports[1]->endpoint(0, 0).ok());
  world.transports[1].reset();
  for (int i = 0; i < 300; ++i) {
    world.transports[0]->sleep(100);
    ASSERT_TRUE(world.transports[0]->poll().ok());
  }
  EXPECT_EQ(endpoint->reserve(8).data(), nullptr);
  EXPECT_EQ(endpoint->status().code(), StatusCode::peer_lost);
  EXPECT_THAT(endpoint->status().message(), HasSubstr("rank 1 has left"));
  EXPECT_EQ(endpoint->status().culprit(), 1);
  EXPECT_FALSE(world.transports[0]->poll().ok());
}

// What is said to a rank that left goes nowhere, as long as there is something of it to read.
TEST(NetPlugin, AnswersToARankThatLeftAreDropped) {
  conformance::World world = make_net_plugin_world(ranks(2), "kit_v10");
  Endpoint* from = world.transports[1]->endpoint(0, 0).value();
  Endpoint* to = world.transports[0]->endpoint(1, 0).value();
  Frame frame;
  while (from->reserve(8).data() == nullptr || !world.transports[1]->flushed())
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
  from->commit(1, 8);
  while (!world.transports[1]->flushed()) ASSERT_TRUE(world.transports[1]->poll().ok());
  world.transports[1].reset();
  for (int i = 0; i < 300; ++i) {
    world.transports[0]->sleep(100);
    ASSERT_TRUE(world.transports[0]->poll().ok());
  }
  for (std::uint32_t number = 0; number < 100; ++number) {
    ASSERT_EQ(to->reserve(4096).size(), 4096U);
    to->commit(number, 4096);
  }
  EXPECT_TRUE(world.transports[0]->flushed());
  ASSERT_TRUE(to->peek(frame));
  EXPECT_EQ(frame.tag, 1U);
  to->release();
  EXPECT_TRUE(world.transports[0]->poll().ok());
  EXPECT_EQ(to->reserve(8).data(), nullptr);
}

// Rank 2 is gone; rank 1 notices and gives up, and rank 0, which knows rank 1 only, hears who it
// was.
TEST(NetPlugin, TheNewsOfALostRankTravelsOn) {
  conformance::World world = make_net_plugin_world(ranks(3), "kit_v11");
  ASSERT_TRUE(world.transports[0]->endpoint(1, 0).ok());
  ASSERT_TRUE(world.transports[1]->endpoint(0, 0).ok());
  for (int i = 0; i < 50; ++i)
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
  world.transports[2].reset();  // nobody listens for others there from here on
  Endpoint* lost = world.transports[1]->endpoint(2, 0).value();
  EXPECT_THAT(failure_of(*world.transports[1]).message(), HasSubstr("rank 2 cannot be reached"));
  EXPECT_FALSE(lost->status().ok());
  EXPECT_TRUE(world.transports[0]->poll().ok());
  world.transports[1].reset();
  EXPECT_EQ(failure_of(*world.transports[0]),
            Status(StatusCode::peer_lost, "rank 2 was lost, says rank 1", 2));
}

// Rank 0 tells on a channel of its own why it leaves; rank 1 has never heard of it there.
TEST(NetPlugin, WhyAPeerLeftCountsForMoreThanHowItsConnectionsEnded) {
  TransportOptions options = ranks(2);
  options.channel_count = 2;
  conformance::World world = make_net_plugin_world(options, "kit_v9");
  world.transports[0]->give_up(Status(StatusCode::mismatch, "other calls"));
  ASSERT_TRUE(world.transports[0]->endpoint(1, 1).ok());
  world.transports[0].reset();
  ASSERT_TRUE(world.transports[1]->endpoint(0, 0).ok());
  EXPECT_EQ(failure_of(*world.transports[1]),
            Status(StatusCode::mismatch, "rank 0 failed: mismatch"));
}

TEST(NetPlugin, AfterALossTheOtherConnectionsGoOn) {
  conformance::World world = make_net_plugin_world(ranks(3), "kit_v11");
  world.transports[2].reset();
  ASSERT_TRUE(world.transports[1]->endpoint(2, 0).ok());
  ASSERT_FALSE(failure_of(*world.transports[1]).ok());
  Endpoint* to = world.transports[1]->endpoint(0, 0).value();
  EXPECT_EQ(world.transports[0]->caller(0), -1);
  for (int i = 0; i < 2000 && to->reserve(3).data() == nullptr; ++i) {
    static_cast<void>(world.transports[1]->poll());
    ASSERT_TRUE(world.transports[0]->poll().ok());
  }
  to->commit(7, 3);
  for (int i = 0; i < 2000 && world.transports[0]->caller(0) < 0; ++i) {
    static_cast<void>(world.transports[1]->poll());
    ASSERT_TRUE(world.transports[0]->poll().ok());
  }
  ASSERT_EQ(world.transports[0]->caller(0), 1);
  EXPECT_EQ(world.transports[0]->caller(0, 1), -1);
  Endpoint* from = world.transports[0]->endpoint(1, 0).value();
  EXPECT_EQ(world.transports[0]->caller(0), -1);
  Frame frame;
  for (int i = 0; i < 2000 && !from->peek(frame); ++i) {
    static_cast<void>(world.transports[1]->poll());
    ASSERT_TRUE(world.transports[0]->poll().ok());
  }
  EXPECT_EQ(frame.tag, 7U);
}

// Both ranks keep sending and nobody reads: signals still get through, and then the frames.
TEST(NetPlugin, SignalsPassFullQueues) {
  conformance::World world =
      make_net_plugin_world(ranks(2), "kit_v11", {.null_every = 4, .bytes = 3000});
  std::array<Endpoint*, 2> ends{};
  for (Rank rank = 0; rank < 2; ++rank)
    ends[static_cast<std::size_t>(rank)] =
        world.transports[static_cast<std::size_t>(rank)]->endpoint(1 - rank, 0).value();
  std::array<std::uint32_t, 2> sent{};
  for (int idle = 0; idle < 200; ++idle) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (; ends[rank]->reserve(4096).data() != nullptr; idle = 0)
        ends[rank]->commit(sent[rank]++, 4096);
      ASSERT_TRUE(world.transports[rank]->poll().ok());
    }
  }
  EXPECT_EQ(sent[0], 4U);
  for (std::uint64_t value = 1; value <= 100; ++value) {
    ends[0]->signal(Signal::granted, value);
    for (int i = 0; i < 2000 && ends[1]->signalled(Signal::granted) < value; ++i)
      for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
    ASSERT_EQ(ends[1]->signalled(Signal::granted), value);
  }
  for (std::uint32_t received = 0; received < sent[0];) {
    Frame frame;
    for (const auto& transport : world.transports) ASSERT_TRUE(transport->poll().ok());
    while (ends[1]->peek(frame)) {
      ASSERT_EQ(frame.tag, received++);
      ends[1]->release();
    }
  }
  EXPECT_GE(world.transports[0]->memory_bytes(), 2 * ranks(2).queue_bytes);
  set_net_faults({});
}

}  // namespace
}  // namespace tutti::transport
