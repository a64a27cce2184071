// overlap_test.cc: gradients travel while backward runs. What can be told without a clock is
// tested: the order of events. How much time that saves, over links slowed down until sending takes
// as long as backward, is measured by a test that is run by hand:
//
//   test_training --gtest_also_run_disabled_tests --gtest_filter=Overlap.DISABLED_*
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kit/throttled_transport.hpp"
#include "training/architecture/presets.hpp"
#include "training/report/trace.hpp"
#include "unit/training/layout_world.hpp"

namespace tutti::training::test {
namespace {

struct Event {
  Lane lane;
  std::string name;
  double begin_us, end_us;
};

using Events = std::vector<Event>;

void record(Engine& engine, Events& events) {
  engine.timeline().set_sink(
      [&events](Lane lane, const std::string& name, double begin_us, double end_us) {
        events.push_back({lane, name, begin_us, end_us});
      });
}

// From the first event of that name to the last.
std::optional<Event> find(const Events& events, const std::string& name) {
  std::optional<Event> found;
  for (const Event& event : events) {
    if (event.name != name) continue;
    if (!found) found = event;
    found->end_us = event.end_us;
  }
  return found;
}

TEST(Overlap, TheFirstBucketLeavesBeforeBackwardEnds) {
  EngineOptions options = small_options();
  options.mesh.dp_replicate = 2;
  options.micro_batches = 2;
  options.data.bucket_bytes = 8 << 10;
  std::vector<Events> events(2);
  train(options, 1, {}, {},
        [&](int rank, Engine& engine) { record(engine, events[static_cast<std::size_t>(rank)]); });
  for (const Events& of_rank : events) {
    const auto backward = find(of_rank, "backward 0");
    const auto bucket = find(of_rank, "all_reduce bucket 0");
    ASSERT_TRUE(backward && bucket);
    EXPECT_LT(bucket->begin_us, backward->end_us);
    EXPECT_GT(bucket->begin_us, backward->begin_us);
  }
}

// What waits is not computing.
TEST(Overlap, WaitsAreCutOutOfComputing) {
  Timeline timeline;
  Events events;
  timeline.set_sink([&events](Lane lane, const std::string& name, double begin_us, double end_us) {
    events.push_back({lane, name, begin_us, end_us});
  });
  timeline.add_exposed(2, 3);
  timeline.add_exposed(5, 6);
  timeline.add_exposed(9, 12);
  timeline.add(Lane::compute, "all", 1, 10);
  std::vector<std::pair<double, double>> pieces;
  for (const Event& event : events) pieces.emplace_back(event.begin_us, event.end_us);
  EXPECT_EQ(pieces, (std::vector<std::pair<double, double>>{{1, 2}, {3, 5}, {6, 9}}));
  EXPECT_EQ(timeline.exposed_us(), 5);
  timeline.clear_exposed();
  timeline.add(Lane::compute, "again", 1, 10);
  EXPECT_EQ(events.back().end_us - events.back().begin_us, 9);
}

// A block's values are on their way before the block before it has computed.
TEST(Overlap, ValuesAreFetchedOneBlockAhead) {
  EngineOptions options = small_options();
  options.mesh.dp_shard = 2;
  options.micro_batches = 2;
  options.data.zero = Zero::values;
  for (const int prefetch : {0, 1, 2}) {
    options.data.prefetch = prefetch;
    std::vector<Events> events(2);
    train(options, 1, {}, {}, [&](int rank, Engine& engine) {
      record(engine, events[static_cast<std::size_t>(rank)]);
    });
    for (const Events& of_rank : events) {
      const auto second = find(of_rank, "gather block 1");
      const auto first = find(of_rank, "forward block 0");
      ASSERT_TRUE(first && second);
      EXPECT_EQ(second->begin_us<first->end_us, prefetch> 0) << "prefetch " << prefetch;
    }
  }
}

// ---- Measured by hand --------------------------------------------------------------------------

struct Timed {
  double step_us = 0;               // the median
  Events events;                    // of rank 0, of the last step
  double begin_us = 0, end_us = 0;  // of that step
};

constexpr int kTimedSteps = 9;

EngineOptions timed_options(bool overlap) {
  EngineOptions options;
  options.model = *model_preset("bytes-3m");
  options.mesh.dp_replicate = 2;
  options.gemm = "auto";
  options.micro_batch_rows = 4;
  options.sequence = 256;
  options.micro_batches = 2;
  options.data.overlap = overlap;
  options.data.bucket_bytes = 512 << 10;
  return options;
}

void time_rank(Communicator& world, const EngineOptions& options, Timed& timed) {
  auto engine = Engine::make(world, options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  ASSERT_TRUE((*engine)->initialise(7).ok());
  std::vector<double> times;
  Events events;
  record(**engine, events);
  double begin_us = 0;
  for (int step = 0; step < kTimedSteps; ++step) {
    events.clear();
    (*engine)->timeline().clear_exposed();
    begin_us = Timeline::now_us();
    ASSERT_TRUE((*engine)->step(step_input(options, step)).ok());
    times.push_back(Timeline::now_us() - begin_us);
  }
  if (world.rank() != 0) return;
  timed = {0, events, begin_us, begin_us + times.back()};
  std::sort(times.begin(), times.end());
  timed.step_us = times[times.size() / 2];
}

Timed time_steps(bool overlap, std::int64_t bytes_per_s) {
  const EngineOptions options = timed_options(overlap);
  CommunicatorOptions communication;
  communication.reduce_order = "rank_tree";
  kit::ThrottleOptions throttle;
  throttle.bytes_per_s = bytes_per_s;
  throttle.bucket_bytes = bytes_per_s / 400;
  if (bytes_per_s > 0) communication.wrap_transport = kit::throttle(throttle);
  auto worlds = Communicator::for_threads(2, communication);
  EXPECT_TRUE(worlds.ok()) << worlds.status().to_string();
  Timed timed;
  std::vector<std::thread> ranks;
  for (Communicator& world : *worlds) ranks.emplace_back([&] { time_rank(world, options, timed); });
  for (std::thread& rank : ranks) rank.join();
  return timed;
}

// When a step over links without a limit would have ended had its buckets, which became ready when
// they did, gone over slow ones, one after the other at full speed: the ideal of overlap.
double ideal_us(const Timed& free, const std::vector<double>& bucket_us) {
  double sent_us = 0, ready_us = 0;
  std::size_t bucket = 0;
  for (const Event& event : free.events) {
    if (!event.name.starts_with("all_reduce bucket") || bucket == bucket_us.size()) continue;
    ready_us = event.begin_us - free.begin_us;
    sent_us = std::max(sent_us, ready_us) + bucket_us[bucket++];
  }
  const auto backward = find(free.events, "backward 0");
  const double after_us = free.end_us - backward->end_us;  // the optimizer and what surrounds it
  return std::max(sent_us, backward->end_us - free.begin_us) + after_us;
}

// How much of the step's communication lay under compute, as its trace tells.
double hidden_share(const Timed& timed) {
  RankTrace trace;
  for (const Event& event : timed.events)
    trace.events.push_back(
        {event.name, event.lane == Lane::compute ? TraceLane::compute : TraceLane::communication,
         static_cast<std::int64_t>(event.begin_us * 1e3),
         static_cast<std::int64_t>(event.end_us * 1e3)});
  return overlap(trace).hidden_share();
}

TEST(Overlap, DISABLED_HidesCommunicationBehindBackward) {
  ::setenv("TUTTI_WAIT", "block", 1);
  const Timed free = time_steps(true, 0);
  const auto backward = find(free.events, "backward 0");
  ASSERT_TRUE(backward);
  const double backward_us = backward->end_us - backward->begin_us;
  // Between two ranks an all_reduce sends as many bytes as it has.
  const auto model = static_cast<double>(4 * timed_options(true).model.parameter_count());
  const auto rate = static_cast<std::int64_t>(model / (backward_us * 1e-6));
  fmt::print(
      "step without throttling {:.1f} ms, backward {:.1f} ms; gradients {:.1f} MB, links of "
      "{:.1f} MB/s\n",
      free.step_us / 1e3, backward_us / 1e3, model / 1e6, static_cast<double>(rate) / 1e6);
  std::vector<double> bucket_us;
  {
    auto worlds = Communicator::for_threads(2);
    std::vector<std::thread> ranks;
    for (Communicator& world : *worlds)
      ranks.emplace_back([&] {
        auto engine = Engine::make(world, timed_options(true));
        if (world.rank() != 0) return;
        const DataParallel& data = (*engine)->data_parallel();
        for (std::size_t i = 0; i < data.group_count(); ++i)
          bucket_us.push_back(static_cast<double>(4 * data.group(i).count()) /
                              static_cast<double>(rate) * 1e6);
      });
    for (std::thread& rank : ranks) rank.join();
  }
  for (int round = 0; round < 5; ++round) {
    const Timed apart = time_steps(false, rate);
    const Timed together = time_steps(true, rate);
    const double ideal = ideal_us(time_steps(true, 0), bucket_us);
    fmt::print(
        "round {}: without overlap {:.1f} ms, with {:.1f} ms: {:.2f} times as fast; ideal "
        "{:.1f} ms, {:.2f} of it; under compute {:.0f} % and {:.0f} % of communication\n",
        round, apart.step_us / 1e3, together.step_us / 1e3, apart.step_us / together.step_us,
        ideal / 1e3, ideal / together.step_us, 100 * hidden_share(apart),
        100 * hidden_share(together));
  }
}

}  // namespace
}  // namespace tutti::training::test
