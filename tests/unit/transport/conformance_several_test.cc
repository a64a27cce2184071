// conformance_several_test.cc: what every transport must do with frames that go to several peers
// alike, whether it can write them once or says that it cannot.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "unit/transport/conformance.hpp"

namespace tutti::transport::conformance {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }

std::vector<std::byte> content(std::uint64_t stream, std::uint64_t number, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  fill(all, stream, number);
  return all;
}

bool send_to_all(Transport& transport, std::span<Endpoint* const> endpoints, std::uint64_t number,
                 std::size_t bytes) {
  const std::vector<std::byte> all = content(3, number, bytes);
  const auto head = std::span(all).first(std::min<std::size_t>(bytes, 32));
  return transport.send_to_all(endpoints, static_cast<std::uint32_t>(number), head,
                               std::span(all).subspan(head.size()));
}

// Among others, that go to one of them alone. The one that is slow holds all of them up.
TEST_P(TransportConformance, FramesToSeveralPeersArriveInOrder) {
  make(4);
  std::vector<Endpoint*> out;
  for (const Rank peer : {1, 2, 3}) out.push_back(&endpoint(0, peer));
  std::array<std::uint64_t, 4> sent = {};
  std::array<std::uint64_t, 4> received = {};
  std::array<std::vector<std::size_t>, 4> sizes;
  std::minstd_rand random(5);
  constexpr std::uint64_t kFrames = 1500;
  const auto done = [&] {
    return std::all_of(received.begin() + 1, received.end(), [](auto n) { return n == kFrames; });
  };
  const auto send_one = [&] {
    const bool alike = sent[1] == sent[2] && sent[2] == sent[3] && sent[1] < kFrames;
    const std::size_t bytes = random() % 4 == 0 ? random() % 1056 + 1 : random() % 700 + 300;
    if (alike && random() % 3 != 0 && send_to_all(transport(0), out, sent[1], bytes)) {
      for (const Rank peer : {1, 2, 3}) {
        sizes[index(peer)].push_back(bytes);
        sent[index(peer)] += 1;
      }
      return;
    }
    for (const Rank peer : {1, 2, 3}) {  // the others catch up with the first
      if (sent[index(peer)] >= (peer == 1 ? kFrames : sent[1])) continue;
      if (!try_send(*out[index(peer) - 1], 3, sent[index(peer)], bytes)) continue;
      sizes[index(peer)].push_back(bytes);
      sent[index(peer)] += 1;
    }
  };
  ASSERT_TRUE(eventually([&] {
    for (auto burst = random() % 8; burst > 0; --burst) send_one();
    for (const Rank peer : {1, 2, 3}) {
      Frame frame;
      Endpoint& in = endpoint(peer, 0);
      for (auto burst = random() % 12; burst > 0 && in.peek(frame); --burst) {
        const std::uint64_t number = received[index(peer)]++;
        EXPECT_EQ(frame.tag, static_cast<std::uint32_t>(number));
        EXPECT_EQ(frame.payload.size(), sizes[index(peer)][number]);
        EXPECT_TRUE(holds(frame.payload, 3, number)) << "rank " << peer << ", " << number;
        in.release();
      }
    }
    return done() || HasFailure();
  }));
}

TEST_P(TransportConformance, AFrameToSeveralPeersGoesToAllOfThemOrToNone) {
  make(3);
  std::vector<Endpoint*> out = {&endpoint(0, 1), &endpoint(0, 2)};
  endpoint(1, 0);
  endpoint(2, 0);
  // Until one of them is through with its frames, the other alone makes no room.
  std::uint64_t sent = 0;
  for (int tries = 0; tries < 2000; ++tries) {
    if (send_to_all(transport(0), out, sent, 600)) ++sent;
    poll_all();
  }
  for (std::uint64_t number = 0; number < sent; ++number)
    ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(1, 0), 3, number, 600));
  ASSERT_FALSE(sent > 0 && send_to_all(transport(0), out, sent, 600)) << "rank 2 has read nothing";
  Frame frame;
  for (int i = 0; i < 100; ++i) poll_all();
  EXPECT_FALSE(endpoint(1, 0).peek(frame));
  for (std::uint64_t number = 0; number < sent; ++number)
    ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(2, 0), 3, number, 600));
  EXPECT_EQ(send_to_all(transport(0), out, sent, 600), sent > 0);
  const std::string_view name = GetParam().name;
  EXPECT_EQ(sent > 0, name == "memory" || name == "shm") << "who can write once for all";
}

TEST_P(TransportConformance, FramesToSeveralPeersOfARankThatLeftCanStillBeRead) {
  make(3);
  std::vector<Endpoint*> out = {&endpoint(0, 1), &endpoint(0, 2)};
  endpoint(1, 0);
  endpoint(2, 0);
  std::uint64_t sent = 0;
  while (sent < 3 && send_to_all(transport(0), out, sent, 900)) ++sent;
  ASSERT_TRUE(eventually([&] { return transport(0).flushed(); }));
  world_.transports[0].reset();
  for (const Rank peer : {1, 2})
    for (std::uint64_t number = 0; number < sent; ++number)
      ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(peer, 0), 3, number, 900));
}

// Each gets one of its own then, and whoever sends to the one that left hears of it.
TEST_P(TransportConformance, AFrameToSeveralPeersIsNotSentWhereOneHasLeft) {
  make(3);
  std::vector<Endpoint*> out = {&endpoint(0, 1), &endpoint(0, 2)};
  endpoint(1, 0);
  endpoint(2, 0);
  const bool can = send_to_all(transport(0), out, 0, 600);
  for (const Rank peer : {1, 2}) {
    if (!can) break;
    ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(peer, 0), 3, 0, 600));
  }
  world_.transports[2].reset();
  for (int i = 0; i < 2000; ++i) poll_all();
  EXPECT_FALSE(send_to_all(transport(0), out, 1, 600));
  Frame frame;
  EXPECT_FALSE(endpoint(1, 0).peek(frame));
}

bool writes_once(std::string_view transport) { return transport == "memory" || transport == "shm"; }

// Of any length, among others, until all who were told have released it.
TEST_P(TransportConformance, FramesAreBuiltOnceForSeveralPeers) {
  make(4);
  std::vector<Endpoint*> out;
  for (const Rank peer : {1, 2, 3}) out.push_back(&endpoint(0, peer));
  const std::size_t longest = transport(0).frame_bytes_max();
  std::vector<std::size_t> sizes;
  std::array<std::uint64_t, 4> received = {};
  std::minstd_rand random(7);
  static constexpr std::uint64_t kFrames = 300;
  std::uint64_t refused = 0;
  const auto send_one = [&] {
    if (random() % 4 == 0) {
      const std::size_t bytes = random() % 900 + 1;
      if (send_to_all(transport(0), out, sizes.size(), bytes)) sizes.push_back(bytes);
      return;
    }
    const std::size_t bytes = random() % 8 == 0 ? longest : random() % longest + 1;
    const std::span<std::byte> room = transport(0).reserve_for_all(out, bytes);
    refused += room.data() == nullptr ? 1 : 0;
    if (room.data() == nullptr) return;
    ASSERT_EQ(room.size(), bytes);
    fill(room, 3, sizes.size());
    transport(0).commit_for_all(out, static_cast<std::uint32_t>(sizes.size()), bytes);
    sizes.push_back(bytes);
  };
  const bool can = writes_once(GetParam().name);
  ASSERT_TRUE(eventually([&] {
    if (sizes.size() < kFrames) send_one();
    for (const Rank peer : {1, 2, 3}) {
      Frame frame;
      Endpoint& in = endpoint(peer, 0);
      if (received[index(peer)] == sizes.size() || random() % 3 == 0 || !in.peek(frame)) continue;
      const std::uint64_t number = received[index(peer)]++;
      EXPECT_EQ(frame.payload.size(), sizes[number]);
      EXPECT_TRUE(holds(frame.payload, 3, number)) << "rank " << peer << ", " << number;
      in.release();
    }
    return !can || HasFailure() ||
           std::all_of(received.begin() + 1, received.end(), [](auto n) { return n == kFrames; });
  }));
  EXPECT_EQ(sizes.size(), can ? kFrames : 0);
  EXPECT_GT(refused, 0U) << "room is limited";
}

// Rank 1's frames go to rank 0, who tells all what it makes of them: where they lie, once it has
// asked for that. Others come between, some that are not made of anything, and all are released
// late.
TEST_P(TransportConformance, FramesTakeThePlaceOfWhatTheyAreMadeOf) {
  constexpr std::size_t kLongest = 16384;
  make(3, 1, kLongest, 4 * kLongest);
  const std::vector<Endpoint*> out = {&endpoint(0, 1), &endpoint(0, 2)};
  Endpoint& to_leader = endpoint(1, 0);
  std::minstd_rand random(11);
  static constexpr std::uint64_t kFrames = 400;
  std::uint64_t given = 0;
  std::uint64_t taken = 0;
  std::uint64_t in_place = 0;
  std::vector<std::size_t> given_sizes;
  std::vector<std::size_t> sizes;  // of what rank 0 told
  std::array<std::uint64_t, 3> received = {};
  const auto give = [&] {
    const std::size_t bytes = random() % 5 == 0 ? random() % 3000 + 1 : kLongest - random() % 9000;
    if (!try_send(to_leader, 5, given, bytes)) return;
    given_sizes.push_back(bytes);
    ++given;
  };
  const auto take = [&] {
    Frame frame;
    if (!out[0]->peek(frame)) return;
    const std::size_t bytes = given_sizes[taken];
    ASSERT_EQ(frame.payload.size(), bytes);
    ASSERT_TRUE(holds(frame.payload, 5, taken)) << "frame " << taken;
    if (random() % 4 != 0) {
      const std::size_t made = random() % 6 == 0 ? bytes / 2 + 1 : bytes;
      std::span<std::byte> room = transport(0).reserve_in_place(out, *out[0], made);
      if (room.data() != nullptr) {
        ++in_place;
        ASSERT_EQ(room.data(), frame.payload.data());
        ASSERT_EQ(room.size(), bytes);
      } else {
        room = transport(0).reserve_for_all(out, made);
      }
      if (room.data() == nullptr) return;
      fill(room, 3, sizes.size());
      transport(0).commit_for_all(out, static_cast<std::uint32_t>(sizes.size()), made);
      sizes.push_back(made);
    }
    out[0]->release();
    ++taken;
  };
  const auto hear = [&](Rank rank) {
    Frame frame;
    std::uint64_t& number = received[index(rank)];
    if (number == sizes.size() || random() % 3 == 0 || !endpoint(rank, 0).peek(frame)) return;
    EXPECT_EQ(frame.payload.size(), sizes[number]);
    EXPECT_TRUE(holds(frame.payload, 3, number)) << "rank " << rank << ", " << number;
    endpoint(rank, 0).release();
    ++number;
  };
  const bool can = writes_once(GetParam().name);
  ASSERT_TRUE(eventually([&] {
    if (!can || HasFailure()) return true;
    if (given < kFrames && random() % 2 == 0) give();
    if (taken < given && random() % 3 == 0) take();  // behind, at times
    for (const Rank rank : {1, 2}) hear(rank);
    return taken == kFrames && received[1] == sizes.size() && received[2] == sizes.size();
  }));
  EXPECT_EQ(in_place > kFrames / 20, can) << in_place;
}

TEST_P(TransportConformance, NoFrameIsBuiltWhereOnePeerHasNoRoom) {
  make(3);
  std::vector<Endpoint*> out = {&endpoint(0, 1), &endpoint(0, 2)};
  endpoint(1, 0);
  endpoint(2, 0);
  const std::size_t bytes = transport(0).frame_bytes_max();
  std::uint64_t sent = 0;
  const auto send = [&] {
    const std::span<std::byte> room = transport(0).reserve_for_all(out, bytes);
    if (room.data() == nullptr) return false;
    fill(room, 3, sent);
    transport(0).commit_for_all(out, static_cast<std::uint32_t>(sent++), room.size());
    return true;
  };
  for (int tries = 0; tries < 100; ++tries) {
    send();
    poll_all();
  }
  ASSERT_EQ(sent > 0, writes_once(GetParam().name));
  for (std::uint64_t number = 0; number < sent; ++number)
    ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(1, 0), 3, number, bytes));
  EXPECT_FALSE(send()) << "rank 2 has read nothing";
  if (sent == 0) return;
  ASSERT_NO_FATAL_FAILURE(expect_frame(endpoint(2, 0), 3, 0, bytes));
  EXPECT_TRUE(send());
}

// Zeros at first, or none at all.
TEST_P(TransportConformance, SharedWordsAreTheSameForAll) {
  make(3);
  EXPECT_FALSE(writes_once(GetParam().name) && transport(0).shared_words().empty());
  for (const Rank rank : {0, 1, 2}) {
    const auto words = transport(rank).shared_words();
    ASSERT_EQ(words.size(), transport(0).shared_words().empty() ? 0 : kSharedWordCount);
    for (std::size_t word = 0; word < words.size(); ++word)
      EXPECT_EQ(words[word].exchange(word + static_cast<std::size_t>(rank) + 1),
                rank == 0 ? 0 : word + static_cast<std::size_t>(rank));
  }
}

// Zeros at first, or none at all.
TEST_P(TransportConformance, SharedMemoryIsTheSameForAll) {
  make(3);
  const auto first = transport(0).shared_memory();
  EXPECT_FALSE(writes_once(GetParam().name) && first.empty());
  const std::size_t bytes = first.empty() ? 0 : 3 * kSharedBytesEach;
  for (const Rank rank : {0, 1, 2}) {
    const auto memory = transport(rank).shared_memory();
    ASSERT_EQ(memory.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 4096, 0U);
    for (std::size_t at = 0; at < bytes; at += 1000) {
      EXPECT_EQ(static_cast<int>(memory[at]), rank);
      memory[at] = static_cast<std::byte>(rank + 1);
    }
  }
}

// Whether it is there before, or a peer says so; and another number does not count. Of some sleeps
// the shortest says whether they end early: any of them may take longer.
TEST_P(TransportConformance, AWordInSharedMemoryEndsASleep) {
  make(2);
  if (transport(0).shared_memory().empty()) GTEST_SKIP() << "there is none";
  constexpr std::chrono::microseconds kLong{2000};
  const auto ends_early = [&](int tries) {
    bool early = false;
    for (int i = 0; i < tries && !early; ++i) {
      const auto begun = std::chrono::steady_clock::now();
      transport(0).sleep(kLong.count());
      early = std::chrono::steady_clock::now() - begun < kLong / 2;
    }
    return early;
  };
  auto* const here =
      reinterpret_cast<std::atomic<std::uint64_t>*>(transport(0).shared_memory().data());
  auto* const there =
      reinterpret_cast<std::atomic<std::uint64_t>*>(transport(1).shared_memory().data());
  there->store(7);
  transport(0).await_shared(here, 7);
  EXPECT_TRUE(ends_early(50)) << "it is there";
  transport(0).await_shared(here, 8);
  EXPECT_FALSE(ends_early(1)) << "it is another number";
  transport(0).await_shared(nullptr, 0);
  EXPECT_FALSE(ends_early(1)) << "none is awaited";

  std::atomic<bool> done = false;
  std::thread waker([&] {
    while (!done) {
      transport(1).wake_sharers();
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(ends_early(50)) << "it is woken";
  done = true;
  waker.join();
}

}  // namespace
}  // namespace tutti::transport::conformance
