// Peers move while a rank looks: what it saw of an earlier slice may be older than what it sees of
// a later one, and so later slices may be complete first. Over the simulated world, which can
// deliver events between any two looks.
#include <gtest/gtest.h>

#include "runtime/executor.hpp"
#include "transport/sim/transport.hpp"
#include "transport/sim/world.hpp"
#include "unit/runtime/world.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;
using collectives::Plan;

constexpr int kRanks = 3;
constexpr std::size_t kCount = 20 * 3;  // of 8 bytes, in slices of 8: 20 a chunk, of 8 in flight

struct Member {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Executor> executor;
  std::int64_t* data = nullptr;
  Plan plan;
};

std::vector<Member> make_members(transport::SimWorld& world) {
  const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "direct");
  auto programs = collectives::lower_all(*collectives::build(**algorithm, kRanks, 0, 1));
  std::vector<Member> members(kRanks);
  for (Rank r = 0; r < kRanks; ++r) {
    Member& m = members[idx(r)];
    m.transport = transport::make_sim_transport(world, r);
    m.executor = std::make_unique<Executor>(*m.transport);
    m.data = static_cast<std::int64_t*>(m.transport->allocate_shareable(kCount * 8));
    for (std::size_t i = 0; i < kCount; ++i) m.data[i] = contribution(r, i);
    m.plan = {"direct",
              {1, 8, true},
              std::make_shared<collectives::LoweredProgram>(std::move(programs[idx(r)])),
              42};
  }
  return members;
}

// True when the rank has just completed its call.
bool move(Member& member) {
  if (member.executor->done()) return false;
  EXPECT_TRUE(member.transport->poll().ok());
  member.executor->advance();
  return member.executor->done();
}

TEST(ExecutorWindow, ARankIsDoneWhenAllOfItsSlicesAre) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    transport::SimOptions options;
    options.size = options.ranks_per_host = kRanks;
    options.seed = seed;
    options.meanwhile_per_mille = 500;
    transport::SimWorld world(options);
    std::vector<Member> members = make_members(world);
    const Signature signature{
        1, Collective::all_reduce, DataType::int64, ReduceOp::sum, true, 0, kCount, 42};
    for (Member& m : members) {
      auto* memory = reinterpret_cast<std::byte*>(m.data);
      ASSERT_TRUE(m.executor->start(Call::signed_as(signature, memory, memory), m.plan).ok());
    }
    const Shape shape{Collective::all_reduce, kRanks, 0, kCount};
    int left = kRanks;
    for (int turn = 0; left > 0; ++turn) {
      ASSERT_LT(turn, 100'000) << "hang";
      world.step();
      Member& m = members[world.random(kRanks)];
      if (!move(m)) continue;
      --left;
      // Now, not later: what comes after its call is complete comes too late.
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(m.data[i], folded(shape, i)) << i;
    }
  }
}

}  // namespace
}  // namespace tutti::runtime
