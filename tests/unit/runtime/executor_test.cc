// The executor over the memory transport: every algorithm, ranks 1 to 9, in place and not, staged
// and direct, several slicings and channels, against results computed without any schedule.
#include "runtime/executor.hpp"

#include <gtest/gtest.h>

#include "runtime/frame_tag.hpp"
#include "transport/memory/transport.hpp"
#include "unit/runtime/private_transport.hpp"
#include "unit/runtime/world.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;
using collectives::Algorithm;
using collectives::GroupSizes;
using collectives::Plan;
using collectives::PlanSettings;

struct Case {
  const Algorithm* algorithm;
  Shape shape;
  GroupSizes groups;
  PlanSettings settings;
  bool in_place;
};

std::string describe(const Case& c) {
  return std::string(to_string(c.shape.collective)) + " " + std::string(c.algorithm->name) +
         " ranks " + std::to_string(c.shape.ranks) + " root " + std::to_string(c.shape.root) +
         " groups " + c.groups.text() + " count " + std::to_string(c.shape.count) + " channels " +
         std::to_string(c.settings.channels) + " slice " + std::to_string(c.settings.slice_bytes) +
         (c.settings.direct ? " direct" : " staged") + (c.in_place ? " in place" : "");
}

// One world that lives for several calls, so that what a call leaves behind would be noticed.
class MemoryRanks {
 public:
  explicit MemoryRanks(int ranks, const PrivateTransport::Shares& shares = nullptr,
                       const ExecutorOptions& executor_options = {},
                       std::size_t frame_bytes = 4096) {
    transport::TransportOptions options;
    options.size = ranks;
    options.channel_count = 3;
    options.frame_bytes_max = frame_bytes;
    options.queue_bytes = 2 * frame_bytes;
    auto world = transport::MemoryWorld::make(options);
    for (Rank r = 0; r < ranks; ++r) {
      transports.push_back(transport::make_memory_transport(world, r));
      if (shares)
        transports.back() =
            std::make_unique<PrivateTransport>(std::move(transports.back()), shares);
      executors.push_back(std::make_unique<Executor>(*transports.back(), executor_options));
    }
  }

  void run(const Case& c) {
    auto plans = make_plans(c);
    ASSERT_EQ(plans.size(), idx(c.shape.ranks));
    run(c, plans);
  }

  static std::vector<Plan> make_plans(const Case& c) {
    auto schedule = collectives::build(*c.algorithm, c.shape.ranks, c.shape.root, c.groups);
    EXPECT_TRUE(schedule.ok()) << schedule.status().to_string();
    if (!schedule.ok()) return {};
    const auto share = [](collectives::LoweredProgram& program) {
      return std::make_shared<collectives::LoweredProgram>(std::move(program));
    };
    std::vector<Plan> plans;
    for (collectives::LoweredProgram& program : collectives::lower_all(*schedule))
      plans.push_back(Plan{std::string(c.algorithm->name), c.settings, share(program), 42});
    if (!c.algorithm->all_copy() || !c.settings.direct) return plans;
    auto pulled = collectives::lower_all(*schedule, collectives::Copies::pulled);
    for (std::size_t r = 0; r < plans.size(); ++r) plans[r].pulled = share(pulled[r]);
    return plans;
  }

  void start(const Case& c, const std::vector<Plan>& plans, std::vector<Buffers>& buffers) {
    for (Rank r = 0; r < c.shape.ranks; ++r)
      buffers.push_back(make_buffers(c.shape, r, c.in_place));
    ++sequence;
    for (Rank r = 0; r < c.shape.ranks; ++r) {
      Signature signature{sequence,          c.shape.collective, DataType::int64, c.shape.op,
                          c.settings.direct, c.shape.root,       c.shape.count,   42};
      const Call call = Call::signed_as(signature, buffers[idx(r)].input, buffers[idx(r)].output);
      ASSERT_TRUE(executors[idx(r)]->start(call, plans[idx(r)]).ok());
    }
  }

  void run(const Case& c, const std::vector<Plan>& plans) {
    SCOPED_TRACE(describe(c));
    std::vector<Buffers> buffers;
    start(c, plans, buffers);
    bool all_done = false;
    int idle_rounds = 0;
    while (!all_done) {
      all_done = true;
      bool moved = false;
      for (Rank r = 0; r < c.shape.ranks; ++r) {
        auto polled = transports[idx(r)]->poll();
        ASSERT_TRUE(polled.ok()) << polled.status().to_string();
        moved |= *polled;
        moved |= executors[idx(r)]->advance();
        ASSERT_TRUE(executors[idx(r)]->status().ok()) << executors[idx(r)]->status().to_string();
        all_done &= executors[idx(r)]->done();
      }
      idle_rounds = moved ? 0 : idle_rounds + 1;
      if (idle_rounds == 10) {
        for (Rank r = 0; r < c.shape.ranks; ++r)
          ADD_FAILURE() << "rank " << r << " waits for " << executors[idx(r)]->awaited().what;
        FAIL() << "hang";
      }
    }
    for (Rank r = 0; r < c.shape.ranks; ++r) check(c, r, buffers[idx(r)]);
  }

  void check(const Case& c, Rank rank, const Buffers& b) {
    const bool shared = c.in_place && shares_buffers(c.shape, rank);
    const auto right = [&](std::size_t i) {
      const bool was_input = shared && i < b.input_memory.size();
      return expected(c.shape, rank, i, was_input ? b.input_memory[i] : kUntouched);
    };
    const auto* output = reinterpret_cast<const std::int64_t*>(b.output);
    ASSERT_TRUE(all_are(output, output_elements(c.shape), right)) << "rank " << rank;
    if (c.in_place) return;
    const auto given = [&](std::size_t i) { return contribution(rank, i); };
    ASSERT_TRUE(all_are(b.input_memory.data(), b.input_memory.size(), given))
        << "input of rank " << rank << " changed";
  }

  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Executor>> executors;
  std::uint32_t sequence = 0;
};

class ExecutorTest : public ::testing::TestWithParam<int> {};

TEST_P(ExecutorTest, EveryAlgorithmComputesWhatItsCollectivePromises) {
  const int ranks = GetParam();
  MemoryRanks world(ranks);
  const PlanSettings settings[] = {
      {1, 4096, false}, {1, 4096, true}, {3, 1024, false}, {2, 512, true}};
  int cases = 0;
  for (const Algorithm& algorithm : collectives::all_algorithms()) {
    for (const GroupSizes& groups :
         {GroupSizes(), GroupSizes(2), GroupSizes(3), GroupSizes(4), GroupSizes({2, 2})}) {
      if (!groups.sizes().empty() && !algorithm.grouped) continue;
      const int roots =
          has_root(algorithm.collective) || algorithm.collective == Collective::send_recv ? ranks
                                                                                          : 1;
      for (Rank root = 0; root < roots; ++root) {
        if (!algorithm.shape(ranks, root, groups).ok()) continue;
        for (const PlanSettings& s : settings) {
          for (std::size_t count :
               {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{997}}) {
            if (algorithm.collective == Collective::barrier && count > 0) continue;
            for (bool in_place : {false, true}) {
              if (in_place && !can_run_in_place(algorithm.collective)) continue;
              world.run({&algorithm,
                         {algorithm.collective, ranks, root, count, ReduceOp::sum},
                         groups,
                         s,
                         in_place});
              if (HasFatalFailure()) return;
              ++cases;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(cases, 100);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExecutorTest, ::testing::Range(1, 10));

TEST(Executor, EveryOperationAtAnOddSize) {
  MemoryRanks world(5);
  for (const Algorithm& algorithm : collectives::all_algorithms()) {
    if (!is_reduction(algorithm.collective) || !algorithm.shape(5, 0, 1).ok()) continue;
    for (ReduceOp op : kAllReduceOps)
      for (bool direct : {false, true})
        world.run(
            {&algorithm, {algorithm.collective, 5, 2, 1013, op}, 1, {1, 4096, direct}, false});
  }
}

// Every algorithm that can, in messages of `slice_bytes`, either way and in place or not.
void run_all(MemoryRanks& world, int ranks, std::size_t count, std::size_t slice_bytes) {
  for (const Algorithm& algorithm : collectives::all_algorithms()) {
    const Rank root = has_root(algorithm.collective) ? ranks - 1 : 0;
    const GroupSizes groups = algorithm.grouped ? GroupSizes(2) : GroupSizes(1);
    if (!algorithm.shape(ranks, root, groups).ok()) continue;
    if (algorithm.collective == Collective::barrier) continue;  // moves nothing
    for (const bool direct : {false, true})
      for (const bool in_place : {false, true}) {
        if (in_place && !can_run_in_place(algorithm.collective)) continue;
        world.run({&algorithm,
                   {algorithm.collective, ranks, root, count, ReduceOp::avg},
                   groups,
                   {1, slice_bytes, direct},
                   in_place});
        if (::testing::Test::HasFatalFailure()) return;
      }
  }
}

// As calls do that are larger than the caches: results go past them, and slots of queues do not.
TEST(Executor, WhatIsStreamedIsTheSame) {
  for (const int ranks : {2, 3}) {
    MemoryRanks world(ranks, nullptr, {.streaming_bytes = 0, .stores = {}, .pulls = {}});
    ASSERT_NO_FATAL_FAILURE(run_all(world, ranks, 4001, 4096));
  }
}

// Whichever way large stores go to other ranks, and whether or not the rest is streamed.
TEST(Executor, WhicheverWayItIsStoredItIsTheSame) {
  using kernels::StoreHint;
  constexpr std::size_t kFrame = std::size_t{32} << 10;
  for (const std::size_t streaming_bytes : {std::size_t{0}, std::size_t{1} << 30})
    for (const auto way : {StoreHint::cached, StoreHint::streaming, StoreHint::string,
                           StoreHint::unclaimed, StoreHint::paged})
      for (const int ranks : {2, 3}) {
        MemoryRanks world(ranks, nullptr,
                          {.streaming_bytes = streaming_bytes, .stores = way, .pulls = {}}, kFrame);
        ASSERT_NO_FATAL_FAILURE(run_all(world, ranks, 10007, kFrame));
      }
}

ExecutorOptions loading() {
  return {.streaming_bytes = std::size_t{1} << 30, .stores = {}, .pulls = true};
}

// Calls that copy from everybody to everybody, to begin with; then whatever else there is, as it
// is.
TEST(Executor, WhatIsLoadedInsteadOfStoredIsTheSame) {
  for (const int ranks : {1, 2, 3, 5, 9})
    for (const std::size_t count : {0U, 1U, 7U, 2000U}) {
      MemoryRanks world(ranks, nullptr, loading());
      ASSERT_NO_FATAL_FAILURE(run_all(world, ranks, count, 4096));
    }
}

Case copies_to_all(Collective collective, int ranks, std::size_t count) {
  const auto algorithm = collectives::find_algorithm(collective, "direct");
  return {*algorithm,
          {collective, ranks, 0, count, ReduceOp::sum},
          GroupSizes(1),
          {1, 4096, true},
          false};
}

// Both ways are gone before one is settled upon; collectives and sizes settle by themselves.
TEST(Executor, RanksAgreeOnWhoCopies) {
  for (const int ranks : {2, 3, 4}) {
    MemoryRanks world(ranks);
    for (const Collective collective : {Collective::all_gather, Collective::all_to_all})
      for (const std::size_t count : {9U, 300U}) {
        const Case c = copies_to_all(collective, ranks, count);
        int loaded = 0;
        for (int call = 0; call < 40; ++call) {
          ASSERT_NO_FATAL_FAILURE(world.run(copies_to_all(Collective::all_reduce, ranks, count)));
          ASSERT_NO_FATAL_FAILURE(world.run(c));
          loaded += world.executors[0]->pulls() ? 1 : 0;
          for (const auto& executor : world.executors)
            ASSERT_EQ(executor->pulls(), world.executors[0]->pulls());
          EXPECT_FALSE(call < 3 && world.executors[0]->pulls()) << "stores come first";
        }
        EXPECT_GE(loaded, 3);
      }
  }
}

// Where a core is shared, times say nothing.
TEST(Executor, WhoSharesACoreWithTheLeaderStores) {
  MemoryRanks world(2);
  world.executors[0]->share_core_with({false, true});
  for (int call = 0; call < 20; ++call) {
    ASSERT_NO_FATAL_FAILURE(world.run(copies_to_all(Collective::all_gather, 2, 300)));
    ASSERT_FALSE(world.executors[1]->pulls());
  }
}

// It would hang otherwise.
TEST(Executor, RanksThatDoNotAgreeOnWhoCopiesFail) {
  MemoryRanks world(2, nullptr, loading());
  world.executors[1] = std::make_unique<Executor>(*world.transports[1]);
  const Case c = copies_to_all(Collective::all_gather, 2, 300);
  std::vector<Buffers> buffers;
  ASSERT_NO_FATAL_FAILURE(world.start(c, MemoryRanks::make_plans(c), buffers));
  for (int round = 0; round < 10; ++round)
    for (std::size_t r = 0; r < 2; ++r) {
      ASSERT_TRUE(world.transports[r]->poll().ok());
      world.executors[r]->advance();
    }
  for (const auto& executor : world.executors) {
    EXPECT_EQ(executor->status().code(), StatusCode::internal);
    EXPECT_NE(executor->status().message().find("copies"), std::string::npos)
        << executor->status().message();
  }
}

// Programs call the same few shapes again and again, and most of a call's set-up is kept for that.
TEST(Executor, PlansThatComeAgainStartAfresh) {
  MemoryRanks world(3);
  const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "ring");
  const auto scatter = collectives::find_algorithm(Collective::reduce_scatter, "ring");
  ASSERT_TRUE(algorithm.ok() && scatter.ok());
  std::vector<Case> cases;
  for (const bool direct : {false, true})
    for (const std::size_t count : {std::size_t{7}, std::size_t{2000}})
      for (const bool in_place : {false, true}) {
        const PlanSettings settings{2, 1024, direct};
        const Shape shape{Collective::all_reduce, 3, 0, count, ReduceOp::sum};
        cases.push_back({*algorithm, shape, 1, settings, in_place});
        cases.push_back(
            {*scatter, {Collective::reduce_scatter, 3, 0, count}, 1, settings, in_place});
      }
  // One set of plans for all cases of an algorithm, so that programs meet again in other calls.
  const std::vector<Plan> reduce = MemoryRanks::make_plans(cases[0]);
  const std::vector<Plan> scattered = MemoryRanks::make_plans(cases[1]);
  for (int round = 0; round < 3; ++round)
    for (const Case& c : cases)
      for (int again = 0; again < 3; ++again) {
        std::vector<Plan> plans = c.shape.collective == Collective::all_reduce ? reduce : scattered;
        for (Plan& plan : plans) plan.settings = c.settings;
        world.run(c, plans);
        if (HasFatalFailure()) return;
      }
}

// A rank tells what it can before it computes: otherwise one of two ranks would always wait.
// Inputs that nobody writes, and outputs that nobody has touched, are ready when their owner has
// entered the call. Rank 1, which has seen rank 0 do so, reads and stores all slices at once.
TEST(Executor, NobodyWaitsForWordOfWhatIsReadyAtArrival) {
  MemoryRanks world(2);
  const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "direct");
  ASSERT_TRUE(algorithm.ok());
  const Case c{*algorithm, {Collective::all_reduce, 2, 0, 4000}, 1, {1, 512, true}, false};
  std::vector<Buffers> buffers;
  const std::vector<Plan> plans = MemoryRanks::make_plans(c);
  world.start(c, plans, buffers);
  for (Rank r : {0, 1}) {
    ASSERT_TRUE(world.transports[idx(r)]->poll().ok());
    world.executors[idx(r)]->advance();
  }
  Endpoint& from_1 = **world.transports[0]->endpoint(1, 0);
  EXPECT_EQ(from_1.signalled(Signal::offered), 0U);
  EXPECT_EQ(from_1.signalled(Signal::granted), 0U);
  // Two messages a slice, eight slices in the window at least: the last it stores is message 15.
  EXPECT_GE(from_1.signalled(Signal::produced), 16U);
  EXPECT_GE(from_1.signalled(Signal::taken), 15U);
}

// Each buffer of each rank can be addressed by each peer or not, by chance; the same in every run.
TEST(Executor, SomeMemoryIsSharedAndSomeIsNot) {
  std::uint64_t shown = 0;
  const auto shares = [&shown] { return (++shown * 0x9e3779b97f4a7c15U >> 40) % 2 == 0; };
  for (int ranks = 2; ranks <= 5; ++ranks) {
    MemoryRanks world(ranks, shares);
    for (const Algorithm& algorithm : collectives::all_algorithms()) {
      const Rank root = has_root(algorithm.collective) ? ranks - 1 : 0;
      if (!algorithm.shape(ranks, root, 1).ok()) continue;
      if (algorithm.collective == Collective::barrier) continue;  // moves nothing
      for (const std::size_t count : {1U, 97U, 1500U})
        for (const bool in_place : {false, true}) {
          if (in_place && !can_run_in_place(algorithm.collective)) continue;
          world.run({&algorithm,
                     {algorithm.collective, ranks, root, count},
                     1,
                     {2, 1024, true},
                     in_place});
          if (::testing::Test::HasFatalFailure()) return;
        }
    }
  }
}

// Slices of two ranks are longer where nothing is staged, and the same calls come with buffers of
// either kind in turns.
TEST(Executor, TwoRanksCutAlikeWhateverIsShared) {
  int shared = 0;  // of ten buffers that are shown
  std::uint64_t shown = 0;
  const auto shares = [&] { return (++shown * 0x9e3779b97f4a7c15U >> 40) % 10 < unsigned(shared); };
  MemoryRanks world(2, shares);
  for (const Algorithm& algorithm : collectives::all_algorithms()) {
    if (!algorithm.shape(2, 1, 1).ok() || algorithm.collective == Collective::barrier) continue;
    const Case c{&algorithm, {algorithm.collective, 2, 1, 150'001}, 1, {1, 4096, true}, false};
    const std::vector<Plan> plans = MemoryRanks::make_plans(c);
    for (const int share : {10, 0, 10, 9, 9, 5, 10}) {
      shared = share;
      world.run(c, plans);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Rank 1 stores what is ready when rank 0 has come: all of it at a time, or half a mebibyte.
TEST(Executor, SlicesAreLongWhereNothingIsStaged) {
  struct Expected {
    std::size_t count;
    PlanSettings settings;
    int ranks;
    std::uint64_t slices;
  };
  for (const auto& [count, settings, ranks, slices] :
       {Expected{65'536, {1, 4096, true}, 2, 1}, Expected{65'537, {1, 4096, true}, 2, 2},
        Expected{262'144, {1, 4096, true}, 2, 4}, Expected{65'536, {1, 2048, true}, 2, 256},
        Expected{65'536, {1, 4096, true}, 3, 128}}) {
    SCOPED_TRACE(count);
    MemoryRanks world(ranks);
    const auto algorithm = collectives::find_algorithm(Collective::all_gather, "direct");
    world.run({*algorithm, {Collective::all_gather, ranks, 0, count}, 1, settings, false});
    EXPECT_EQ((*world.transports[0]->endpoint(1, 0))->signalled(Signal::produced), slices);
  }
}

// Memory that a peer cannot address goes through the queue, and waits for nobody before it does.
TEST(Executor, WhoCannotShareSendsBeforeAnybodyHasArrived) {
  for (const std::size_t count : {100U, 65'536U}) {
    transport::TransportOptions options;
    options.size = 2;
    auto world = transport::MemoryWorld::make(options);
    auto other = transport::make_memory_transport(world, 1);
    PrivateTransport mine(transport::make_memory_transport(world, 0), [] { return false; });
    Executor executor(mine);
    const auto algorithm = collectives::find_algorithm(Collective::all_gather, "direct");
    const Case c{*algorithm, {Collective::all_gather, 2, 0, count}, 1, {1, 65536, true}, false};
    const std::vector<Plan> plans = MemoryRanks::make_plans(c);
    const Buffers buffers = make_buffers(c.shape, 0, false);
    const Signature signature{
        1, Collective::all_gather, DataType::int64, ReduceOp::sum, true, 0, count, 42};
    ASSERT_TRUE(
        executor.start(Call::signed_as(signature, buffers.input, buffers.output), plans[0]).ok());
    Endpoint& from_0 = **other->endpoint(0, 0);
    ASSERT_TRUE(mine.poll().ok());
    executor.advance();
    ASSERT_TRUE(other->poll().ok());
    Frame frame;
    ASSERT_TRUE(from_0.peek(frame));
    EXPECT_EQ(frame.tag, static_cast<std::uint32_t>(FrameTag::arrival));
    from_0.release();
    ASSERT_TRUE(from_0.peek(frame));
    EXPECT_EQ(frame.tag, static_cast<std::uint32_t>(FrameTag::data));
    EXPECT_EQ(frame.payload.size(), std::min<std::size_t>(count * sizeof(std::int64_t), 65536));
  }
}

// Two pushes may land in a rank's memory; the first only after a staged message was taken. The
// second waits for its turn, because one counter grants both.
TEST(Executor, GrantsKeepTheirOrder) {
  using collectives::DirectForm;
  using collectives::LoweredOperand;
  using collectives::LoweredStep;
  collectives::LoweredProgram program;
  program.shape.collective = Collective::all_reduce;
  program.shape.ranks = 2;
  program.shape.chunks = 2;
  program.peers = {1};
  program.sends = {0};
  program.receives = {3};
  for (int ordinal = 0; ordinal < 3; ++ordinal) {
    const int chunk = ordinal == 2 ? 1 : 0;
    LoweredOperand message;
    message.kind = Operand::Kind::message;
    message.direct = ordinal == 0 ? DirectForm::none : DirectForm::push;
    message.mine = ordinal > 0;
    message.buffer = Buffer::output;
    message.chunk = chunk;
    message.ordinal = ordinal;
    LoweredOperand memory;
    memory.buffer = Buffer::output;
    memory.chunk = chunk;
    LoweredStep step;
    step.landing = 0;
    step.sources = {message};
    step.destinations = {memory};
    if (ordinal == 1) step.depends = {{0, false}};
    program.steps.push_back(step);
  }
  MemoryRanks world(2);
  std::vector<std::int64_t> data(2);
  const Signature signature{1, Collective::all_reduce, DataType::int64, ReduceOp::sum, true, 0, 2,
                            42};
  Call call = Call::signed_as(signature, reinterpret_cast<std::byte*>(data.data()),
                              reinterpret_cast<std::byte*>(data.data()));
  const Plan plan{
      "by hand", {1, 4096, true}, std::make_shared<collectives::LoweredProgram>(program), 42};
  ASSERT_TRUE(world.executors[0]->start(call, plan).ok());
  // Rank 1 is played by hand.
  Endpoint& peer = **world.transports[1]->endpoint(0, 0);
  Arrival arrival;
  arrival.signature = signature;
  encode(arrival, peer.reserve(encoded_bytes(arrival)));
  peer.commit(static_cast<std::uint32_t>(FrameTag::arrival), encoded_bytes(arrival));
  const auto move = [&] {
    for (int round = 0; round < 4; ++round) {
      ASSERT_TRUE(world.transports[0]->poll().ok() && world.transports[1]->poll().ok());
      world.executors[0]->advance();
    }
  };
  move();
  EXPECT_EQ(peer.signalled(Signal::granted), 0U);
  static_cast<void>(peer.reserve(sizeof(std::int64_t)));
  peer.commit(static_cast<std::uint32_t>(FrameTag::data), sizeof(std::int64_t));
  move();
  EXPECT_EQ(peer.signalled(Signal::granted), 3U);
}

TEST(Executor, DifferentCallsAreAnErrorThatShowsBothSides) {
  MemoryRanks world(2);
  auto algorithm = collectives::find_algorithm(Collective::all_reduce, "doubling");
  ASSERT_TRUE(algorithm.ok());
  auto programs = collectives::lower_all(*collectives::build(**algorithm, 2, 0));
  std::vector<std::int64_t> data(16);
  std::vector<Plan> plans;
  for (Rank r : {0, 1})
    plans.push_back(
        {"doubling", {}, std::make_shared<collectives::LoweredProgram>(programs[idx(r)]), 1});
  for (Rank r : {0, 1}) {
    Signature s{
        1, Collective::all_reduce, DataType::int64, ReduceOp::sum, false, 0, r == 0 ? 8U : 16U, 1};
    Call call = Call::signed_as(s, reinterpret_cast<std::byte*>(data.data()),
                                reinterpret_cast<std::byte*>(data.data()));
    ASSERT_TRUE(world.executors[idx(r)]->start(call, plans[idx(r)]).ok());
  }
  for (int round = 0; round < 20; ++round)
    for (Rank r : {0, 1}) {
      ASSERT_TRUE(world.transports[idx(r)]->poll().ok());
      world.executors[idx(r)]->advance();
    }
  for (Rank r : {0, 1}) {
    const Status& status = world.executors[idx(r)]->status();
    EXPECT_EQ(status.code(), StatusCode::mismatch);
    EXPECT_NE(status.message().find(": 8 x int64"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(": 16 x int64"), std::string::npos) << status.message();
  }
}

// A barrier of two, which differs in the calls that came before it.
struct TwoInABarrier {
  explicit TwoInABarrier(bool direct) : world(2) {
    auto algorithm = collectives::find_algorithm(Collective::barrier, "dissemination");
    auto programs = collectives::lower_all(*collectives::build(**algorithm, 2, 0));
    for (Rank r : {0, 1}) {
      plans.push_back({"dissemination",
                       {1, 4096, direct},
                       std::make_shared<collectives::LoweredProgram>(programs[idx(r)]),
                       1});
      Call call;
      call.signature.sequence = 5;
      call.signature.collective = Collective::barrier;
      call.signature.direct = direct;
      call.signature.plan_hash = 1;
      call.signature.history = static_cast<std::uint32_t>(r);
      call.sign();
      EXPECT_TRUE(world.executors[idx(r)]->start(call, plans[idx(r)]).ok());
    }
  }
  MemoryRanks world;
  std::vector<Plan> plans;
};

TEST(Executor, DifferentCallsBeforeAreToldByTheNext) {
  TwoInABarrier two(false);
  for (int round = 0; round < 20; ++round)
    for (Rank r : {0, 1}) {
      ASSERT_TRUE(two.world.transports[idx(r)]->poll().ok());
      two.world.executors[idx(r)]->advance();
    }
  for (const auto& executor : two.world.executors) {
    EXPECT_EQ(executor->status().code(), StatusCode::mismatch);
    EXPECT_NE(executor->status().message().find("before barrier #5"), std::string::npos)
        << executor->status().message();
  }
}

TEST(Executor, AnswersWhoAsksInADirectCall) {
  TwoInABarrier two(true);
  Executor& asked = *two.world.executors[0];
  asked.answer_inquiry(1, asked.record());
  EXPECT_TRUE(asked.status().ok()) << "it is the same call";
  asked.answer_inquiry(1, two.world.executors[1]->record());
  EXPECT_EQ(asked.status().code(), StatusCode::mismatch);
}

TEST(Executor, AFailureIsSticky) {
  MemoryRanks world(1);
  world.executors[0]->fail(Status(StatusCode::aborted, "on request"));
  auto algorithm = collectives::find_algorithm(Collective::all_reduce, "ring");
  auto programs = collectives::lower_all(*collectives::build(**algorithm, 1, 0));
  Plan plan{"ring", {}, std::make_shared<collectives::LoweredProgram>(programs[0]), 1};
  EXPECT_EQ(world.executors[0]->start(Call{}, plan).code(), StatusCode::aborted);
}

}  // namespace
}  // namespace tutti::runtime
