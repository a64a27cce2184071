// What a proxy carries of payloads that lie in lent memory: it says from where and to where, and
// tells kernels when that has happened, not before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpu_world/lending_transport.hpp"
#include "runtime/gpu/host/proxy.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kMessage = 1;
constexpr std::uint32_t kNotice = 3;
constexpr std::uint32_t kFarewell = 4;

ControlShape small_shape() {
  ControlShape shape;
  shape.ranks = 2;
  shape.channels = 3;
  shape.slots = 2;
  shape.slot_bytes = 64;
  return shape;
}

// One side: control memory, and payloads apart from it, which only the transport may touch.
struct Side {
  Side(Rank rank, LendingWire& out, LendingWire& in)
      : control((ControlShape::kNoticeBytes + 2 * shape.payloads_at()) / sizeof(Line) + 1),
        payloads(new std::byte[2 * shape.payload_bytes()](), std::default_delete<std::byte[]>()),
        transport(rank, out, in),
        region(*transport.lend({payloads, 2 * shape.payload_bytes(), MemoryKind::cuda})),
        proxy(*Proxy::make(transport, shape, std::vector<ProxyLink>{link()}, [this] {
          filled_at_flush = told().filled;
          ++flushes;
          return flush_status;
        })) {}

  ProxyLink link() {
    auto* const begin = reinterpret_cast<std::byte*>(control.data());
    std::byte* const inbox = begin + ControlShape::kNoticeBytes;
    return {1 - transport.rank(),
            inbox,
            inbox + shape.payloads_at(),
            reinterpret_cast<std::uint64_t*>(begin),
            nullptr,
            nullptr,
            {region, 0, shape.payload_bytes()},
            {region, shape.payload_bytes(), shape.payload_bytes()}};
  }
  Mailbox& told(std::uint32_t channel = 0) {
    return *reinterpret_cast<Mailbox*>(link().inbox + shape.mailbox_at(channel));
  }
  Mailbox& tells(std::uint32_t channel = 0) {
    return *reinterpret_cast<Mailbox*>(link().outbox + shape.mailbox_at(channel));
  }
  void fill(const std::string& text, std::uint32_t channel = 0) {
    const std::uint64_t number = tells(channel).filled++;
    *reinterpret_cast<SlotHeader*>(link().outbox + shape.header_at(channel, number)) = {
        number + 7, text.size()};
    std::memcpy(payloads.get() + shape.payload_bytes() + shape.payload_at(channel, number),
                text.data(), text.size());
  }
  std::string read(std::uint32_t channel = 0) {
    const std::uint64_t number = tells(channel).freed++;
    const auto& header =
        *reinterpret_cast<const SlotHeader*>(link().inbox + shape.header_at(channel, number));
    EXPECT_EQ(header.signature, number + 7);
    return {reinterpret_cast<const char*>(payloads.get() + shape.payload_at(channel, number)),
            header.bytes};
  }

  struct alignas(128) Line {
    std::byte bytes[128] = {};
  };
  ControlShape shape = small_shape();
  std::vector<Line> control;
  std::shared_ptr<std::byte> payloads;
  LendingTransport transport;
  std::uint32_t region;
  int flushes = 0;
  std::uint64_t filled_at_flush = 0;
  Status flush_status;
  Proxy proxy;
};

struct Pair {
  LendingWire there;  // from a to b
  LendingWire back;
  Side a{0, there, back};
  Side b{1, back, there};

  void poll() {
    for (int i = 0; i < 4; ++i) {
      a.proxy.poll();
      b.proxy.poll();
    }
  }
};

TEST(GpuProxyLent, CarriesWhatSlotsHold) {
  Pair pair;
  pair.there.moves_at_once = true;
  for (std::uint64_t number = 0; number < 50; ++number) {
    const std::string text((number * 16) % 80, static_cast<char>('a' + number % 26));
    pair.a.fill(text);
    pair.poll();
    ASSERT_EQ(pair.b.told().filled, number + 1);
    ASSERT_EQ(pair.b.read(), text);
    pair.there.lent_read += text.empty() ? 0 : 1;
    pair.poll();
    ASSERT_EQ(pair.a.told().freed, number + 1);
  }
  EXPECT_TRUE(pair.a.proxy.failure().ok()) << pair.a.proxy.failure().to_string();
  EXPECT_TRUE(pair.b.proxy.failure().ok()) << pair.b.proxy.failure().to_string();
}

// Kernels hear of a message when all of it is there and can be seen.
TEST(GpuProxyLent, TellsOfWhatIsThereAndFlushed) {
  Pair pair;
  pair.a.fill("0123456789abcdef");
  pair.poll();
  EXPECT_EQ(pair.b.told().filled, 0U);
  EXPECT_EQ(pair.b.flushes, 0);
  ASSERT_EQ(pair.there.fetches.size(), 1U);
  pair.there.move_one();
  pair.poll();
  EXPECT_EQ(pair.b.told().filled, 1U);
  EXPECT_EQ(pair.b.flushes, 1);
  EXPECT_EQ(pair.b.filled_at_flush, 0U) << "the flush comes first";
  EXPECT_EQ(pair.b.read(), "0123456789abcdef");
}

// Without payload there is nothing to fetch or to flush, but it waits its turn.
TEST(GpuProxyLent, TellsOfEmptyMessagesInTheirOrder) {
  Pair pair;
  pair.a.fill("0123456789abcdef");
  pair.a.fill("");
  pair.a.fill("", 1);
  pair.poll();
  EXPECT_EQ(pair.b.told(0).filled, 0U);
  EXPECT_EQ(pair.b.told(1).filled, 1U) << "channels do not wait for each other";
  EXPECT_EQ(pair.b.flushes, 0);
  pair.there.move_one();
  pair.poll();
  EXPECT_EQ(pair.b.told(0).filled, 2U);
}

TEST(GpuProxyLent, AFlushThatFailsLosesThePeer) {
  Pair pair;
  pair.b.flush_status = Status(StatusCode::system_error, "no flush today");
  pair.a.fill("0123456789abcdef");
  pair.poll();
  pair.there.move_one();
  pair.poll();
  EXPECT_EQ(pair.b.told().filled, 0U);
  EXPECT_THAT(pair.b.proxy.failure().message(), HasSubstr("no flush today"));
  EXPECT_THAT(pair.b.proxy.take_notices(), ElementsAre(make_notice(Why::peer_failed, 1)));
}

TEST(GpuProxyLent, AFarewellDoesNotExcuseWhatCannotBeSeen) {
  Pair pair;
  pair.b.flush_status = Status(StatusCode::system_error, "no flush today");
  pair.a.fill("0123456789abcdef");
  pair.a.proxy.leave();
  pair.poll();
  EXPECT_TRUE(pair.b.proxy.has_left(0));
  pair.there.move_one();
  pair.poll();
  EXPECT_THAT(pair.b.proxy.take_notices(), ElementsAre(make_notice(Why::peer_failed, 1)));
}

// The peer has read it; the transport may not have heard of that.
TEST(GpuProxyLent, ASlotIsFreeWhenTheTransportHasReadItToo) {
  Pair pair;
  pair.there.moves_at_once = true;
  pair.a.fill("0123456789abcdef");
  pair.a.fill("fedcba9876543210");
  pair.poll();
  EXPECT_EQ(pair.b.read(), "0123456789abcdef");
  EXPECT_EQ(pair.b.read(), "fedcba9876543210");
  pair.poll();
  EXPECT_EQ(pair.a.told().freed, 0U);
  pair.there.lent_read = 1;
  pair.poll();
  EXPECT_EQ(pair.a.told().freed, 1U);
  pair.there.lent_read = 2;
  pair.poll();
  EXPECT_EQ(pair.a.told().freed, 2U);
}

TEST(GpuProxyLent, WhatCannotBeFetchedYetWaits) {
  Pair pair;
  pair.there.refuses_fetches = true;
  pair.a.fill("0123456789abcdef");
  pair.poll();
  EXPECT_EQ(pair.there.frames.size(), 1U);
  pair.there.refuses_fetches = false;
  pair.there.moves_at_once = true;
  pair.poll();
  EXPECT_EQ(pair.b.told().filled, 1U);
}

// Who leaves has told all; but what was not fetched by then is missed.
TEST(GpuProxyLent, AFarewellDoesNotExcuseWhatIsMissing) {
  for (const bool fetched : {true, false}) {
    Pair pair;
    pair.there.moves_at_once = fetched;
    pair.a.fill("0123456789abcdef");
    pair.a.proxy.leave();
    pair.poll();
    EXPECT_EQ(pair.a.proxy.has_told_all(), fetched);
    EXPECT_TRUE(pair.b.proxy.has_left(0));
    pair.there.status = Status(StatusCode::peer_lost, "gone", 0);
    pair.poll();
    if (fetched)
      EXPECT_THAT(pair.b.proxy.take_notices(), IsEmpty());
    else
      EXPECT_THAT(pair.b.proxy.take_notices(), ElementsAre(make_notice(Why::peer_failed, 1)));
  }
}

TEST(GpuProxyLent, NeedsNoFramesThatHoldASlot) {
  LendingWire there;
  LendingWire back;
  LendingTransport transport(0, there, back);
  ControlShape shape = small_shape();
  shape.slot_bytes = 4096;
  ProxyLink link{1, nullptr, nullptr, nullptr, nullptr, nullptr, {1, 0, 1}, {1, 0, 1}};
  EXPECT_TRUE(Proxy::make(transport, shape, std::vector<ProxyLink>{link}).ok());
  link.lent_inbox = {};
  EXPECT_EQ(Proxy::make(transport, shape, std::vector<ProxyLink>{link}).status().code(),
            StatusCode::unsupported);
}

// ---- A peer that sends what makes no sense ----

std::vector<std::byte> words(std::initializer_list<std::uint64_t> values, std::size_t more = 0) {
  std::vector<std::byte> bytes(values.size() * 8 + more);
  std::memcpy(bytes.data(), values.begin(), values.size() * 8);
  return bytes;
}

TEST(GpuProxyLent, BelievesNothingThatMakesNoSense) {
  struct Forged {
    LendingWire::Sent frame;
    const char* complaint;
  };
  const Forged all[] = {
      {{kMessage, words({1, 1}), nullptr, 65}, "a message of 65 lent bytes, for slots of 64"},
      {{kMessage, words({1, 1}), nullptr, ~std::size_t{0}}, "lent bytes, for slots of 64"},
      {{kMessage, words({1}), nullptr, 16}, "a message of 24 bytes, for slots of 64"},
      {{kMessage, words({1, 1}, 16)}, "is not what was agreed on"},
      {{kMessage, words({1, 1}, 16), nullptr, 16}, "is not what was agreed on"},
      {{kMessage, words({2, 1}), nullptr, 16}, "message 2 after 0"},
      {{kMessage | 3U << 8, words({1, 1}), nullptr, 16}, "channel 3 of 3"},
      {{kNotice, words({1}), nullptr, 16}, "a frame of tag 0x3 with 16 lent bytes"},
      {{kFarewell, {}, nullptr, 16}, "a frame of tag 0x4 with 16 lent bytes"}};
  for (const Forged& forged : all) {
    SCOPED_TRACE(forged.complaint);
    Pair pair;
    pair.there.frames.push_back(forged.frame);
    pair.there.frames.push_back({kMessage, words({1, 1}), nullptr, 16});
    for (int i = 0; i < 10; ++i) pair.b.proxy.poll();
    EXPECT_EQ(pair.b.proxy.failure().code(), StatusCode::corrupt_data);
    EXPECT_THAT(pair.b.proxy.failure().message(), HasSubstr(forged.complaint));
    EXPECT_THAT(pair.b.proxy.take_notices(), ElementsAre(make_notice(Why::peer_failed, 1)));
    EXPECT_THAT(pair.there.fetches, IsEmpty()) << "nothing is fetched";
  }
}

TEST(GpuProxyLent, BelievesNothingBeyondTheSlots) {
  Pair pair;
  for (std::uint64_t number = 1; number <= 3; ++number)
    pair.there.frames.push_back({kMessage, words({number, 1}), nullptr, 16});
  for (int i = 0; i < 10; ++i) pair.b.proxy.poll();
  EXPECT_THAT(pair.b.proxy.failure().message(),
              HasSubstr("message 3 while 0 have been read, of 2 slots"));
  EXPECT_EQ(pair.there.fetches.size(), 2U);
}

// Where payloads are copied, nothing is fetched.
TEST(GpuProxyLent, TakesNothingLentWhereThatWasNotAgreedOn) {
  LendingWire there;
  LendingWire back;
  Side memory(1, back, there);
  ProxyLink link = memory.link();
  link.lent_inbox = link.lent_outbox = {};
  Proxy proxy = *Proxy::make(memory.transport, memory.shape, std::vector<ProxyLink>{link});
  there.frames.push_back({kMessage, words({1, 1}), nullptr, 16});
  for (int i = 0; i < 10; ++i) proxy.poll();
  EXPECT_THAT(proxy.failure().message(), HasSubstr("16 of which are lent"));
  EXPECT_THAT(there.fetches, IsEmpty());
}

}  // namespace
}  // namespace tutti::runtime::gpu
