// Calls over frames that are damaged on their way: with checksums, a rank's call ends with the
// right result or with an error, never with a wrong result. Over the simulated world, which also
// says when nothing is left to happen.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/executor.hpp"
#include "transport/checked/transport.hpp"
#include "transport/sim/transport.hpp"
#include "transport/sim/world.hpp"
#include "unit/runtime/world.hpp"
#include "unit/transport/tampering.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;
using transport::testing::CapturedFrame;

constexpr int kRanks = 3;
constexpr std::size_t kCount = 60;

struct Member {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Executor> executor;
  std::vector<std::int64_t> data;
  Status status;           // of the transport
  bool completed = false;  // the call, without an error

  bool over() const { return executor->done() || !status.ok(); }
};

// One all_reduce in which the frame number `damaged` of those that arrive anywhere has one bit
// flipped. Returns how many frames arrived.
int reduce_once(std::uint64_t seed, int damaged, bool checksums, std::vector<Member>& members) {
  transport::SimOptions options;
  options.size = kRanks;
  options.seed = seed;
  transport::SimWorld world(options);
  int frames = 0;
  const auto damage = [&](CapturedFrame& frame) {
    if (frames++ != damaged) return;
    const std::uint64_t bit = world.random(8 * frame.bytes.size());
    frame.bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  };
  const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "ring");
  auto programs = collectives::lower_all(*collectives::build(**algorithm, kRanks, 0, 1));
  members.clear();
  members.resize(kRanks);
  std::vector<collectives::Plan> plans(kRanks);
  const Signature signature{
      1, Collective::all_reduce, DataType::int64, ReduceOp::sum, false, 0, kCount, 42};
  for (Rank r = 0; r < kRanks; ++r) {
    Member& m = members[idx(r)];
    m.transport = std::make_unique<transport::testing::TamperingTransport>(
        transport::make_sim_transport(world, r), damage);
    if (checksums) m.transport = transport::make_checked_transport(std::move(m.transport), 1);
    m.executor = std::make_unique<Executor>(*m.transport);
    for (std::size_t i = 0; i < kCount; ++i) m.data.push_back(contribution(r, i));
    plans[idx(r)] = {"ring",
                     {1, 64, false},
                     std::make_shared<collectives::LoweredProgram>(std::move(programs[idx(r)])),
                     42};
    auto* memory = reinterpret_cast<std::byte*>(m.data.data());
    EXPECT_TRUE(m.executor->start(Call::signed_as(signature, memory, memory), plans[idx(r)]).ok());
  }
  for (bool moved = true; moved;) {
    moved = world.step();
    for (Member& m : members) {
      if (m.over()) continue;
      const auto polled = m.transport->poll();
      if (!polled.ok()) m.status = polled.status();
      moved |= m.executor->advance();
    }
  }
  for (Member& m : members) {
    if (const auto polled = m.transport->poll(); !polled.ok()) m.status = polled.status();
    m.completed = m.executor->done() && m.executor->status().ok();
    m.executor.reset();  // before the world that its transport lives in
    m.transport.reset();
  }
  return frames;
}

bool wrong(const Member& member) {
  if (!member.completed) return false;
  const Shape shape{Collective::all_reduce, kRanks, 0, kCount};
  for (std::size_t i = 0; i < kCount; ++i)
    if (member.data[i] != folded(shape, i)) return true;
  return false;
}

TEST(ExecutorChecksums, ADamagedFrameIsAnErrorNotAWrongResult) {
  std::vector<Member> members;
  const int frames = reduce_once(1, -1, true, members);
  ASSERT_GT(frames, 20);
  for (const Member& member : members) ASSERT_TRUE(member.completed && !wrong(member));
  for (int damaged = 0; damaged < frames; ++damaged) {
    SCOPED_TRACE(damaged);
    reduce_once(1 + static_cast<std::uint64_t>(damaged), damaged, true, members);
    const auto noticed = std::count_if(members.begin(), members.end(), [](const Member& m) {
      return m.status.code() == StatusCode::corrupt_data;
    });
    EXPECT_EQ(noticed, 1) << "by the one that received it";
    for (const Member& member : members) EXPECT_FALSE(wrong(member));
  }
}

// So the test above would see it.
TEST(ExecutorChecksums, WithoutThemADamagedFrameIsAWrongResult) {
  std::vector<Member> members;
  int wrong_results = 0;
  const int frames = reduce_once(1, -1, false, members);
  for (int damaged = 0; damaged < frames; ++damaged) {
    reduce_once(1 + static_cast<std::uint64_t>(damaged), damaged, false, members);
    for (const Member& member : members) wrong_results += wrong(member) ? 1 : 0;
  }
  EXPECT_GT(wrong_results, frames / 2);
}

}  // namespace
}  // namespace tutti::runtime
