// Hangs that are made on purpose, in every algorithm: one rank never makes the call, or stops in
// the middle of it. Whatever the others wait for then, the chain of their waits must end at that
// rank.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/flight/chain.hpp"
#include "transport/memory/transport.hpp"
#include "world.hpp"

namespace tutti::runtime {
namespace {

using collectives::Algorithm;
using collectives::Plan;
using collectives::PlanSettings;
using testing::Buffers;
using testing::idx;
using testing::Shape;

constexpr int kIdleRounds = 10;

// Ranks of one call, of which one stands still after some rounds.
class Hang {
 public:
  Hang(const Algorithm& algorithm, const Shape& shape, const PlanSettings& settings, Rank still,
       int rounds)
      : shape_(shape), still_(still), rounds_(rounds) {
    transport::TransportOptions options;
    options.size = shape.ranks;
    options.channel_count = 2;
    options.frame_bytes_max = 4096;
    options.queue_bytes = 8192;
    auto world = transport::MemoryWorld::make(options);
    auto schedule = collectives::build(algorithm, shape.ranks, shape.root, 1);
    EXPECT_TRUE(schedule.ok());
    std::vector<collectives::LoweredProgram> programs = collectives::lower_all(*schedule);
    signature_ = {
        1, shape.collective, DataType::int64, shape.op, settings.direct, shape.root, shape.count,
        42};
    for (Rank r = 0; r < shape.ranks; ++r) {
      transports_.push_back(transport::make_memory_transport(world, r));
      executors_.push_back(std::make_unique<Executor>(*transports_.back()));
      buffers_.push_back(make_buffers(shape, r, false));
      plans_.push_back(
          Plan{std::string(algorithm.name), settings,
               std::make_shared<collectives::LoweredProgram>(std::move(programs[idx(r)])), 42});
    }
  }

  void run() {
    for (Rank r = 0; r < shape_.ranks; ++r)
      if (r != still_ || rounds_ > 0) {
        const Call call =
            Call::signed_as(signature_, buffers_[idx(r)].input, buffers_[idx(r)].output);
        ASSERT_TRUE(executors_[idx(r)]->start(call, plans_[idx(r)]).ok());
      }
    int idle = 0;
    for (int round = 0; idle < kIdleRounds; ++round) {
      bool moved = false;
      for (Rank r = 0; r < shape_.ranks; ++r)
        if (r != still_ || round < rounds_) moved |= move(r);
      idle = moved ? 0 : idle + 1;
    }
  }

  bool over() const {
    return std::all_of(executors_.begin(), executors_.end(),
                       [](const auto& e) { return e->done(); });
  }

  // How many of the ranks that wait do not find the one that stands still; adds those that wait.
  int wrong(int& waiting) {
    const std::vector<flight::Process> processes = seen_from_outside();
    int wrong = 0;
    for (Rank r = 0; r < shape_.ranks; ++r) {
      const auto& view = processes[idx(r)].recorder.communicators[0];
      if (r == still_ || !view.wait) continue;
      ++waiting;
      const auto culprit =
          flight::find_culprit(processes, where(view), view.wait->ranks, signature_);
      if (culprit.rank == still_) continue;
      ++wrong;
      ADD_FAILURE() << "rank " << r << " blames: " << to_string(culprit);
    }
    return wrong;
  }

 private:
  bool move(Rank r) {
    auto polled = transports_[idx(r)]->poll();
    EXPECT_TRUE(polled.ok());
    const bool moved = executors_[idx(r)]->advance();
    return moved || *polled;
  }

  // What the recorders of such processes would hold.
  std::vector<flight::Process> seen_from_outside() {
    std::vector<flight::Process> processes;
    for (Rank r = 0; r < shape_.ranks; ++r) {
      flight::CommunicatorView view;
      view.rank = r;
      view.size = shape_.ranks;
      Executor& executor = *executors_[idx(r)];
      const bool called = r != still_ || rounds_ > 0;
      view.begun = called ? 1 : 0;
      flight::CallView call;
      call.number = 1;
      call.signature = signature_;
      call.running = called && !executor.done();
      if (called) view.calls = {call};
      if (call.running && r != still_) {
        const Executor::Awaited awaited = executor.awaited();
        EXPECT_FALSE(awaited.all.empty()) << "rank " << r << " waits for nobody, and does not move";
        if (!awaited.all.empty()) view.wait = flight::WaitView{awaited.all, awaited.what, 1};
      }
      flight::Process process;
      process.pid = r + 1;
      process.state = r == still_ && rounds_ > 0 ? 'T' : 'S';
      process.recorder.communicators = {view};
      processes.push_back(process);
    }
    return processes;
  }

  Shape shape_;
  Rank still_;
  int rounds_;  // until then it takes part
  Signature signature_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<Buffers> buffers_;
  std::vector<Plan> plans_;
};

class CulpritTest : public ::testing::TestWithParam<int> {};

TEST_P(CulpritTest, IsFoundInEveryAlgorithm) {
  const int ranks = GetParam();
  const PlanSettings settings[] = {{1, 4096, false}, {1, 4096, true}, {2, 1024, true}};
  int hangs = 0;
  int waiting = 0;
  for (const Collective collective : kAllCollectives)
    for (const Algorithm* algorithm : collectives::algorithms_for(collective)) {
      if (algorithm->grouped) continue;
      if (!collectives::build(*algorithm, ranks, 0, 1).ok()) continue;
      for (const PlanSettings& setting : settings)
        for (Rank still = 0; still < ranks; ++still)
          for (const std::size_t count : {3U, 1000U})
            for (const int rounds : {0, 1, 2, 3, 5}) {
              SCOPED_TRACE(std::string(to_string(collective)) + " " + std::string(algorithm->name) +
                           (setting.direct ? " direct" : " staged") + " count " +
                           std::to_string(count) + " still " + std::to_string(still) + " after " +
                           std::to_string(rounds));
              const Shape shape{collective, ranks, 0,
                                collective == Collective::barrier ? 0 : count};
              Hang hang(*algorithm, shape, setting, still, rounds);
              hang.run();
              if (hang.over()) continue;
              ++hangs;
              EXPECT_EQ(hang.wrong(waiting), 0);
            }
    }
  EXPECT_GT(hangs, 50);
  RecordProperty("hangs", hangs);
  RecordProperty("ranks_that_wait", waiting);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CulpritTest, ::testing::Values(2, 3, 4, 5, 8, 9));

}  // namespace
}  // namespace tutti::runtime
