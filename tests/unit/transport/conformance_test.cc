// conformance_test.cc: the suite that every transport passes, and the table of transports.
#include "unit/transport/conformance.hpp"

#include <array>
#include <cstring>
#include <random>

#include "transport/checked/transport.hpp"
#include "transport/memory/transport.hpp"
#include "transport/shm/transport.hpp"
#include "transport/sim/transport.hpp"
#include "transport/tcp/transport.hpp"
#include "unit/transport/kit_worlds.hpp"
#include "unit/transport/stress_rank.hpp"

namespace tutti::transport::conformance {
namespace {

World make_memory(const TransportOptions& options) {
  World world;
  const std::shared_ptr<MemoryWorld> shared = MemoryWorld::make(options);
  for (Rank rank = 0; rank < options.size; ++rank)
    world.transports.push_back(make_memory_transport(shared, rank));
  return world;
}

World make_shm(const TransportOptions& options) {
  return make_by_exchange(options, make_shm_transport);
}

World make_tcp(const TransportOptions& options) {
  return make_by_exchange(options, make_tcp_transport);
}

World make_sim_world(const TransportOptions& options, int ranks_per_host) {
  SimOptions simulated;
  simulated.size = options.size;
  simulated.channel_count = options.channel_count;
  simulated.frame_bytes_max = options.frame_bytes_max;
  simulated.ranks_per_host = ranks_per_host;
  const auto shared = std::make_shared<SimWorld>(simulated);
  World world;
  for (Rank rank = 0; rank < options.size; ++rank)
    world.transports.push_back(make_sim_transport(shared, rank));
  world.advance = [shared] { shared->step(); };
  return world;
}

World make_sim(const TransportOptions& options) { return make_sim_world(options, 1); }
World make_sim_direct(const TransportOptions& options) { return make_sim_world(options, 4); }

// The same world with a checksum on every frame, and frames as long as before.
template <World (*make)(const TransportOptions&)>
World make_checked(const TransportOptions& options) {
  TransportOptions beneath = options;
  beneath.frame_bytes_max += kChecksumBytes;
  World world = make(beneath);
  for (auto& transport : world.transports)
    transport = make_checked_transport(std::move(transport), options.context);
  return world;
}

// One line for each transport.
const TransportCase kCases[] = {
    {.name = "memory", .make = make_memory, .threads = true},
    {.name = "shm", .make = make_shm, .threads = true},
    {.name = "tcp", .make = make_tcp, .threads = true},
    {.name = "sim", .make = make_sim, .threads = false},
    {.name = "sim_direct", .make = make_sim_direct, .threads = false},
    {.name = "memory_checked", .make = make_checked<make_memory>, .threads = true},
    {.name = "shm_checked", .make = make_checked<make_shm>, .threads = true},
    {.name = "tcp_checked", .make = make_checked<make_tcp>, .threads = true},
    {.name = "memory_counted", .make = make_counted<make_memory>, .threads = true},
    {.name = "shm_counted", .make = make_counted<make_shm>, .threads = true},
    {.name = "tcp_counted", .make = make_counted<make_tcp>, .threads = true},
    {.name = "throttled_memory", .make = make_throttled<make_memory>, .threads = true},
    {.name = "throttled_shm", .make = make_throttled<make_shm>, .threads = true},
    {.name = "throttled_tcp", .make = make_throttled<make_tcp>, .threads = true},
    {.name = "sim_checked", .make = make_checked<make_sim>, .threads = false},
};

INSTANTIATE_TEST_SUITE_P(All, TransportConformance, testing::ValuesIn(kCases),
                         [](const auto& shown) { return shown.param.name; });

TEST_P(TransportConformance, SaysWhoItIs) {
  make(3, 2, 1000);
  for (Rank rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(transport(rank).rank(), rank);
    EXPECT_EQ(transport(rank).size(), 3);
    EXPECT_EQ(transport(rank).channel_count(), 2);
    EXPECT_GE(transport(rank).frame_bytes_max(), 1000u);
    EXPECT_TRUE(GetParam().name.starts_with(transport(rank).traits().name));
  }
}

TEST_P(TransportConformance, FramesOfAllSizesArriveInOrder) {
  make(2);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  const std::size_t most = transport(0).frame_bytes_max();
  std::uint64_t number = 0;
  for (int round = 0; round < 60; ++round) {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{48}, std::size_t{49}, std::size_t{63},
          std::size_t{64}, std::size_t{1000}, most}) {
      number += 1;
      ASSERT_TRUE(send(out, 1, number, bytes));
      ASSERT_NO_FATAL_FAILURE(expect_frame(in, 1, number, bytes));
    }
  }
  Frame frame;
  EXPECT_FALSE(in.peek(frame));
}

TEST_P(TransportConformance, QueuedFramesArriveInOrder) {
  make(2);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::minstd_rand random(11);
  const auto bytes_of = [](std::uint64_t number) { return number % 3 == 0 ? 700 : number % 60; };
  while (received < 2000) {
    for (auto burst = random() % 100; burst > 0 && sent < 2000; --burst)
      if (try_send(out, 5, sent, bytes_of(sent))) sent += 1;
    poll_all();
    Frame frame;
    for (auto burst = random() % 100; burst > 0 && in.peek(frame); --burst) {
      ASSERT_EQ(frame.tag, received);
      ASSERT_EQ(frame.payload.size(), bytes_of(received));
      ASSERT_TRUE(holds(frame.payload, 5, received));
      in.release();
      received += 1;
    }
  }
}

TEST_P(TransportConformance, PeekShowsTheSameFrameUntilItIsReleased) {
  make(2);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  ASSERT_TRUE(send(out, 1, 1, 10));
  ASSERT_TRUE(send(out, 1, 2, 500));
  Frame frame;
  ASSERT_TRUE(eventually([&] { return in.peek(frame); }));
  ASSERT_TRUE(in.peek(frame));
  EXPECT_EQ(frame.tag, 1u);
  ASSERT_NO_FATAL_FAILURE(expect_frame(in, 1, 1, 10));
  ASSERT_NO_FATAL_FAILURE(expect_frame(in, 1, 2, 500));
}

TEST_P(TransportConformance, AReservationMayShrinkAndMayBeGivenUp) {
  make(2);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  ASSERT_TRUE(eventually([&] { return out.reserve(0).data() != nullptr; }));
  ASSERT_EQ(out.reserve(2000).size(), 2000u);  // given up
  std::span<std::byte> room = out.reserve(20);
  fill(room, 3, 1);
  out.commit(1, 5);
  room = out.reserve(3000);
  ASSERT_EQ(room.size(), 3000u);
  fill(room, 3, 2);
  out.commit(2, 7);
  ASSERT_TRUE(send(out, 3, 3, 2000));
  ASSERT_NO_FATAL_FAILURE(expect_frame(in, 3, 1, 5));
  ASSERT_NO_FATAL_FAILURE(expect_frame(in, 3, 2, 7));
  ASSERT_NO_FATAL_FAILURE(expect_frame(in, 3, 3, 2000));
}

TEST_P(TransportConformance, AFullQueueHasNoRoomUntilItIsDrained) {
  make(2);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  const std::size_t bytes = transport(0).frame_bytes_max();
  for (int round = 0; round < 3; ++round) {
    std::uint64_t sent = 0;
    ASSERT_TRUE(send(out, 9, sent++, bytes));
    // Full means that polling does not help: a few misses in a row, each with a poll between.
    for (int misses = 0; misses < 200;) {
      if (try_send(out, 9, sent, bytes)) {
        sent += 1;
        misses = 0;
      } else {
        misses += 1;
        poll_all();
      }
      ASSERT_LT(sent * bytes, std::size_t{256} << 20) << "the queue has no bound";
    }
    EXPECT_EQ(out.reserve(bytes).data(), nullptr);
    for (std::uint64_t number = 0; number < sent; ++number)
      ASSERT_NO_FATAL_FAILURE(expect_frame(in, 9, number, bytes));
    ASSERT_TRUE(eventually([&] { return out.reserve(bytes).data() != nullptr; }));
  }
}

// send() and reserve(), take() and peek(), in any mixture and both directions.
TEST_P(TransportConformance, FramesGoFromMemoryToMemory) {
  make(2, 1, 40'000, 40'000);
  std::array<Endpoint*, 2> ends = {&endpoint(0, 1), &endpoint(1, 0)};
  std::array<std::uint64_t, 2> sent{};
  std::array<std::uint64_t, 2> received{};
  std::minstd_rand random(7);
  constexpr std::uint64_t kFrames = 300;
  const auto bytes_of = [](std::uint64_t number) {
    return number % 4 == 0 ? number % 90 : 16'000 + number * 79 % 24'000;
  };
  std::vector<std::byte> memory(40'000);
  std::array<std::vector<std::byte>, 2> places;
  std::array<bool, 2> seen{};  // the head of the frame that is due is there
  const auto send_one = [&](std::size_t from) {
    const std::size_t bytes = bytes_of(sent[from]);
    if (random() % 4 == 0) return try_send(*ends[from], from, sent[from], bytes);
    fill({memory.data(), bytes}, from, sent[from]);
    const std::size_t head = std::min<std::size_t>(bytes, random() % 50);
    const std::span<const std::byte> all(memory.data(), bytes);
    const bool went = ends[from]->send(static_cast<std::uint32_t>(sent[from]), all.first(head),
                                       all.subspan(head));
    std::fill(memory.begin(), memory.end(), std::byte{0x55});  // it may be changed at once
    return went;
  };
  const auto peek_one = [&](std::size_t at, std::uint64_t number) {
    Frame frame;
    if (!ends[at]->peek(frame)) return false;
    EXPECT_EQ(frame.tag, number);
    EXPECT_TRUE(frame.payload.size() == bytes_of(number) && holds(frame.payload, 1 - at, number));
    ends[at]->release();
    return true;
  };
  const auto receive_one = [&](std::size_t at) {
    const std::uint64_t number = received[at];
    if (number % 5 == 0) return peek_one(at, number);
    places[at].resize(bytes_of(number));
    const std::span<std::byte> place(places[at]);
    const std::size_t head = number % 3 == 0 ? std::min<std::size_t>(place.size(), number % 50) : 0;
    if (!seen[at] && !copies_head(*ends[at], number, place.first(head))) return false;
    const Taken taken =
        ends[at]->take(static_cast<std::uint32_t>(number), head, place.subspan(head));
    seen[at] = taken == Taken::nothing;
    if (taken == Taken::other) return peek_one(at, number);
    EXPECT_TRUE(taken == Taken::nothing || holds(places[at], 1 - at, number)) << number;
    return taken == Taken::frame;
  };
  ASSERT_TRUE(eventually([&] {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (auto burst = random() % 4; burst > 0 && sent[rank] < kFrames; --burst)
        if (send_one(rank)) sent[rank] += 1;
      for (auto burst = random() % 4; burst > 0 && received[rank] < kFrames; --burst)
        if (receive_one(rank)) received[rank] += 1;
    }
    return testing::Test::HasFailure() || (received[0] == kFrames && received[1] == kFrames);
  }));
}

TEST_P(TransportConformance, FramesFromMemoryFillTheQueueToo) {
  make(2, 1, 20'000, 40'000);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  std::vector<std::byte> memory(20'000);
  fill(memory, 4, 0);
  std::uint64_t sent = 0;
  for (int misses = 0; misses < 200;) {
    if (out.send(static_cast<std::uint32_t>(sent), {}, memory)) {
      fill(memory, 4, ++sent);
      misses = 0;
    } else {
      misses += 1;
      poll_all();
    }
    ASSERT_LT(sent * memory.size(), std::size_t{256} << 20) << "the queue has no bound";
  }
  std::vector<std::byte> place(memory.size());
  for (std::uint64_t number = 0; number < sent; ++number) {
    if (number % 3 == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_frame(in, 4, number, memory.size()));
      continue;
    }
    Taken taken = Taken::nothing;
    ASSERT_TRUE(eventually([&] {
      taken = in.take(static_cast<std::uint32_t>(number), 0, place);
      return taken != Taken::nothing;
    }));
    if (taken == Taken::other) {
      ASSERT_NO_FATAL_FAILURE(expect_frame(in, 4, number, memory.size()));
    } else {
      ASSERT_TRUE(holds(place, 4, number)) << number;
    }
  }
}

TEST_P(TransportConformance, SmallFramesFillTheQueueToo) {
  make(2);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  std::uint64_t sent = 0;
  for (int misses = 0; misses < 200;) {
    if (try_send(out, 2, sent, 8)) {
      sent += 1;
      misses = 0;
    } else {
      misses += 1;
      poll_all();
    }
    ASSERT_LT(sent, 10'000'000u) << "the queue has no bound";
  }
  for (std::uint64_t number = 0; number < sent; ++number)
    ASSERT_NO_FATAL_FAILURE(expect_frame(in, 2, number, 8));
}

TEST_P(TransportConformance, BothDirectionsAtOnce) {
  make(2);
  Endpoint& left = endpoint(0, 1);
  Endpoint& right = endpoint(1, 0);
  for (std::uint64_t number = 0; number < 500; ++number) {
    const std::size_t bytes = number % 2 == 0 ? 16 : 900;
    ASSERT_TRUE(send(left, 1, number, bytes));
    ASSERT_TRUE(send(right, 2, number, bytes));
    ASSERT_NO_FATAL_FAILURE(expect_frame(left, 2, number, bytes));
    ASSERT_NO_FATAL_FAILURE(expect_frame(right, 1, number, bytes));
  }
}

TEST_P(TransportConformance, PeersAndChannelsAreIndependent) {
  constexpr int kSize = 4;
  constexpr int kChannels = 5;
  make(kSize, kChannels, 512, 2048);
  const auto stream_of = [](Rank from, Rank to, int channel) {
    return static_cast<std::uint64_t>((from * kSize + to) * kChannels + channel);
  };
  const auto for_each_connection = [&](const std::function<void(Rank, Rank, int)>& body) {
    for (Rank from = 0; from < kSize; ++from)
      for (Rank to = 0; to < kSize; ++to)
        for (int channel = 0; channel < kChannels; ++channel)
          if (from != to) body(from, to, channel);
  };
  for (std::uint64_t number = 0; number < 20; ++number) {
    for_each_connection([&](Rank from, Rank to, int channel) {
      const std::uint64_t stream = stream_of(from, to, channel);
      ASSERT_TRUE(send(endpoint(from, to, channel), stream, number, 10 + stream % 90));
    });
    for_each_connection([&](Rank from, Rank to, int channel) {
      const std::uint64_t stream = stream_of(from, to, channel);
      ASSERT_NO_FATAL_FAILURE(
          expect_frame(endpoint(to, from, channel), stream, number, 10 + stream % 90));
    });
  }
}

TEST_P(TransportConformance, SignalsArriveAndNeverFall) {
  make(2, 2);
  Endpoint& raiser = endpoint(0, 1, 1);
  Endpoint& watcher = endpoint(1, 0, 1);
  // Each signal at its own pace and of its own size.
  const auto value_at = [](std::size_t index, std::uint64_t step) {
    return step / (index + 1) << (index * 12);
  };
  std::array<std::uint64_t, kSignalCount> seen = {};
  for (std::uint64_t step = 1; step <= 300; ++step) {
    for (std::size_t index = 0; index < kSignalCount; ++index)
      raiser.signal(static_cast<Signal>(index), value_at(index, step));
    poll_all();
    for (std::size_t index = 0; index < kSignalCount; ++index) {
      const std::uint64_t value = watcher.signalled(static_cast<Signal>(index));
      ASSERT_GE(value, seen[index]);
      ASSERT_LE(value, value_at(index, step));
      seen[index] = value;
    }
  }
  for (std::size_t index = 0; index < kSignalCount; ++index) {
    const auto signal = static_cast<Signal>(index);
    EXPECT_TRUE(eventually([&] { return watcher.signalled(signal) == value_at(index, 300); }));
    EXPECT_EQ(raiser.signalled(signal), 0u);
  }
}

TEST_P(TransportConformance, SharedMemoryCanBeReadAndWrittenByThePeer) {
  make(2);
  if (!transport(0).traits().direct) GTEST_SKIP() << "this transport offers no direct access";
  Endpoint& owner = endpoint(0, 1);
  Endpoint& user = endpoint(1, 0);
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{5} << 20}) {
    void* shared = transport(0).allocate_shareable(bytes);
    std::vector<std::byte> plain(shared == nullptr ? bytes : 0);
    const std::span<std::byte> memory{
        shared == nullptr ? plain.data() : static_cast<std::byte*>(shared), bytes};
    const MemoryReference reference = owner.export_memory(memory.data(), bytes);
    ASSERT_TRUE(reference.addressable());
    EXPECT_EQ(owner.export_memory(memory.data(), bytes), reference);
    fill(memory, 4, 1);
    ASSERT_TRUE(send(owner, 1, 1, 8));
    ASSERT_NO_FATAL_FAILURE(expect_frame(user, 1, 1, 8));
    std::byte* seen = user.import_memory(reference, bytes);
    ASSERT_NE(seen, nullptr);
    EXPECT_TRUE(holds({seen, bytes}, 4, 1));
    fill({seen, bytes}, 4, 2);
    user.signal(Signal::produced, bytes);
    ASSERT_TRUE(eventually([&] { return owner.signalled(Signal::produced) == bytes; }));
    EXPECT_TRUE(holds(memory, 4, 2));

    const MemoryReference inside = owner.export_memory(memory.data() + 40, 8);
    std::byte* seen_inside = user.import_memory(inside, 8);
    ASSERT_NE(seen_inside, nullptr);
    EXPECT_EQ(*seen_inside, memory[40]);
    if (shared != nullptr) transport(0).release_shareable(shared);
  }
}

TEST_P(TransportConformance, WhoIsLateStillReadsMemoryThatWasFreedAfterAFailure) {
  make(2);
  if (!transport(0).traits().direct) GTEST_SKIP() << "this transport offers no direct access";
  constexpr std::size_t kBytes = std::size_t{5} << 20;
  auto* shared = static_cast<std::byte*>(transport(0).allocate_shareable(kBytes));
  if (shared == nullptr) GTEST_SKIP() << "all memory is shared, and freed memory is gone";
  Endpoint& owner = endpoint(0, 1);
  const MemoryReference reference = owner.export_memory(shared, kBytes);
  fill({shared, kBytes}, 4, 1);
  ASSERT_TRUE(send(owner, 1, 1, 8));
  ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(1, 0), 1, 1, 8));
  const std::byte* seen = endpoint(1, 0).import_memory(reference, kBytes);
  ASSERT_NE(seen, nullptr);
  transport(0).withdraw_memory(shared, kBytes);
  transport(0).release_shareable(shared);
  // Transports look after freed memory now and then only.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
  while (std::chrono::steady_clock::now() < end) poll_all();
  EXPECT_TRUE(holds({seen, kBytes}, 4, 1));
}

TEST_P(TransportConformance, NothingOutsideARegionCanBeImported) {
  make(2);
  Endpoint& owner = endpoint(0, 1);
  Endpoint& user = endpoint(1, 0);
  EXPECT_EQ(user.import_memory({}, 1), nullptr);
  EXPECT_EQ(user.import_memory({.region = 0x7fffffff, .offset = 0}, 1), nullptr);
  EXPECT_FALSE(owner.export_memory(nullptr, 0).addressable());
  if (!transport(0).traits().direct) return;
  void* shared = transport(0).allocate_shareable(4096);
  if (shared == nullptr) return;  // the region is all memory: nothing lies outside
  MemoryReference reference = owner.export_memory(shared, 4096);
  // References travel in frames, so that a connection exists when one is used.
  ASSERT_TRUE(send(owner, 1, 1, 8));
  ASSERT_NO_FATAL_FAILURE(expect_frame(user, 1, 1, 8));
  ASSERT_NE(user.import_memory(reference, 4096), nullptr);
  EXPECT_EQ(user.import_memory(reference, std::size_t{1} << 40), nullptr);
  EXPECT_EQ(user.import_memory(reference, ~std::size_t{0}), nullptr);
  reference.offset = ~std::uint64_t{0} - 100;
  EXPECT_EQ(user.import_memory(reference, 200), nullptr);
  transport(0).release_shareable(shared);
}

TEST_P(TransportConformance, UnsharedMemoryIsExportedOnlyIfItWorks) {
  make(2);
  std::vector<std::byte> plain(5000);
  const MemoryReference reference = endpoint(0, 1).export_memory(plain.data(), plain.size());
  if (!reference.addressable()) return;
  std::byte* seen = endpoint(1, 0).import_memory(reference, plain.size());
  ASSERT_NE(seen, nullptr);
  seen[4999] = std::byte{77};
  EXPECT_EQ(plain[4999], std::byte{77});
}

TEST_P(TransportConformance, NothingIsLostWhenTheReceiverIsSlow) {
  make(2, 1, 256, 1024);
  Endpoint& out = endpoint(0, 1);
  std::uint64_t sent = 0;
  while (sent < 3 && send(out, 1, sent, 200)) sent += 1;  // the receiver does not exist yet
  Endpoint& in = endpoint(1, 0);
  for (std::uint64_t received = 0; received < 300; ++received) {
    for (int i = 0; i < 20; ++i) {
      if (sent < 300 && try_send(out, 1, sent, 200)) sent += 1;
      poll_all();
    }
    ASSERT_NO_FATAL_FAILURE(expect_frame(in, 1, received, 200));
  }
}

TEST_P(TransportConformance, EitherSideMayUseTheConnectionFirst) {
  make(3);
  ASSERT_TRUE(send(endpoint(0, 1), 1, 1, 30));
  for (int i = 0; i < 10; ++i) poll_all();
  ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(1, 0), 1, 1, 30));
  // The one that receives comes first.
  Endpoint& in = endpoint(2, 1);
  Frame frame;
  for (int i = 0; i < 10; ++i) {
    poll_all();
    EXPECT_FALSE(in.peek(frame));
  }
  ASSERT_TRUE(send(endpoint(1, 2), 2, 1, 300));
  ASSERT_NO_FATAL_FAILURE(expect_frame(in, 2, 1, 300));
  // Both at once.
  Endpoint& a = endpoint(0, 2);
  Endpoint& b = endpoint(2, 0);
  ASSERT_TRUE(send(a, 3, 1, 30));
  ASSERT_TRUE(send(b, 4, 1, 300));
  ASSERT_NO_FATAL_FAILURE(expect_frame(b, 3, 1, 30));
  ASSERT_NO_FATAL_FAILURE(expect_frame(a, 4, 1, 300));
}

TEST_P(TransportConformance, FramesOfARankThatLeftCanStillBeRead) {
  make(3);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  for (std::uint64_t number = 0; number < 3; ++number)
    ASSERT_TRUE(send(out, 1, number, number * 1000));
  ASSERT_TRUE(eventually([&] { return transport(0).flushed(); }));
  world_.transports[0].reset();
  for (int i = 0; i < 2000; ++i) poll_all();
  for (std::uint64_t number = 0; number < 3; ++number)
    ASSERT_NO_FATAL_FAILURE(expect_frame(in, 1, number, number * 1000));
  for (int i = 0; i < 2000; ++i) poll_all();
  EXPECT_TRUE(in.status().ok()) << in.status().to_string();
  // The others go on.
  ASSERT_TRUE(send(endpoint(1, 2), 2, 1, 64));
  ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(2, 1), 2, 1, 64));
}

TEST_P(TransportConformance, WhatAPeerDidBeforeSleepEndsTheSleep) {
  make(2);
  Endpoint& out = endpoint(0, 1);
  Endpoint& in = endpoint(1, 0);
  ASSERT_TRUE(send(out, 1, 0, 8));
  ASSERT_NO_FATAL_FAILURE(expect_frame(in, 1, 0, 8));
  for (std::uint64_t number = 1; number < 20; ++number) {
    ASSERT_TRUE(send(out, 1, number, 8));
    ASSERT_TRUE(eventually([&] { return transport(0).flushed(); }));
    Frame frame;
    int sleeps = 0;
    while (!in.peek(frame)) {
      ASSERT_LT(sleeps++, 1000);
      transport(1).sleep(1'000'000);
      poll_all();
    }
    ASSERT_NO_FATAL_FAILURE(expect_frame(in, 1, number, 8));
  }
}

TEST_P(TransportConformance, SleepersWakeEachOther) {
  if (!GetParam().threads) GTEST_SKIP() << "driven by one thread only";
  make(2);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  in_threads(2, [&](Rank rank) {
    Transport& mine = transport(rank);
    Endpoint& peer = *mine.endpoint(1 - rank, 0).value();
    for (std::uint64_t number = 0; number < 300; ++number) {
      Frame frame;
      bool sent = false;
      bool received = false;
      while (!sent || !received) {
        ASSERT_LT(std::chrono::steady_clock::now(), limit);
        ASSERT_TRUE(mine.poll().ok());
        if (!received && (sent || rank == 1) && peer.peek(frame)) {
          ASSERT_TRUE(holds(frame.payload, 1, number));
          peer.release();
          received = true;
        }
        if (!sent && (received || rank == 0)) sent = try_send(peer, 1, number, 8);
        if (!sent || !received) mine.sleep(1'000'000);
      }
    }
  });
}

TEST_P(TransportConformance, RandomTrafficInTurns) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    make(2 + static_cast<int>(seed) % 3, 1 + static_cast<int>(seed) % 2, 300, 900);
    std::vector<StressRank> ranks;
    for (const auto& transport : world_.transports) ranks.emplace_back(*transport, seed, 200);
    const bool done = eventually([&] {
      bool all = true;
      for (StressRank& rank : ranks) all = rank.step() && all;
      return all;
    });
    ASSERT_TRUE(done) << "seed " << seed;
  }
}

TEST_P(TransportConformance, RandomTrafficFromThreads) {
  if (!GetParam().threads) GTEST_SKIP() << "driven by one thread only";
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    make(2 + static_cast<int>(seed) % 3, 2, 300, 900);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    in_threads(transport(0).size(), [&](Rank rank) {
      StressRank stress(transport(rank), seed, 400);
      for (int misses = 0; !stress.step(); ++misses) {
        ASSERT_LT(std::chrono::steady_clock::now(), limit) << "seed " << seed;
        if (misses % 4 == 3) transport(rank).sleep(1000);
      }
      // What this rank has committed may still wait for the others to make room.
      while (!transport(rank).flushed()) {
        ASSERT_LT(std::chrono::steady_clock::now(), limit) << "seed " << seed;
        ASSERT_TRUE(transport(rank).poll().ok());
        transport(rank).sleep(1000);
      }
    });
  }
}

}  // namespace
}  // namespace tutti::transport::conformance
