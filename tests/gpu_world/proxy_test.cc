// What a proxy carries between kernels of two hosts, over queues in memory; the kernels are the
// test itself.
#include "runtime/gpu/host/proxy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>

#include "transport/memory/transport.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kRanks = 2;

ControlShape small_shape() {
  ControlShape shape;
  shape.ranks = kRanks;
  shape.channels = 3;
  shape.slots = 2;
  shape.slot_bytes = 64;
  return shape;
}

std::shared_ptr<transport::MemoryWorld> make_queues(std::size_t queue_bytes = 4096) {
  transport::TransportOptions options;
  options.size = kRanks;
  options.frame_bytes_max = 128;
  options.queue_bytes = queue_bytes;
  return transport::MemoryWorld::make(options);
}

// One side: the memory in which its kernels would meet the peer, and what they do.
struct Side {
  Side(const std::shared_ptr<transport::MemoryWorld>& queues, Rank rank)
      : memory((ControlShape::kNoticeBytes + 2 * shape.inbox_bytes()) / sizeof(Line) + 1),
        transport(transport::make_memory_transport(queues, rank)),
        proxy(*Proxy::make(*transport, shape, std::vector<ProxyLink>{link(1 - rank)})) {}

  ProxyLink link(Rank peer) {
    auto* const begin = reinterpret_cast<std::byte*>(memory.data());
    std::byte* const inbox = begin + ControlShape::kNoticeBytes;
    std::byte* const outbox = inbox + shape.inbox_bytes();
    return {peer,
            inbox,
            outbox,
            reinterpret_cast<std::uint64_t*>(begin),
            inbox + shape.payloads_at(),
            outbox + shape.payloads_at()};
  }
  Mailbox& told() { return *reinterpret_cast<Mailbox*>(link(0).inbox + at); }
  Mailbox& tells() { return *reinterpret_cast<Mailbox*>(link(0).outbox + at); }
  void use(std::uint32_t next) {
    channel = next;
    at = shape.mailbox_at(channel);
  }

  bool has_room() { return tells().filled < told().freed + shape.slots; }
  void fill(std::uint64_t signature, const std::string& text) {
    const std::uint64_t number = tells().filled;
    *reinterpret_cast<SlotHeader*>(link(0).outbox + shape.header_at(channel, number)) = {
        signature, text.size()};
    std::memcpy(link(0).outbox_payloads + shape.payload_at(channel, number), text.data(),
                text.size());
    ++tells().filled;
  }
  bool has_message() { return told().filled > tells().freed; }
  std::string read(std::uint64_t& signature) {
    const std::uint64_t number = tells().freed++;
    const auto& header =
        *reinterpret_cast<const SlotHeader*>(link(0).inbox + shape.header_at(channel, number));
    signature = header.signature;
    const std::byte* const text = link(0).inbox_payloads + shape.payload_at(channel, number);
    return {reinterpret_cast<const char*>(text), header.bytes};
  }

  struct alignas(128) Line {
    std::byte bytes[128] = {};
  };
  ControlShape shape = small_shape();
  std::vector<Line> memory;
  std::uint32_t channel = 0;
  std::size_t at = 0;
  std::unique_ptr<Transport> transport;
  Proxy proxy;
};

void settle(Side& a, Side& b) {
  for (int quiet = 0; quiet < 4;) {
    const bool moved_a = a.proxy.poll();
    const bool moved_b = b.proxy.poll();
    quiet = moved_a || moved_b ? 0 : quiet + 1;
  }
}

// Every message whole, in order, once, while queues are full most of the time.
TEST(GpuProxy, CarriesWhatSlotsHold) {
  for (const std::size_t queue_bytes : {256U, 4096U}) {
    const auto queues = make_queues(queue_bytes);
    Side a(queues, 0);
    Side b(queues, 1);
    std::mt19937 random(7);
    constexpr std::uint64_t kMessages = 500;
    std::uint64_t sent[2][3] = {};
    std::uint64_t read[2][3] = {};
    const auto text = [](std::uint64_t side, std::uint32_t channel, std::uint64_t number) {
      return std::string((number * 16 + channel * 16) % 80, static_cast<char>('a' + side));
    };
    const auto all_read = [&] {
      for (const auto& side : read)
        for (const std::uint64_t count : side)
          if (count < kMessages) return false;
      return true;
    };
    for (int step = 0; step < 1000000 && !all_read(); ++step) {
      const std::uint64_t which = random() % 2;
      Side& side = which == 0 ? a : b;
      const auto channel = static_cast<std::uint32_t>(random() % 3);
      side.use(channel);
      switch (random() % 3) {
        case 0: {
          std::uint64_t& number = sent[which][channel];
          if (number == kMessages || !side.has_room()) break;
          side.fill(number, text(which, channel, number));
          ++number;
          break;
        }
        case 1: {
          if (!side.has_message()) break;
          std::uint64_t signature = 0;
          const std::uint64_t number = read[which][channel]++;
          ASSERT_EQ(side.read(signature), text(1 - which, channel, number));
          ASSERT_EQ(signature, number);
          break;
        }
        default:
          side.proxy.poll();
      }
    }
    EXPECT_TRUE(all_read());
    EXPECT_TRUE(a.proxy.failure().ok()) << a.proxy.failure().to_string();
    EXPECT_TRUE(b.proxy.failure().ok()) << b.proxy.failure().to_string();
  }
}

TEST(GpuProxy, TellsWhatCallARankIsIn) {
  const auto queues = make_queues();
  Side a(queues, 0);
  Side b(queues, 1);
  a.use(2);
  b.use(2);
  a.tells().entered = 77;
  settle(a, b);
  EXPECT_EQ(b.told().entered, 77U);
}

TEST(GpuProxy, TellsAFailureOnce) {
  const auto queues = make_queues();
  Side a(queues, 0);
  Side b(queues, 1);
  *a.link(1).notice = make_notice(Why::timeout, 2);
  settle(a, b);
  *a.link(1).notice = make_notice(Why::aborted, 1);
  settle(a, b);
  EXPECT_THAT(b.proxy.take_notices(), ElementsAre(make_notice(Why::timeout, 2)));
  EXPECT_THAT(b.proxy.take_notices(), IsEmpty());
  EXPECT_TRUE(b.proxy.failure().ok()) << "it is not the proxy's";
}

// Who leaves has told everything by then, and is not missed.
TEST(GpuProxy, SaysFarewellBehindEverythingElse) {
  const auto queues = make_queues(256);
  auto a = std::make_unique<Side>(queues, 0);
  Side b(queues, 1);
  for (std::uint32_t channel = 0; channel < 3; ++channel) {
    a->use(channel);
    a->fill(1, std::string(64, 'x'));
    a->fill(2, std::string(64, 'y'));
  }
  a->proxy.leave();
  EXPECT_FALSE(a->proxy.has_told_all());
  while (!a->proxy.has_told_all()) {
    a->proxy.poll();
    EXPECT_FALSE(b.proxy.has_left(0));
    b.proxy.poll();
  }
  settle(*a, b);
  EXPECT_TRUE(b.proxy.has_left(0));
  for (std::uint32_t channel = 0; channel < 3; ++channel) {
    b.use(channel);
    EXPECT_EQ(b.told().filled, 2U);
  }
  a.reset();
  for (int i = 0; i < 100; ++i) b.proxy.poll();
  EXPECT_THAT(b.proxy.take_notices(), IsEmpty());
  EXPECT_TRUE(b.proxy.failure().ok());
}

TEST(GpuProxy, NamesWhoIsLost) {
  const auto queues = make_queues();
  auto a = std::make_unique<Side>(queues, 0);
  Side b(queues, 1);
  settle(*a, b);
  a.reset();
  for (int i = 0; i < 100; ++i) b.proxy.poll();
  EXPECT_THAT(b.proxy.take_notices(), ElementsAre(make_notice(Why::peer_failed, 1)));
  EXPECT_EQ(b.proxy.failure().culprit(), 0);
  EXPECT_TRUE(b.proxy.has_left(0)) << "nothing more comes from it";
}

// The reason counts for more than that its connections end.
TEST(GpuProxy, WhoSaidWhyItFailsIsNotLostBesides) {
  const auto queues = make_queues();
  auto a = std::make_unique<Side>(queues, 0);
  Side b(queues, 1);
  *a->link(1).notice = make_notice(Why::timeout, 2);
  settle(*a, b);
  a.reset();
  for (int i = 0; i < 100; ++i) b.proxy.poll();
  EXPECT_THAT(b.proxy.take_notices(), ElementsAre(make_notice(Why::timeout, 2)));
  EXPECT_TRUE(b.proxy.failure().ok());
}

TEST(GpuProxy, WantsFramesThatHoldASlot) {
  const auto queues = make_queues();
  const auto transport = transport::make_memory_transport(queues, 0);
  ControlShape shape = small_shape();
  shape.slot_bytes = 128;
  const auto made = Proxy::make(*transport, shape, {});
  EXPECT_EQ(made.status().code(), StatusCode::unsupported);
  EXPECT_THAT(made.status().message(), HasSubstr("need frames of 144"));
}

// ---- A peer that sends what makes no sense ----

std::string words(std::initializer_list<std::uint64_t> values, std::size_t more = 0) {
  std::string bytes(values.size() * 8, '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes + std::string(more, 'z');
}

struct Forged {
  std::uint32_t tag = 0;
  std::string payload;
  const char* complaint = nullptr;
};

TEST(GpuProxy, BelievesNothingThatMakesNoSense) {
  constexpr std::uint32_t kMessage = 1;
  constexpr std::uint32_t kProgress = 2;
  constexpr std::uint32_t kNotice = 3;
  constexpr std::uint32_t kFarewell = 4;
  const std::vector<Forged> all = {
      {0, "", "a frame of tag 0x0"},
      {9, "", "a frame of tag 0x9"},
      {kMessage | 3U << 8, words({1, 1}), "channel 3 of 3"},
      {kMessage, words({1}), "a message of 8 bytes"},
      {kMessage, words({1, 1}, 65), "a message of 81 bytes, for slots of 64"},
      {kMessage, words({2, 1}), "message 2 after 0"},
      {kMessage, words({0, 1}), "message 0 after 0"},
      {kProgress, words({1}), "a word of progress of 8 bytes, which has 16"},
      {kProgress, words({1, 1}), "it has read 1 messages, after 0, of 0"},
      {kNotice, words({0}), "a notice of 0x0"},
      {kNotice, words({std::uint64_t{7} << 32}), "a notice of 0x7"},
      {kNotice, words({make_notice(Why::aborted, 3)}), "with 2 ranks"},
      {kNotice, words({1, 1}), "a notice of 16 bytes, which has 8"},
      {kFarewell, words({1}), "a farewell of 8 bytes, which has 0"}};
  for (const Forged& forged : all) {
    SCOPED_TRACE(forged.complaint);
    const auto queues = make_queues();
    const auto forger = transport::make_memory_transport(queues, 0);
    Side b(queues, 1);
    const std::vector<Side::Line> before = b.memory;
    Endpoint* const endpoint = *forger->endpoint(1, 0);
    const auto send = [&](std::uint32_t tag, const std::string& payload) {
      return endpoint->send(tag, {}, std::as_bytes(std::span(payload)));
    };
    ASSERT_TRUE(send(forged.tag, forged.payload));
    ASSERT_TRUE(send(kMessage, words({1, 1}, 8))) << "nothing of it is believed after that";
    for (int i = 0; i < 10; ++i) b.proxy.poll();
    EXPECT_EQ(b.proxy.failure().code(), StatusCode::corrupt_data);
    EXPECT_EQ(b.proxy.failure().culprit(), 0);
    EXPECT_THAT(b.proxy.failure().message(), HasSubstr(forged.complaint));
    EXPECT_THAT(b.proxy.take_notices(), ElementsAre(make_notice(Why::peer_failed, 1)));
    EXPECT_EQ(std::memcmp(before.data(), b.memory.data(), before.size() * sizeof(Side::Line)), 0);
  }
}

TEST(GpuProxy, BelievesNothingAfterAFarewellOrBeyondTheSlots) {
  for (const bool farewell : {true, false}) {
    const auto queues = make_queues();
    const auto forger = transport::make_memory_transport(queues, 0);
    Side b(queues, 1);
    Endpoint* const endpoint = *forger->endpoint(1, 0);
    const auto send = [&](std::uint32_t tag, const std::string& payload) {
      return endpoint->send(tag, {}, std::as_bytes(std::span(payload)));
    };
    ASSERT_TRUE(!farewell || send(4, ""));
    for (std::uint64_t number = 1; number <= 3; ++number) {
      EXPECT_TRUE(b.proxy.failure().ok()) << "two fit";
      EXPECT_TRUE(send(1, words({number, 1})));
      if (number < 3 && !farewell)
        for (int i = 0; i < 10; ++i) b.proxy.poll();
    }
    for (int i = 0; i < 10; ++i) b.proxy.poll();
    EXPECT_THAT(b.proxy.failure().message(),
                HasSubstr(farewell ? "a frame of tag 0x1 after farewell"
                                   : "message 3 while 0 have been read, of 2 slots"));
    EXPECT_THAT(b.proxy.take_notices(), ElementsAre(make_notice(Why::peer_failed, 1)));
  }
}

}  // namespace
}  // namespace tutti::runtime::gpu
