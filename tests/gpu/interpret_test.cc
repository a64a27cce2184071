// The interpreter on threads: every algorithm of the table, each way in which messages can travel,
// against what the contracts say. Each world makes many calls one after the other, as a captured
// graph replays them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cases.hpp"
#include "collectives/algorithms/table.hpp"
#include "collectives/contract.hpp"
#include "collectives/lowering.hpp"

namespace tutti::runtime::gpu {
namespace {

using collectives::Algorithm;
using collectives::Copies;

constexpr std::size_t kCounts[] = {0, 1, 2, 7, 61, 251, 1009, 96};
constexpr Travels kTravels[] = {Travels::flagged, Travels::staged, Travels::direct, Travels::mixed};
// Under a sanitizer, of the calls one in so many.
#ifdef TUTTI_SANITIZED
constexpr int kOneIn = 8;
#else
constexpr int kOneIn = 1;
#endif

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

// Slots so small that most calls have several slices.
ControlShape small_shape(int ranks, std::uint32_t channels, std::uint32_t slots = 2) {
  return {static_cast<std::uint32_t>(ranks), channels, slots, 512, 256};
}

// One program of all ranks, and the worlds in which it and others of as many ranks are run.
class Tour {
 public:
  void visit(const Algorithm& algorithm, int ranks, Rank root, int group) {
    const Result<Schedule> schedule = build(algorithm, ranks, root, group);
    if (!schedule.ok()) return;
    for (const Copies copies : {Copies::pushed, Copies::pulled}) {
      if (++number_ % kOneIn != 0) continue;
      const auto programs = encode(collectives::lower_all(*schedule, copies));
      ASSERT_TRUE(programs.ok()) << programs.status().to_string();
      SCOPED_TRACE(std::string(algorithm.name) + " of " + std::to_string(ranks) + " root " +
                   std::to_string(root));
      for (const Travels travels : kTravels) make_calls(schedule->shape, *programs, travels);
    }
  }

  int calls() const { return calls_; }

 private:
  static constexpr int kCallsTogether = 3;

  CallCase next_case(const ScheduleShape& shape, Travels travels) {
    const int n = calls_++;
    CallCase what;
    what.travels = travels;
    what.seed = static_cast<std::uint64_t>(n);
    what.type = kAllDataTypes[idx(n) % std::size(kAllDataTypes)];
    what.op = kAllReduceOps[idx(n / 2) % std::size(kAllReduceOps)];
    what.count = kCounts[idx(n / 3) % std::size(kCounts)];
    if (shape.collective == Collective::barrier) what.count = 0;
    what.in_place = n % 2 == 0 && collectives::may_run_in_place(shape.collective);
    what.scaled = what.op == ReduceOp::sum && n % 3 == 0 && is_reduction(shape.collective);
    return what;
  }

  // With different numbers of threads, channels and slots, a world for each.
  HostWorld& world_of(int ranks) {
    const int kind = kinds_++ % 3;
    auto& world = worlds_[{ranks, kind}];
    if (world == nullptr)
      world = std::make_unique<HostWorld>(small_shape(ranks, kind == 2 ? 2 : 1, kind == 1 ? 5 : 2),
                                          kind == 0   ? 1
                                          : kind == 1 ? 3
                                                      : 2);
    return *world;
  }

  void make_calls(const ScheduleShape& shape, const std::vector<EncodedProgram>& programs,
                  Travels travels) {
    HostWorld& world = world_of(shape.ranks);
    std::vector<CallCase> cases;
    std::size_t bytes = 0;
    for (int i = 0; i < kCallsTogether; ++i) {
      cases.push_back(next_case(shape, travels));
      cases.back().channels = i == 1 ? 1 : world.shape().channels;
      bytes += Trial::bytes_needed(shape, cases.back());
    }
    std::vector<std::vector<std::byte>> arenas(idx(shape.ranks), std::vector<std::byte>(bytes));
    for (Rank rank = 0; rank < shape.ranks; ++rank) world.share(rank, arenas[idx(rank)].data());
    std::vector<Trial> trials;
    std::vector<Job> jobs;
    std::size_t offset = 0;
    for (const CallCase& what : cases) {
      trials.emplace_back(shape, programs, what, arenas, offset);
      jobs.push_back(trials.back().job());
      offset += Trial::bytes_needed(shape, what);
    }
    ASSERT_TRUE(world.run(jobs)) << cases[0].text();
    for (const Trial& trial : trials) EXPECT_EQ(trial.judge(), "");
  }

  std::map<std::pair<int, int>, std::unique_ptr<HostWorld>> worlds_;
  int number_ = 0;
  int kinds_ = 0;
  int calls_ = 0;
};

class EveryAlgorithm : public ::testing::TestWithParam<Collective> {};

TEST_P(EveryAlgorithm, DoesWhatItsContractSays) {
  Tour tour;
  for (const Algorithm* algorithm : collectives::algorithms_for(GetParam()))
    for (int ranks = 1; ranks <= 9; ++ranks)
      for (const Rank root : {0, ranks - 1}) {
        if (root > 0 && !has_root(GetParam())) continue;
        for (const int group : {1, 2, 3, 4}) {
          if (group > 1 && !algorithm->grouped) continue;
          tour.visit(*algorithm, ranks, root, group);
        }
      }
  EXPECT_GT(tour.calls(), 8);
}

INSTANTIATE_TEST_SUITE_P(Gpu, EveryAlgorithm, ::testing::ValuesIn(kAllCollectives),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

// All counts, types, operations and ways of one algorithm.
void sweep(std::string_view name, int ranks, std::span<const DataType> types,
           std::span<const ReduceOp> ops, bool scaled = false) {
  const auto algorithm = collectives::find_algorithm(Collective::all_reduce, name);
  const Result<Schedule> schedule = build(**algorithm, ranks, 0);
  const auto programs = encode(collectives::lower_all(*schedule));
  ASSERT_TRUE(programs.ok());
  HostWorld world(small_shape(ranks, 1), 2);
  for (const DataType type : types)
    for (const ReduceOp op : ops)
      for (const Travels travels : {Travels::flagged, Travels::staged, Travels::direct}) {
        const auto seed = static_cast<std::uint64_t>(op);
        const CallCase what{type, op, 131, false, travels, 1, seed, scaled};
        std::vector<std::vector<std::byte>> arenas(
            idx(ranks), std::vector<std::byte>(Trial::bytes_needed(schedule->shape, what)));
        for (Rank rank = 0; rank < ranks; ++rank) world.share(rank, arenas[idx(rank)].data());
        const Trial trial(schedule->shape, *programs, what, arenas, 0);
        ASSERT_TRUE(world.run({&trial.job(), 1})) << what.text();
        EXPECT_EQ(trial.judge(), "");
      }
}

TEST(Interpreter, ReducesEveryTypeWithEveryOperation) {
  sweep("ring", 3, kAllDataTypes, kAllReduceOps);
  sweep("direct", 3, kAllDataTypes, kAllReduceOps);
}

TEST(Interpreter, ScalesEveryTypeBeforeItIsSummed) {
  constexpr ReduceOp kSum[] = {ReduceOp::sum};
  sweep("ring", 3, kAllDataTypes, kSum, true);
  sweep("direct", 3, kAllDataTypes, kSum, true);
}

// Who carries slots sends no more of them than their message has.
TEST(Interpreter, SlotsSayHowLongTheirMessagesAre) {
  const auto algorithm = collectives::find_algorithm(Collective::all_gather, "ring");
  const Result<Schedule> schedule = build(**algorithm, 3, 0);
  const auto programs = encode(collectives::lower_all(*schedule));
  ASSERT_TRUE(programs.ok());
  HostWorld world(small_shape(3, 1), 2);
  std::uint64_t messages = 0;
  for (const std::size_t count : {1U, 16U, 0U, 17U, 496U}) {
    const CallCase what{DataType::uint8, ReduceOp::sum, count, false, Travels::staged, 1, count};
    std::vector<std::vector<std::byte>> arenas(
        3, std::vector<std::byte>(Trial::bytes_needed(schedule->shape, what)));
    const Trial trial(schedule->shape, *programs, what, arenas, 0);
    ASSERT_TRUE(world.run({&trial.job(), 1}));
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(world.header(1, 0, messages++).bytes, (count + 15) / 16 * 16) << count;
  }
}

// The numbers on flags come back after 2^32 messages. What an earlier message has left in a slot
// must not be taken for one with the same number, so slots are filled in between.
TEST(Interpreter, FlagsMayComeBack) {
  const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "doubling");
  const Result<Schedule> schedule = build(**algorithm, 2, 0);
  const auto programs = encode(collectives::lower_all(*schedule));
  ASSERT_TRUE(programs.ok());
  HostWorld world(small_shape(2, 1), 2);
  const auto call_with = [&](std::size_t count, std::uint64_t seed) {
    const CallCase what{DataType::int32, ReduceOp::sum, count, false, Travels::flagged, 1, seed};
    std::vector<std::vector<std::byte>> arenas(
        2, std::vector<std::byte>(Trial::bytes_needed(schedule->shape, what)));
    const Trial trial(schedule->shape, *programs, what, arenas, 0);
    ASSERT_TRUE(world.run({&trial.job(), 1}));
    EXPECT_EQ(trial.judge(), "") << count;
  };
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 31;
  for (std::uint64_t round = 1; round < 4; ++round) {
    // Long messages, whose last words stay in the slots ...
    world.set_flagged_messages(round * kHalf + 100);
    for (int i = 0; i < 3; ++i) call_with(40, round * 10 + static_cast<std::uint64_t>(i));
    // ... short ones, in the time of which flags go on ...
    world.set_flagged_messages((round + 1) * kHalf - 3);
    for (int i = 0; i < 8; ++i) call_with(1, round * 20 + static_cast<std::uint64_t>(i));
    // ... and the same flags as before in the same slots.
    world.set_flagged_messages((round + 2) * kHalf + 100);
    for (int i = 0; i < 3; ++i) call_with(40, round * 30 + static_cast<std::uint64_t>(i));
  }
}

}  // namespace
}  // namespace tutti::runtime::gpu
