// Tuning tables: the text there and back, what it refuses, and how the planner goes by one.
#include "collectives/tuning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/explain.hpp"
#include "collectives/planner.hpp"
#include "tutti/topology.hpp"

namespace tutti::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kKiB = 1024;

constexpr const char* kSmallTable =
    "tutti-tuning 1\nmachine m\nplace shm ranks=2 cores=2 direct=yes\n";

// ---- The text ----

TEST(TuningText, ReadsAllThatThereIs) {
  const auto table = tuning_from_text(
      "# by hand\n\ntutti-tuning 1\r\nmachine x86_64, some  processor\n"
      "transport shm latency_ns=62.5 send_ns=6e1\n"
      "place shm ranks=2 cores=3 direct=yes\n"
      "use all_reduce from=48K algorithm=direct lowering=direct channels=2 slice=64KiB\n"
      "  use all_reduce from=0 algorithm=doubling lowering=staged\n"
      "use all_reduce from=1MiB algorithm=model\n"
      "time all_reduce size=8 algorithm=doubling lowering=staged us=0.75 plain_us=1\n");
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  EXPECT_EQ(table->machine, "x86_64, some  processor");
  const TransportFigures* figures = table->figures("shm");
  ASSERT_NE(figures, nullptr);
  EXPECT_EQ(figures->latency_ns, 62.5);
  EXPECT_EQ(figures->send_ns, 60);
  EXPECT_EQ(figures->bandwidth, std::nullopt);
  EXPECT_EQ(table->figures("tcp"), nullptr);
  const TuningPlace* place = table->place({"shm", 2, 3, true});
  ASSERT_NE(place, nullptr);
  EXPECT_EQ(table->place({"shm", 2, 3, false}), nullptr);
  // Entries are put in order.
  ASSERT_EQ(place->uses.size(), 3U);
  EXPECT_EQ(place->uses[0].choice.algorithm, "doubling");
  EXPECT_EQ(place->uses[1].choice, (TunedChoice{"direct", {2, 64 * kKiB, true}}));
  EXPECT_EQ(place->uses[2].choice, TunedChoice());
  ASSERT_EQ(place->times.size(), 1U);
  EXPECT_EQ(place->times[0].us, 0.75);
  EXPECT_EQ(place->times[0].plain_us, 1);
}

TEST(TuningText, PrintsAndReadsAgainToTheSame) {
  TuningTable table;
  table.machine = "m";
  table.transports.push_back({"tcp", 1.0 / 3, 1e-3, {}, {}, {}, {}, 0, 1e9});
  TuningPlace place{{"tcp", 4, 2, false}, {}, {}};
  place.uses.push_back({Collective::all_gather, 0, {"ring", {1, 1, false}}});
  place.uses.push_back({Collective::all_gather, 1 << 20, {}});
  place.times.push_back({Collective::barrier, 12345, {"dissemination", {1, 3072, false}}, 0.1, 7});
  table.places.push_back(place);
  table.places.push_back({{"tcp", 1, 2, false}, {}, {}});  // nothing measured yet
  const auto again = tuning_from_text(to_text(table));
  ASSERT_TRUE(again.ok()) << again.status().to_string() << to_text(table);
  EXPECT_EQ(*again, table);
  EXPECT_EQ(tuning_hash(*again), tuning_hash(table));
  table.places[0].times[0].us = 0.2;
  EXPECT_NE(tuning_hash(*again), tuning_hash(table));
}

TEST(TuningText, ATableMayBeEmpty) {
  const auto table = tuning_from_text("tutti-tuning 1\nmachine m");
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE(table->places.empty());
  EXPECT_TRUE(table->transports.empty());
}

TEST(TuningText, ErrorsNameTheLineAndTheWord) {
  const struct {
    const char* line;
    const char* word;
  } cases[] = {
      {"use all_reduce from=0 algorithm=Ring!", "'algorithm=Ring!'"},
      {"use all_reduce from=many algorithm=ring lowering=staged", "'from=many'"},
      {"use all_reduce from=0 algorithm=ring", "lowering= is missing"},
      {"use all_reduce algorithm=ring lowering=staged", "from= is missing"},
      {"use all_reduce from=0 from=0 algorithm=model", "twice"},
      {"use all_reduce from=0 algorithm=model channels=2", "stands alone"},
      {"use everything from=0 algorithm=ring lowering=staged", "'everything'"},
      {"use all_reduce from=0 algorithm=ring lowering=maybe", "'lowering=maybe'"},
      {"use all_reduce from=0 algorithm=ring lowering=staged channels=0", "'channels=0'"},
      {"use all_reduce from=0 algorithm=ring lowering=staged channels=65", "'channels=65'"},
      {"use all_reduce from=0 algorithm=ring lowering=staged slice=0", "'slice=0'"},
      {"use all_reduce from=0 algorithm=ring lowering=staged slice=2GiB", "'slice=2GiB'"},
      {"use all_reduce from=0 algorithm=ring lowering=staged colour=red", "unknown key"},
      {"use all_reduce from=0 ring", "key=value"},
      {"use", "which collective"},
      {"time all_reduce size=8 algorithm=ring lowering=staged us=0", "'us=0'"},
      {"time all_reduce size=8 algorithm=ring lowering=staged us=nan", "'us=nan'"},
      {"time all_reduce size=8 algorithm=ring lowering=staged", "us= is missing"},
      {"time all_reduce size=8 algorithm=model lowering=staged us=1", "time is that of an"},
      {"transport smoke latency_ns=1", "'smoke'"},
      {"transport shm latency_ns=-1", "'latency_ns=-1'"},
      {"transport shm bandwidth=0", "'bandwidth=0'"},
      {"transport shm bandwidth=inf", "'bandwidth=inf'"},
      {"transport", "which transport"},
      {"place shm ranks=2 cores=2 direct=yes", "second place"},
      {"place shm ranks=0 cores=2 direct=yes", "'ranks=0'"},
      {"place shm ranks=2 cores=2", "direct= is missing"},
      {"place", "which transport"},
      {"machine m", "second machine"},
      {"banana\t\x01", "'banana?\?'"},
  };
  for (const auto& each : cases) {
    const auto table = tuning_from_text(std::string(kSmallTable) + each.line + "\n");
    ASSERT_FALSE(table.ok()) << each.line;
    EXPECT_EQ(table.status().code(), StatusCode::corrupt_data);
    EXPECT_THAT(table.status().message(), AllOf(HasSubstr("line 4"), HasSubstr(each.word)))
        << each.line;
  }
}

TEST(TuningText, WhatIsNoTableIsRefused) {
  for (const char* text : {"", "\n\n", "tutti-tuning 1\n", "tutti-tuning 2\nmachine m\n",
                           "machine m\ntutti-tuning 1\n", "tutti-tuning 1\nmachine \n",
                           "tutti-tuning 1\nmachine m\nuse all_reduce from=0 algorithm=model\n"})
    EXPECT_EQ(tuning_from_text(text).status().code(), StatusCode::corrupt_data) << text;
  EXPECT_FALSE(tuning_from_text(std::string((std::size_t{4} << 20) + 1, '\n')).ok());
  const std::string twice = "use all_reduce from=0 algorithm=model\n";
  EXPECT_THAT(tuning_from_text(kSmallTable + twice + twice).status().message(),
              HasSubstr("two lines say what to use for all_reduce"));
}

TEST(TuningText, PlacesAreCounted) {
  std::string text = "tutti-tuning 1\nmachine m\n";
  for (int ranks = 1; ranks <= 1025; ++ranks)
    text += "place shm ranks=" + std::to_string(ranks) + " cores=1 direct=no\n";
  EXPECT_THAT(tuning_from_text(text).status().message(), HasSubstr("line 1027: more than 1024"));
}

// ---- What it says ----

TEST(Tuning, UsesWhatBeginsAtOrBelowTheSize) {
  TuningPlace place;
  EXPECT_EQ(use_for(place, Collective::all_reduce, 8), nullptr);
  place.uses = {{Collective::all_reduce, 16, {"ring", {}}},
                {Collective::all_reduce, 64, {"direct", {}}},
                {Collective::all_gather, 0, {"bruck", {}}}};
  EXPECT_EQ(use_for(place, Collective::all_reduce, 15), nullptr);
  EXPECT_EQ(use_for(place, Collective::all_reduce, 16)->choice.algorithm, "ring");
  EXPECT_EQ(use_for(place, Collective::all_reduce, 63)->choice.algorithm, "ring");
  EXPECT_EQ(use_for(place, Collective::all_reduce, ~std::size_t{0})->choice.algorithm, "direct");
  EXPECT_EQ(use_for(place, Collective::broadcast, 16), nullptr);
}

TEST(Tuning, TimesBetweenMeasuredSizesAreBetweenTheirTimes) {
  TuningPlace place;
  const TunedChoice ring{"ring", {}};
  place.times = {{Collective::all_reduce, 64, ring, 2, {}},
                 {Collective::all_reduce, 64, {"ring", {2, 4096, false}}, 1, {}},
                 {Collective::all_reduce, 4096, ring, 16, {}}};
  const auto time = [&](std::size_t bytes) {
    return measured_time(place, Collective::all_reduce, bytes, "ring", false);
  };
  EXPECT_EQ(time(63), std::nullopt);
  EXPECT_EQ(time(64)->us, 1);  // the best of its settings
  EXPECT_TRUE(time(64)->exact);
  EXPECT_NEAR(time(512)->us, 4, 1e-9);
  EXPECT_FALSE(time(512)->exact);
  EXPECT_EQ(time(4096)->us, 16);
  EXPECT_EQ(time(4097), std::nullopt);
  EXPECT_EQ(measured_time(place, Collective::all_reduce, 64, "ring", true), std::nullopt);
  EXPECT_EQ(measured_time(place, Collective::all_reduce, 64, "tree", false), std::nullopt);
  EXPECT_EQ(measured_time(place, Collective::broadcast, 64, "ring", false), std::nullopt);
}

TEST(Tuning, FiguresReplaceTheModelsNumbers) {
  TransportFigures figures;
  figures.transport = "tcp";
  figures.send_ns = 7;
  figures.switch_ns = 9;
  const CostConstants constants = with_figures({}, figures);
  EXPECT_EQ(constants.sockets.send_ns, 7);
  EXPECT_EQ(constants.switch_ns, 9);
  EXPECT_EQ(constants.sockets.receive_ns, CostConstants().sockets.receive_ns);
  EXPECT_EQ(constants.shared_memory, CostConstants().shared_memory);
}

// ---- The planner ----

PlannerOptions options_with(TuningPlace place) {
  PlannerOptions options;
  options.direct_possible = true;
  options.channel_count = 2;
  options.measured = std::make_shared<const TuningPlace>(std::move(place));
  return options;
}

Planner make(PlannerOptions options, int ranks = 4) {
  Topology topology = *parse_synthetic_topology("1x4");
  std::vector<VertexId> placement = default_placement(topology, ranks);
  return Planner(std::move(topology), std::move(placement), std::move(options));
}

PlanQuery all_reduce(std::size_t bytes) { return {Collective::all_reduce, bytes / 4}; }

// The model would never take a ring with 4 KiB slices.
TuningPlace odd_place() {
  TuningPlace place;
  place.uses = {{Collective::all_reduce, 4096, {"ring", {2, 4096, false}}},
                {Collective::all_reduce, 16384, {}}};
  place.times = {{Collective::all_reduce, 4096, {"ring", {2, 4096, false}}, 12.5, {}},
                 {Collective::all_reduce, 4096, {"direct", {1, 4096, true}}, 25, {}}};
  return place;
}

TEST(TunedPlanner, ObeysTheTableInItsRange) {
  Planner model = make(options_with({}));
  Planner tuned = make(options_with(odd_place()));
  const auto plan = tuned.plan(all_reduce(4096), 1);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->algorithm, "ring");
  EXPECT_EQ((*plan)->settings, (PlanSettings{2, 4096, false}));
  for (const std::size_t bytes : {8U, 4092U, 16384U, 1U << 20}) {
    EXPECT_EQ((*tuned.plan(all_reduce(bytes), 0))->hash, (*model.plan(all_reduce(bytes), 0))->hash)
        << bytes;
    EXPECT_FALSE(tuned.explain(all_reduce(bytes))->by_measurement) << bytes;
  }
  EXPECT_NE((*model.plan(all_reduce(4096), 1))->hash, (*plan)->hash);
}

TEST(TunedPlanner, ShowsPredictedBesideMeasured) {
  Planner tuned = make(options_with(odd_place()));
  const auto explanation = tuned.explain(all_reduce(4096));
  ASSERT_TRUE(explanation.ok());
  EXPECT_TRUE(explanation->by_measurement);
  EXPECT_EQ(chosen_by(*explanation), "measured");
  const Candidate& best = explanation->candidates.front();
  EXPECT_EQ(best.algorithm, "ring");
  EXPECT_GT(best.predicted_us, 0);
  EXPECT_EQ(measured_text(best), "12.5 us");
  EXPECT_THAT(reason(*explanation), HasSubstr("measured, 12.5 us by the tuning table; predicted"));
  EXPECT_THAT(to_text(*explanation),
              AllOf(HasSubstr(" measured "), HasSubstr("12.5 us"), HasSubstr("25 us")));
  int rings = 0;
  for (const Candidate& candidate : explanation->candidates)
    rings += candidate.algorithm == "ring" && !candidate.settings.direct;
  EXPECT_EQ(rings, 1);  // the model's own ring gave way
  const auto small = tuned.explain(all_reduce(8));
  EXPECT_THAT(to_text(*small), Not(HasSubstr(" measured ")));
  EXPECT_EQ(chosen_by(*small), "model");
}

// What a table names may not exist, or not here: never an error of the call's.
TEST(TunedPlanner, FallsBackWithTheReason) {
  const struct {
    TunedChoice choice;
    const char* why;
    void (*change)(PlannerOptions&);
  } cases[] = {
      {{"miracle", {1, 4096, false}}, "no such algorithm", [](PlannerOptions&) {}},
      {{"ring", {3, 4096, false}}, "offers 2 channels", [](PlannerOptions&) {}},
      {{"ring", {1, 1 << 20, false}}, "carries 65536 bytes", [](PlannerOptions&) {}},
      {{"ring", {1, 1, false}}, "slices of 1 bytes cannot hold", [](PlannerOptions&) {}},
      {{"direct", {1, 4096, true}},
       "cannot address",
       [](PlannerOptions& options) { options.direct_possible = false; }},
      {{"ring", {1, 4096, false}},
       "set to tree",
       [](PlannerOptions& options) { options.algorithm = "tree"; }},
      {{"direct", {1, 4096, true}},
       "lowering was set to staged",
       [](PlannerOptions& options) { options.lowering = Lowering::staged; }},
      {{"ring", {1, 4096, false}},
       "channels was set to 2",
       [](PlannerOptions& options) { options.channels = 2; }},
      {{"ring", {1, 4096, false}},
       "set to 8192 bytes",
       [](PlannerOptions& options) { options.slice_bytes = 8192; }},
  };
  for (const auto& each : cases) {
    TuningPlace place;
    place.uses = {{Collective::all_reduce, 0, each.choice}};
    PlannerOptions options = options_with(place);
    each.change(options);
    Planner tuned = make(options);
    options.measured = nullptr;
    Planner model = make(options);
    const auto plan = tuned.plan(all_reduce(65536), 0);
    ASSERT_TRUE(plan.ok()) << each.why;
    EXPECT_EQ((*plan)->hash, (*model.plan(all_reduce(65536), 0))->hash) << each.why;
    const auto explanation = tuned.explain(all_reduce(65536));
    EXPECT_FALSE(explanation->by_measurement);
    EXPECT_THAT(explanation->table_refused, HasSubstr(each.why));
    EXPECT_THAT(reason(*explanation), HasSubstr(each.why));
  }
}

TEST(TunedPlanner, KeepsTheOrderThatAReductionNeeds) {
  TuningPlace place;
  place.uses = {{Collective::all_reduce, 0, {"ring", {1, 4096, false}}}};
  Planner tuned = make(options_with(place));
  PlanQuery query = all_reduce(4096);
  query.form = ReductionForm::tree;
  const auto plan = tuned.plan(query, 0);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_NE((*plan)->algorithm, "ring");
  EXPECT_THAT(tuned.explain(query)->table_refused, HasSubstr("rank_tree"));
}

TEST(TunedPlanner, PlansWhatIsAskedFor) {
  Planner planner = make(options_with({}));
  const auto plan = planner.plan_as(all_reduce(4096), {"ring", {2, 4096, false}}, 3);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->algorithm, "ring");
  EXPECT_EQ((*plan)->program->rank, 3);
  EXPECT_EQ(planner.plan_as(all_reduce(4096), {"miracle", {}}, 0).status().code(),
            StatusCode::unsupported);
}

TEST(TunedPlanner, MeasuredConstantsChangePredictions) {
  PlannerOptions options = options_with({});
  Planner usual = make(options);
  options.constants.shared_memory.send_ns *= 10;
  options.constants.shared_memory.receive_ns *= 10;
  Planner slow = make(options);
  EXPECT_GT(slow.explain(all_reduce(8))->candidates[0].predicted_us,
            2 * usual.explain(all_reduce(8))->candidates[0].predicted_us);
}

}  // namespace
}  // namespace tutti::collectives
