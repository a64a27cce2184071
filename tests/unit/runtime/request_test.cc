// request_test.cc: which buffers, roots and peers a call may have, and that what is remembered of a
// shape serves no other.
#include "runtime/request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/arrival.hpp"

namespace tutti::runtime {
namespace {

using testing::HasSubstr;

constexpr int kSize = 3;
constexpr Rank kMe = 1;
constexpr std::size_t kCount = 4;

std::array<float, 64> memory;

Request request(Collective collective, const float* input, float* output) {
  Request r;
  r.collective = collective;
  r.input = input;
  r.output = output;
  r.count = kCount;
  return r;
}

Status check(const Request& r) {
  const auto shape = RequestShape::of(r, kMe, kSize);
  return shape.ok() ? shape->check_buffers(r) : shape.status();
}

void refuses(const Request& r, const char* reason) {
  const Status status = check(r);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument) << to_string(r.collective);
  EXPECT_THAT(status.message(), HasSubstr(reason));
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

TEST(Request, OverlapIsAllowedOnlyExactlyInPlace) {
  float* const base = memory.data();
  for (const Collective c : {Collective::all_reduce, Collective::broadcast, Collective::reduce}) {
    Request r = request(c, base, base);
    r.root = kMe;
    EXPECT_TRUE(check(r).ok()) << to_string(c);
    r.output = base + 1;
    refuses(r, "overlap without being equal");
    r.output = base + kCount;
    EXPECT_TRUE(check(r).ok()) << to_string(c);
  }
  for (const Collective c : {Collective::all_gather, Collective::gather}) {
    Request r = request(c, base + kMe * kCount, base);
    r.root = kMe;
    EXPECT_TRUE(check(r).ok()) << to_string(c);
    for (const std::size_t wrong : {kMe * kCount - 1, kMe * kCount + 1, std::size_t{0}}) {
      r.input = base + wrong;
      refuses(r, "output + rank * count");
    }
    r.input = base + kSize * kCount;
    EXPECT_TRUE(check(r).ok()) << to_string(c);
  }
  for (const Collective c : {Collective::reduce_scatter, Collective::scatter}) {
    Request r = request(c, base, base + kMe * kCount);
    r.root = kMe;
    EXPECT_TRUE(check(r).ok()) << to_string(c);
    r.output = base;
    refuses(r, "input + rank * count");
  }
  refuses(request(Collective::all_to_all, base, base), "use two buffers");
}

TEST(Request, BuffersThatAreUsedMustBeThere) {
  float* const base = memory.data();
  refuses(request(Collective::all_reduce, nullptr, base), "input is null");
  refuses(request(Collective::all_reduce, base, nullptr), "output is null");
  Request empty = request(Collective::all_reduce, nullptr, nullptr);
  empty.count = 0;
  EXPECT_TRUE(check(empty).ok());
  // Not the root: it does not read, or does not write.
  EXPECT_TRUE(check(request(Collective::broadcast, nullptr, base)).ok());
  EXPECT_TRUE(check(request(Collective::scatter, nullptr, base)).ok());
  EXPECT_TRUE(check(request(Collective::reduce, base, nullptr)).ok());
  EXPECT_TRUE(check(request(Collective::gather, base, nullptr)).ok());
  Request sends = request(Collective::send_recv, base, nullptr);
  sends.to = 0;
  EXPECT_TRUE(check(sends).ok());
}

TEST(Request, RootsPeersAndCountsThatCannotBeAreNamed) {
  float* const base = memory.data();
  Request r = request(Collective::broadcast, base, base);
  r.root = kSize;
  refuses(r, "root 3");
  r.root = -1;
  refuses(r, "root -1");
  Request exchange = request(Collective::send_recv, base, base + kCount);
  exchange.to = kSize;
  refuses(exchange, "peer 3");
  exchange.to = -2;
  refuses(exchange, "peer -2");
  Request large = request(Collective::all_reduce, base, base);
  large.count = kCountMax + 1;
  refuses(large, "more than memory can hold");
}

TEST(Request, AShapeFitsNoOtherOne) {
  Request r = request(Collective::broadcast, memory.data(), memory.data());
  EXPECT_FALSE(RequestShape().fits(r));
  const RequestShape shape = RequestShape::of(r, kMe, kSize).value();
  Request other = r;
  other.input = other.output = memory.data() + 8;
  EXPECT_TRUE(shape.fits(other));
  const auto differs = [&](auto change) {
    Request changed = r;
    change(changed);
    EXPECT_FALSE(shape.fits(changed));
  };
  differs([](Request& c) { c.collective = Collective::reduce; });
  differs([](Request& c) { c.count += 1; });
  differs([](Request& c) { c.type = DataType::int32; });
  differs([](Request& c) { c.root = 2; });
  differs([](Request& c) { c.to = 0; });
  differs([](Request& c) { c.from = 0; });
}

}  // namespace
}  // namespace tutti::runtime
