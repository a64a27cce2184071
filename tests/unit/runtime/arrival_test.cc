// arrival_test.cc: the record with which a rank enters a call comes back as it was, says which part
// of it differs, and tells of the calls before.
#include "runtime/arrival.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

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
    Arrival arrival{some_call(), {}};
    arrival.signature.direct = direct;
    if (direct) arrival.memory[1] = {2, 4096};
    std::array<std::byte, kDirectArrivalBytes> bytes{};
    encode(arrival, bytes);
    const auto back = decode_arrival(std::span(bytes).first(encoded_bytes(arrival.signature)));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->signature, arrival.signature);
    EXPECT_EQ(back->memory[1].offset, arrival.memory[1].offset);
  }
}

// Which is how those that wait for a rank show it what they call.
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
