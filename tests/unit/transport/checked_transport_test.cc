// checked_transport_test.cc: whatever is done to frames on their way, none that differs from what
// was sent, or comes at another place, is ever shown. That checked transports carry healthy frames
// is the conformance suite's.
#include "transport/checked/transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <random>

#include "transport/memory/transport.hpp"
#include "unit/transport/tampering.hpp"

namespace tutti::transport {
namespace {

using ::testing::AllOf;
using testing::CapturedFrame;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TamperingTransport;
using Queue = std::deque<CapturedFrame>;
using Random = std::minstd_rand;

constexpr std::size_t kFrameBytes = 2048;
constexpr int kChannels = 32;  // each is good for one fault

std::size_t below(Random& random, std::size_t bound) { return random() / 7 % bound; }

// Ranks that are here, each behind checksums, with a hand on what reaches them.
struct World {
  explicit World(int size = 2, std::uint64_t context = 5) {
    TransportOptions options;
    options.size = size;
    options.channel_count = kChannels;
    options.frame_bytes_max = kFrameBytes;
    options.queue_bytes = 2 * kFrameBytes;
    const auto shared = MemoryWorld::make(options);
    for (Rank rank = 0; rank < size; ++rank) {
      auto tampering = std::make_unique<TamperingTransport>(make_memory_transport(shared, rank));
      tamperings.push_back(tampering.get());
      transports.push_back(make_checked_transport(std::move(tampering), context));
    }
  }

  Endpoint& endpoint(Rank rank, Rank peer, int channel = 0) {
    return *transports[static_cast<std::size_t>(rank)]->endpoint(peer, channel).value();
  }

  // What has come to `rank` from `peer`.
  Queue& arrived(Rank rank, Rank peer, int channel = 0) {
    auto& tampering = *tamperings[static_cast<std::size_t>(rank)];
    auto& endpoint = tampering.tampering_endpoint(peer, channel);
    EXPECT_TRUE(tampering.poll().ok());
    return endpoint.arrived();
  }

  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<TamperingTransport*> tamperings;
};

void send(Endpoint& to, std::uint32_t tag, const std::vector<std::byte>& bytes) {
  const auto room = to.reserve(bytes.size());
  ASSERT_NE(room.data(), nullptr);
  std::copy(bytes.begin(), bytes.end(), room.begin());
  to.commit(tag, bytes.size());
}

std::vector<std::byte> draw_bytes(Random& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 9);
  return bytes;
}

// Mostly small, as faults in small frames are the harder half: there is less to notice them by.
std::size_t draw_length(Random& random) {
  const std::size_t limits[] = {2, 40, 300, 1500};
  return below(random, limits[below(random, 4)]);
}

// Does something to the frames that arrived; says the first place whose frame is not as it was
// sent, or that there was nothing to do.
using Fault = std::function<std::optional<std::size_t>(Queue&, Random&)>;

// Four frames are sent, something happens to them, and the receiver looks: up to the first
// affected place it must see what was sent, and there it must see nothing but an error.
void inject(World& world, int channel, const Fault& fault, Random& random, int& injected) {
  std::vector<CapturedFrame> sent;
  const std::size_t same_length = draw_length(random);
  const bool all_alike = below(random, 8) == 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const bool copy = all_alike && i > 0;
    const std::size_t length = below(random, 2) == 0 ? same_length : draw_length(random);
    if (copy)
      sent.push_back(sent[0]);
    else
      sent.push_back({static_cast<std::uint32_t>(random()), draw_bytes(random, length)});
    send(world.endpoint(0, 1, channel), sent[i].tag, sent[i].bytes);
  }
  Endpoint& in = world.endpoint(1, 0, channel);
  Queue& queue = world.arrived(1, 0, channel);
  ASSERT_EQ(queue.size(), 4u);
  const auto affected = fault(queue, random);
  if (!affected) return;
  ++injected;
  Frame frame;
  for (std::size_t i = 0; i < *affected; ++i) {
    ASSERT_TRUE(in.peek(frame)) << in.status().to_string();
    ASSERT_EQ(frame.tag, sent[i].tag);
    ASSERT_TRUE(std::equal(frame.payload.begin(), frame.payload.end(), sent[i].bytes.begin(),
                           sent[i].bytes.end()));
    in.release();
  }
  ASSERT_FALSE(in.peek(frame)) << "a damaged frame was shown";
  ASSERT_EQ(in.status().code(), StatusCode::corrupt_data);
  ASSERT_FALSE(in.peek(frame)) << "the failure is not sticky";
  ASSERT_EQ(in.reserve(8).data(), nullptr);
}

// Until `count` faults were injected, all of which were noticed.
void campaign(const char* name, int count, const Fault& fault) {
  Random random(20'000'003);
  int injected = 0;
  while (injected < count) {
    World world;
    for (int channel = 0; channel < kChannels && injected < count; ++channel)
      ASSERT_NO_FATAL_FAILURE(inject(world, channel, fault, random, injected)) << injected;
  }
  std::cout << "  " << injected << " " << name << ": all noticed, none shown\n";
}

// Bit `bit` of a frame: its bytes, checksum included, and behind them its tag.
void flip(CapturedFrame& frame, std::size_t bit) {
  if (bit < 8 * frame.bytes.size())
    frame.bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  else
    frame.tag ^= 1U << (bit - 8 * frame.bytes.size());
}

std::size_t bits_of(const CapturedFrame& frame) { return 8 * frame.bytes.size() + 32; }

TEST(CheckedTransport, NoticesSingleBitFlips) {
  campaign("single flipped bits", 40'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size());
    flip(queue[at], below(random, bits_of(queue[at])));
    return std::optional(at);
  });
}

TEST(CheckedTransport, NoticesSeveralBitFlips) {
  campaign("frames with 2 to 16 flipped bits", 30'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size());
    const CapturedFrame before = queue[at];
    for (auto flips = 2 + below(random, 15); flips > 0; --flips)
      flip(queue[at], below(random, bits_of(before)));
    const bool same = before.bytes == queue[at].bytes && before.tag == queue[at].tag;
    return same ? std::nullopt : std::optional(at);
  });
}

TEST(CheckedTransport, NoticesBursts) {
  campaign("bursts of up to 500 bits", 30'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size());
    CapturedFrame& frame = queue[at];
    const std::size_t bits = 8 * frame.bytes.size();
    const std::size_t first = below(random, bits);
    const std::size_t length = 1 + below(random, below(random, 2) == 0 ? 32 : 500);
    flip(frame, first);
    for (std::size_t bit = first + 1; bit < std::min(bits, first + length); ++bit)
      if (below(random, 2) == 0) flip(frame, bit);
    return std::optional(at);
  });
}

TEST(CheckedTransport, NoticesBytesThatBecameZero) {
  campaign("runs of zeroed bytes", 5'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size());
    auto& bytes = queue[at].bytes;
    const auto before = bytes;
    const std::size_t first = below(random, bytes.size());
    for (std::size_t i = first; i < std::min(bytes.size(), first + 64); ++i) bytes[i] = {};
    return bytes == before ? std::nullopt : std::optional(at);
  });
}

TEST(CheckedTransport, NoticesTruncation) {
  campaign("cut frames", 5'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size());
    auto& bytes = queue[at].bytes;
    const auto end = static_cast<std::ptrdiff_t>(bytes.size() - 1 - below(random, bytes.size()));
    if (below(random, 2) == 0)  // the end is missing, or the beginning
      bytes.erase(bytes.begin() + end, bytes.end());
    else
      bytes.erase(bytes.begin(), bytes.begin() + (std::ssize(bytes) - end));
    return std::optional(at);
  });
}

TEST(CheckedTransport, NoticesExtension) {
  campaign("extended frames", 5'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size());
    auto& bytes = queue[at].bytes;
    const auto place = static_cast<std::ptrdiff_t>(below(random, bytes.size() + 1));
    bytes.insert(bytes.begin() + place, 1 + below(random, 20), std::byte{0});
    return std::optional(at);
  });
}

TEST(CheckedTransport, NoticesFramesThatSwappedPlaces) {
  campaign("swaps", 5'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size() - 1);
    const std::size_t other = at + 1 + below(random, queue.size() - at - 1);
    std::swap(queue[at], queue[other]);
    return std::optional(at);
  });
}

TEST(CheckedTransport, NoticesRepetition) {
  campaign("repeated frames", 5'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size());
    const std::size_t again = at + 1 + below(random, queue.size() - at);
    const CapturedFrame copy = queue[at];
    queue.insert(queue.begin() + static_cast<std::ptrdiff_t>(again), copy);
    return std::optional(again);
  });
}

TEST(CheckedTransport, NoticesLossByTheFrameThatFollows) {
  campaign("lost frames", 5'000, [](Queue& queue, Random& random) {
    const std::size_t at = below(random, queue.size() - 1);
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(at));
    return std::optional(at);
  });
}

// ---- Frames of other connections, alike in all but where they belong ----

const std::vector<std::byte> kBytes(100, std::byte{42});

void expect_refused(World& world, Rank rank, Rank peer, int channel = 0) {
  Frame frame;
  EXPECT_FALSE(world.endpoint(rank, peer, channel).peek(frame));
  EXPECT_EQ(world.endpoint(rank, peer, channel).status().code(), StatusCode::corrupt_data);
}

TEST(CheckedTransport, NoticesAFrameOfAnotherChannel) {
  World world;
  for (int channel : {0, 1}) send(world.endpoint(0, 1, channel), 7, kBytes);
  std::swap(world.arrived(1, 0, 0), world.arrived(1, 0, 1));
  expect_refused(world, 1, 0, 0);
  expect_refused(world, 1, 0, 1);
}

TEST(CheckedTransport, NoticesAFrameOfAnotherSender) {
  World world(3);
  for (Rank sender : {1, 2}) send(world.endpoint(sender, 0), 7, kBytes);
  std::swap(world.arrived(0, 1), world.arrived(0, 2));
  expect_refused(world, 0, 1);
  expect_refused(world, 0, 2);
}

TEST(CheckedTransport, NoticesAFrameToAnotherReceiver) {
  World world(3);
  for (Rank receiver : {1, 2}) send(world.endpoint(0, receiver), 7, kBytes);
  std::swap(world.arrived(1, 0), world.arrived(2, 0));
  expect_refused(world, 1, 0);
  expect_refused(world, 2, 0);
}

TEST(CheckedTransport, NoticesItsOwnFrameComingBack) {
  World world;
  send(world.endpoint(0, 1), 7, kBytes);
  send(world.endpoint(1, 0), 7, kBytes);
  std::swap(world.arrived(1, 0), world.arrived(0, 1));
  expect_refused(world, 1, 0);
  expect_refused(world, 0, 1);
}

TEST(CheckedTransport, NoticesAFrameOfAnotherCommunicator) {
  World one(2, 5);
  World other(2, 6);
  for (World* world : {&one, &other}) send(world->endpoint(0, 1), 7, kBytes);
  std::swap(one.arrived(1, 0), other.arrived(1, 0));
  expect_refused(one, 1, 0);
  expect_refused(other, 1, 0);
}

// ---- What it says, and what lives on ----

TEST(CheckedTransport, SaysWhatWasDamaged) {
  World world(3);
  for (std::uint32_t tag : {1U, 2U, 3U}) send(world.endpoint(2, 1, 4), tag, kBytes);
  Endpoint& in = world.endpoint(1, 2, 4);
  Queue& queue = world.arrived(1, 2, 4);
  queue[2].bytes[50] ^= std::byte{1};
  Frame frame;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(in.peek(frame));
    in.release();
  }
  ASSERT_FALSE(in.peek(frame));
  EXPECT_THAT(in.status().message(),
              AllOf(HasSubstr("rank 1: from rank 2 on channel 4, frame 2 (tag 3, 100 bytes)"),
                    HasSubstr("checksum "), HasSubstr(" expected, "), HasSubstr(" found")));
  EXPECT_THAT(in.status().message(), Not(HasSubstr("swapped")));
  EXPECT_EQ(in.status().culprit(), 2);
}

TEST(CheckedTransport, TellsAFrameOutOfPlaceFromADamagedOne) {
  World world;
  for (int i = 0; i < 3; ++i) send(world.endpoint(0, 1), 1, kBytes);
  world.arrived(1, 0).pop_front();
  Frame frame;
  ASSERT_FALSE(world.endpoint(1, 0).peek(frame));
  EXPECT_THAT(world.endpoint(1, 0).status().message(),
              HasSubstr("it is frame 1: frames were lost, repeated or swapped"));
}

TEST(CheckedTransport, AsksWhetherThePeerSendsChecksumsAtAll) {
  World world;
  const auto room = world.tamperings[0]->tampering_endpoint(1, 0).reserve(100);
  std::fill(room.begin(), room.end(), std::byte{3});
  world.tamperings[0]->tampering_endpoint(1, 0).commit(1, 100);
  Frame frame;
  ASSERT_TRUE(world.transports[1]->poll().ok());
  Endpoint& in = world.endpoint(1, 0);
  ASSERT_TRUE(world.transports[1]->poll().ok());
  ASSERT_FALSE(in.peek(frame));
  EXPECT_THAT(in.status().message(), HasSubstr("checksums on here and off there?"));
}

TEST(CheckedTransport, AFailureIsTheTransportsAndTheOtherConnectionsGoOn) {
  World world(3);
  send(world.endpoint(0, 1), 1, kBytes);
  send(world.endpoint(2, 1), 1, kBytes);
  world.arrived(1, 0)[0].bytes[0] ^= std::byte{1};
  expect_refused(world, 1, 0);
  EXPECT_EQ(world.transports[1]->poll().status(), world.endpoint(1, 0).status());
  world.arrived(1, 2);
  Frame frame;
  ASSERT_TRUE(world.endpoint(1, 2).peek(frame));
  EXPECT_EQ(frame.payload.size(), kBytes.size());
  EXPECT_TRUE(world.endpoint(1, 2).status().ok());
  EXPECT_TRUE(world.transports[0]->poll().ok());
}

// ---- What it offers ----

TEST(CheckedTransport, AllDataTravelsInFrames) {
  World world;
  const TransportTraits traits = world.transports[0]->traits();
  EXPECT_EQ(traits.name, "memory");
  EXPECT_FALSE(traits.direct);
  EXPECT_FALSE(traits.any_memory);
  EXPECT_FALSE(world.endpoint(0, 1).export_memory(kBytes.data(), 100).addressable());
  EXPECT_EQ(world.transports[0]->frame_bytes_max(), kFrameBytes - kChecksumBytes);
}

TEST(CheckedTransport, ThePayloadIsBuiltAndReadInPlace) {
  World world;
  const auto room = world.endpoint(0, 1).reserve(1500);
  const auto beneath = world.tamperings[0]->tampering_endpoint(1, 0).reserve(1504);
  EXPECT_EQ(room.data(), beneath.data());
  world.endpoint(0, 1).reserve(1500);
  world.endpoint(0, 1).commit(1, 1500);
  Frame frame;
  Queue& queue = world.arrived(1, 0);
  ASSERT_TRUE(world.endpoint(1, 0).peek(frame));
  EXPECT_EQ(frame.payload.data(), queue[0].bytes.data());
  EXPECT_EQ(frame.payload.size(), 1500u);
}

}  // namespace
}  // namespace tutti::transport
