// arrival_test.cc: the record with which a rank enters a call comes back as it was, says which part
// of it differs, and tells of the calls before.
#include "runtime/arrival.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace tutti::runtime {
namespace {

using testing::HasSubstr;
using testing::Not;

Signature some_call() {
  Signature s;
  s.sequence = 7;
  s.collective = Collective::broadcast;
  s.type = DataType::bfloat16;
  s.root = 3;
  s.count = kCountMax;
  s.plan_hash = 0x123456789abcdef0;
  s.history = 0xfedcba98;
  return s;
}

TEST(Arrival, ComesBackAsItWas) {
  for (const bool direct : {false, true}) {
    Arrival arrival{some_call(), {}, {}};
    arrival.signature.direct = direct;
    if (direct) arrival.memory[1] = {2, 4096};
    if (direct) arrival.copies = {CopyWay::attached, CopyWay::stored};
    std::array<std::byte, kDirectArrivalBytes> bytes{};
    encode(arrival, bytes);
    const auto back = decode_arrival(std::span(bytes).first(encoded_bytes(arrival)));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->signature, arrival.signature);
    EXPECT_EQ(back->memory[1].offset, arrival.memory[1].offset);
    EXPECT_EQ(back->copies, arrival.copies);
  }
}

TEST(Arrival, TellsHowCopiesTravel) {
  constexpr CopyWay kWays[] = {CopyWay::stored, CopyWay::pulled, CopyWay::attached};
  for (const CopyWay now : kWays)
    for (const CopyWay next : kWays) {
      Arrival arrival{some_call(), {}, {}};
      arrival.signature.direct = true;
      arrival.memory[2] = {2, 4096};
      arrival.copies = {now, next};
      std::vector<std::byte> bytes(encoded_bytes(arrival));
      encode(arrival, bytes);
      ASSERT_TRUE(decode_memory(bytes));
      EXPECT_EQ(decode_copies(bytes), arrival.copies);
      for (const unsigned nonsense : {0x18U, 0x60U, 0x80U}) {
        std::vector<std::byte> broken = bytes;
        broken[kArrivalBytes] |= static_cast<std::byte>(nonsense);
        EXPECT_FALSE(decode_memory(broken)) << nonsense << ": ways that there are not";
      }
    }
}

TEST(Arrival, IsTheSameRenumberedAsWrittenAnew) {
  Signature s = some_call();
  std::array<std::byte, kArrivalBytes> renumbered{};
  encode_signature(s, renumbered);
  for (const std::uint32_t sequence : {0U, 1U, 0x12345678U, 0xffffffffU}) {
    s.sequence = sequence;
    s.history = ~sequence * 3;
    renumber(s, renumbered);
    std::array<std::byte, kArrivalBytes> anew{};
    encode_signature(s, anew);
    EXPECT_EQ(renumbered, anew) << sequence;
  }
}

TEST(Arrival, OnlyMemoryThatCanBeAddressedIsTold) {
  for (unsigned told = 0; told < 8; ++told) {
    Arrival arrival{some_call(), {}, {}};
    arrival.signature.direct = true;
    for (std::uint32_t b = 0; b < 3; ++b)
      if ((told >> b & 1) != 0) arrival.memory[b] = {b + 5, std::uint64_t{b} << 40};
    std::vector<std::byte> bytes(encoded_bytes(arrival));
    encode(arrival, bytes);
    EXPECT_EQ(bytes.size(), 33U + 12U * static_cast<unsigned>(std::popcount(told)));
    const auto back = decode_arrival(bytes);
    ASSERT_TRUE(back);
    for (std::size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(back->memory[b].region, arrival.memory[b].region);
      EXPECT_EQ(back->memory[b].offset, arrival.memory[b].offset);
    }
    EXPECT_FALSE(decode_arrival(std::span(bytes).first(bytes.size() - 1))) << "cut short";
    if (told == 0) continue;
    std::fill(bytes.begin() + 33, bytes.begin() + 37, std::byte{0});
    EXPECT_FALSE(decode_arrival(bytes)) << "tells of memory, and says that there is none";
    bytes[32] = std::byte{128};
    EXPECT_FALSE(decode_arrival(bytes)) << "a bit that means nothing";
  }
}

// Which is how those that wait for a rank show it what they call.
// Whatever else the record says.
TEST(Arrival, MemoryIsKnownAgain) {
  const auto told = [](const MemoryReferences& memory, CopyWays copies = {}) {
    Arrival arrival{some_call(), memory, copies};
    arrival.signature.direct = true;
    std::vector<std::byte> bytes(encoded_bytes(arrival));
    encode(arrival, bytes);
    return bytes;
  };
  const MemoryReferences one{MemoryReference{2, 4096}, {}, {}};
  const MemoryReferences other{MemoryReference{}, {2, 4096}, {}};
  const MemoryReferences both{MemoryReference{2, 4096}, {2, 8192}, {}};
  KnownMemory known;
  EXPECT_FALSE(known.is_in(told(one))) << "nothing is known";
  known.remember(told(one));
  EXPECT_TRUE(known.is_in(told(one)));
  EXPECT_TRUE(known.is_in(told(one, {CopyWay::pulled, CopyWay::attached})));
  EXPECT_FALSE(known.is_in(told(other)));
  EXPECT_FALSE(known.is_in(told(both)));
  EXPECT_FALSE(known.is_in(told({MemoryReference{3, 4096}, {}, {}})));
  EXPECT_FALSE(known.is_in(told({MemoryReference{2, 4097}, {}, {}})));
  std::vector<std::byte> broken = told(one);
  EXPECT_FALSE(known.is_in(std::span(broken).first(broken.size() - 1)));
  EXPECT_FALSE(known.is_in(std::span(broken).first(kArrivalBytes)));
  broken[kArrivalBytes] |= std::byte{0x18};
  EXPECT_FALSE(known.is_in(broken)) << "no way of copying is that";
  known.remember(told(both));
  EXPECT_TRUE(known.is_in(told(both)));
  EXPECT_FALSE(known.is_in(told(one)));
  known.remember(told({}));
  EXPECT_TRUE(known.is_in(told({}))) << "that there is none";
  known.forget();
  EXPECT_FALSE(known.is_in(told({})));
}

TEST(Arrival, TheSignatureOfADirectCallReadsWithoutItsMemory) {
  Signature s = some_call();
  s.direct = true;
  std::array<std::byte, kArrivalBytes> bytes{};
  encode_signature(s, bytes);
  EXPECT_FALSE(decode_arrival(bytes));
  ASSERT_TRUE(decode_signature(bytes));
  EXPECT_EQ(*decode_signature(bytes), s);
  EXPECT_FALSE(decode_signature(std::span(bytes).first(kArrivalBytes - 1)));
}

// What a peer gets must not be what happened to lie there.
TEST(Arrival, BeforeALongMessageARecordFillsALine) {
  std::array<std::byte, kArrivalBytes> record{};
  encode_signature(some_call(), record);
  for (const std::size_t message : {std::size_t{0}, std::size_t{4096}, std::size_t{4097}}) {
    const std::size_t room = record_room(message);
    EXPECT_EQ(room, message > 4096 ? base::kLineBytes : kArrivalBytes);
    std::array<std::byte, kRecordRoomMax + 1> frame;
    frame.fill(std::byte{0xa5});
    EXPECT_EQ(put_record(record, room, frame.data()), frame.data() + room);
    EXPECT_TRUE(std::equal(record.begin(), record.end(), frame.begin()));
    for (std::size_t i = kArrivalBytes; i < frame.size(); ++i)
      EXPECT_EQ(frame[i], i < room ? std::byte{0} : std::byte{0xa5}) << i;
    EXPECT_EQ(decode_signature(frame), some_call());
  }
}

TEST(Arrival, HistoryTellsEveryPartOfACallAndTheCallsBefore) {
  const Signature s = some_call();
  const auto differs = [&](auto change) {
    Signature other = s;
    change(other);
    return history_after(other) != history_after(s);
  };
  EXPECT_FALSE(differs([](Signature&) {}));
  EXPECT_TRUE(differs([](Signature& o) { o.count -= 1; }));
  EXPECT_TRUE(differs([](Signature& o) { o.type = DataType::float16; }));
  EXPECT_TRUE(differs([](Signature& o) { o.collective = Collective::reduce; }));
  EXPECT_TRUE(differs([](Signature& o) { o.op = ReduceOp::max; }));
  EXPECT_TRUE(differs([](Signature& o) { o.special = SpecialKind::custom; }));
  EXPECT_TRUE(differs([](Signature& o) { o.root = 4; }));
  EXPECT_TRUE(differs([](Signature& o) { o.plan_hash += 1; }));
  EXPECT_TRUE(differs([](Signature& o) { o.direct = true; }));
  EXPECT_TRUE(differs([](Signature& o) { o.varied = true; }));
  EXPECT_TRUE(differs([](Signature& o) { o.history += 1; }));
}

TEST(Arrival, ADisagreementSaysWhetherItIsOlderThanTheCall) {
  const Signature mine = some_call();
  Signature theirs = mine;
  theirs.count = 8;
  EXPECT_THAT(disagreement(0, mine, 1, theirs), HasSubstr(": 8 x bfloat16"));
  theirs = mine;
  theirs.history += 1;
  EXPECT_THAT(disagreement(0, mine, 1, theirs), HasSubstr("different calls before broadcast #7"));
  theirs.root = 1;
  EXPECT_THAT(disagreement(0, mine, 1, theirs), Not(HasSubstr("before")));
}

}  // namespace
}  // namespace tutti::runtime
