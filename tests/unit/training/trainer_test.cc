// trainer_test.cc: whole runs, with ranks as threads, as `tutti train` makes them: what they leave
// behind, how they resume, evaluate and end; and that number types, recomputation and schedules,
// files too, change only what they should.
#include "training/trainer/trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "training/plan/pipeline_generators.hpp"
#include "training/plan/pipeline_text.hpp"
#include "training/report/metrics.hpp"
#include "training/trainer/checkpoint.hpp"
#include "training/trainer/run_config.hpp"
#include "training/trainer/setup.hpp"
#include "training/trainer/verify.hpp"
#include "unit/training/layout_world.hpp"
#include "unit/training/model_files.hpp"

namespace tutti::training::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ModelFolder;

// ---- Runs ----

// Words in an order that can be learnt, but for a pinch of chance.
std::string small_corpus() {
  const char* const words[] = {"the ", "cat ", "sat ", "on ", "a ", "mat, ", "and ", "so ", "did "};
  const Philox random(key_of(5, "corpus"));
  std::string text;
  std::uint64_t word = 0;
  for (std::uint64_t i = 0; text.size() < 24000; ++i) {
    text += words[word];
    word = random(0, i)[0] % 5 == 0 ? random(0, i)[1] % 9 : (word + 1) % 9;
  }
  return text;
}

constexpr const char* kModel = R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
  "intermediate_size": 48, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": false})";

// A folder with a model, a corpus, and what runs write.
class Runs : public ::testing::Test {
 protected:
  Runs() {
    fs::create_directories(folder_.file("model"));
    folder_.put("model/config.json", kModel);
    folder_.put("corpus.txt", small_corpus());
  }

  // Of these overrides over a small run.
  RunConfig config(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"model.hf=" + folder_.file("model"),
                                    "model.load_weights=false",
                                    "data.train=" + folder_.file("corpus.txt"),
                                    "data.seq_len=32",
                                    "train.steps=6",
                                    "train.global_batch=8",
                                    "train.micro_batch=2",
                                    "optim.lr=3e-3",
                                    "optim.warmup=2"};
    all.insert(all.end(), more.begin(), more.end());
    auto run = parse_run_config("", "run.toml", all);
    EXPECT_TRUE(run.ok()) << run.status().to_string();
    return run.ok() ? *run : RunConfig();
  }

  std::string set(const std::string& key, const std::string& name) const {
    return key + "=" + folder_.file(name);
  }

  std::vector<StepMetrics> metrics(const std::string& log) const {
    auto read = read_metrics(folder_.file(log) + "/metrics.jsonl");
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    return read.ok() ? *read : std::vector<StepMetrics>();
  }

  ModelFolder folder_;
};

// One outcome for each rank. `stops`: which rank is told to stop; -1: none.
std::vector<RunOutcome> train_ranks(const RunConfig& run, int ranks, int stops = -1) {
  auto worlds = Communicator::for_threads(ranks, communicator_options(run));
  EXPECT_TRUE(worlds.ok()) << worlds.status().to_string();
  std::vector<RunOutcome> outcomes(static_cast<std::size_t>(ranks));
  const std::atomic<bool> stop{true}, go{false};
  std::vector<std::thread> threads;
  for (Communicator& world : *worlds)
    threads.emplace_back([&] {
      RunOutcome& outcome = outcomes[static_cast<std::size_t>(world.rank())];
      outcome = training::train(run, world, world.rank() == stops ? &stop : &go);
      if (!outcome.status.ok()) world.abort();
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

RunOutcome train_ok(const RunConfig& run, int ranks = 1) {
  const auto outcomes = train_ranks(run, ranks);
  for (const RunOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.ending, Ending::complete) << outcome.status.to_string();
    EXPECT_EQ(outcome.loss, outcomes[0].loss);
  }
  return outcomes[0];
}

std::vector<double> losses_of(const std::vector<StepMetrics>& lines) {
  std::vector<double> losses;
  for (const StepMetrics& line : lines) losses.push_back(line.loss);
  return losses;
}

double value_named(const StepMetrics& metrics, const std::string& name) {
  for (const auto& [key, value] : metrics.more)
    if (key == name) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

TEST_F(Runs, WriteALineForEachStep) {
  const RunOutcome outcome =
      train_ok(config({set("log.dir", "log"), "train.steps=30", "train.eval_every=10"}), 2);
  const auto lines = metrics("log");
  ASSERT_EQ(lines.size(), 30u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].step, static_cast<std::int64_t>(i));
    EXPECT_EQ(lines[i].tokens, static_cast<std::int64_t>(i + 1) * 8 * 32);
    EXPECT_GT(lines[i].gradient_norm, 0);
    EXPECT_GT(lines[i].seconds, 0);
    EXPECT_NEAR(lines[i].tokens_per_second * lines[i].seconds, 8 * 32, 1e-6);
    EXPECT_GT(lines[i].mfu, 0);
    EXPECT_GE(lines[i].exposed_communication, 0);
    EXPECT_LE(lines[i].exposed_communication, 1);
    EXPECT_EQ(std::isfinite(value_named(lines[i], "validation_loss")), (i + 1) % 10 == 0);
  }
  EXPECT_EQ(lines[0].learning_rate, 1.5e-3);
  EXPECT_EQ(lines[1].learning_rate, 3e-3);
  EXPECT_NEAR(lines[0].loss, std::log(256.0), 0.3);
  EXPECT_LT(lines.back().loss, 0.75 * lines[0].loss);
  EXPECT_EQ(outcome.loss, lines.back().loss);
  EXPECT_EQ(outcome.steps, 30);
  // The text held out is of the same kind.
  EXPECT_NEAR(outcome.validation_loss, lines.back().loss, 0.3);
}

TEST_F(Runs, EvaluateTheSameWhateverTheLayout) {
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"train.eval_every=6"};
    all.insert(all.end(), more.begin(), more.end());
    return config(all);
  };
  const double alone = train_ok(with({})).validation_loss;
  EXPECT_GT(alone, 1.0);
  EXPECT_EQ(train_ok(with({"parallel.zero=3"}), 2).validation_loss, alone);
  EXPECT_EQ(train_ok(with({"parallel.pp=2"}), 2).validation_loss, alone);
  EXPECT_NEAR(train_ok(with({"parallel.tp=2"}), 2).validation_loss, alone, 1e-5 * alone);
}

TEST_F(Runs, ResumeFromTheLastCheckpointAsIfTheyHadNotStopped) {
  const std::vector<std::string> keys = {set("log.dir", "log"), set("checkpoint.dir", "ck"),
                                         "train.steps=8", "checkpoint.every=3",
                                         "checkpoint.keep=0"};
  train_ok(config(keys), 2);
  const auto whole = metrics("log");
  ASSERT_EQ(whole.size(), 8u);
  EXPECT_EQ(list_checkpoints(folder_.file("ck")).size(), 3u);  // after 3, 6 and 8

  // A run that died after its 8th step, before that step's checkpoint was complete: lines 6 and 7
  // are of steps that must be made again.
  fs::rename(folder_.file("ck/step-00000008"), folder_.file("ck/step-00000008.tmp"));
  EXPECT_EQ(train_ok(config(keys), 2).steps, 8);
  const auto again = metrics("log");
  EXPECT_EQ(losses_of(again), losses_of(whole));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(again[i].seconds == whole[i].seconds, i < 6) << i;
  EXPECT_TRUE(fs::exists(folder_.file("ck/step-00000008")));
  EXPECT_FALSE(fs::exists(folder_.file("ck/step-00000008.tmp")));
}

TEST_F(Runs, ThatAreCompleteResumeToNothing) {
  const std::vector<std::string> keys = {set("log.dir", "log"), set("checkpoint.dir", "ck")};
  train_ok(config(keys));
  const auto whole = metrics("log");
  EXPECT_EQ(train_ok(config(keys)).ending, Ending::complete);
  EXPECT_EQ(losses_of(metrics("log")), losses_of(whole));
}

TEST_F(Runs, WithResumeNeverBeginAnew) {
  std::vector<std::string> keys = {set("log.dir", "log"), set("checkpoint.dir", "ck")};
  train_ok(config(keys));
  const auto whole = metrics("log");
  keys.push_back("checkpoint.resume=never");
  EXPECT_EQ(train_ok(config(keys)).steps, 6);
  const auto again = metrics("log");
  EXPECT_EQ(losses_of(again), losses_of(whole));
  EXPECT_NE(again[0].seconds, whole[0].seconds);
}

TEST_F(Runs, OfRanksThatSeeDifferentCheckpointsAreRefused) {
  const RunConfig saved = config({set("checkpoint.dir", "here")});
  ASSERT_EQ(train_ranks(saved, 1)[0].ending, Ending::complete);
  const RunConfig runs[] = {config({set("checkpoint.dir", "here")}),
                            config({set("checkpoint.dir", "elsewhere")})};
  auto worlds = Communicator::for_threads(2, communicator_options(runs[0]));
  ASSERT_TRUE(worlds.ok());
  std::vector<RunOutcome> outcomes(2);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] { outcomes[rank] = train(runs[rank], (*worlds)[rank]); });
  for (std::thread& rank : ranks) rank.join();
  for (const RunOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.ending, Ending::refused);
    EXPECT_THAT(outcome.status.message(), ::testing::HasSubstr("from none to that of step 6"));
  }
}

TEST_F(Runs, StopOnAllRanksWhenOneIsAsked) {
  const RunConfig run = config({set("log.dir", "log"), set("checkpoint.dir", "ck")});
  for (const RunOutcome& outcome : train_ranks(run, 4, 2)) {
    EXPECT_EQ(outcome.ending, Ending::stopped);
    EXPECT_EQ(static_cast<int>(outcome.ending), 130);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
    EXPECT_EQ(outcome.steps, 1);
  }
  EXPECT_EQ(newest_checkpoint(folder_.file("ck")), folder_.file("ck/step-00000001"));
  train_ok(run, 4);  // goes on
  EXPECT_EQ(metrics("log").size(), 6u);
}

TEST_F(Runs, ThatDivergeSayWhereAndKeepTheirCheckpoint) {
  RunConfig run = config({set("checkpoint.dir", "ck"), "checkpoint.every=1", "optim.warmup=0",
                          "optim.clip=0", "optim.name=sgd", "checkpoint.async=false"});
  run.optim.rate.peak = 1e30;
  for (const RunOutcome& outcome : train_ranks(run, 2)) {
    EXPECT_EQ(outcome.ending, Ending::diverged);
    EXPECT_THAT(outcome.status.to_string(), AllOf(HasSubstr("step "), HasSubstr("diverged")));
  }
  EXPECT_NE(newest_checkpoint(folder_.file("ck")), "");
}

TEST_F(Runs, ThatDivergeVerifyNoLayout) {
  RunConfig run = config({"optim.warmup=0", "optim.clip=0", "optim.name=sgd", "parallel.zero=3"});
  run.optim.rate.peak = 1e300;  // the weights are no numbers after a step
  std::FILE* const out = std::fopen("/dev/null", "w");
  ASSERT_NE(out, nullptr);
  const auto verdict = verify(run, 2, out);
  std::fclose(out);
  ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
  EXPECT_FALSE(verdict->equal);
  EXPECT_TRUE(std::isinf(verdict->loss_difference));
}

TEST_F(Runs, SayHowManyRanksTheyNeedWhereThatIsANumber) {
  EXPECT_EQ(*ranks_of(config({"parallel.dp_shard=3", "parallel.tp=2", "parallel.pp=5"})), 30);
  EXPECT_THAT(ranks_of(config({})).status().to_string(), HasSubstr("parallel.dp_shard is -1"));
  const auto many = ranks_of(config({"parallel.dp_shard=65536", "parallel.tp=65536",
                                     "parallel.pp=65536", "parallel.dp_replicate=65536"}));
  EXPECT_EQ(many.status().code(), StatusCode::invalid_argument);
}

TEST_F(Runs, OfWhatCannotBeAreRefusedWithTheEquation) {
  const auto refused = [&](const std::vector<std::string>& more, int ranks) {
    const auto outcomes = train_ranks(config(more), ranks);
    for (const RunOutcome& outcome : outcomes) EXPECT_EQ(outcome.ending, Ending::refused);
    return outcomes[0].status.to_string();
  };
  EXPECT_THAT(refused({"parallel.tp=2", "parallel.dp_shard=2"}, 3),
              AllOf(HasSubstr("tp 2"), HasSubstr("3")));
  EXPECT_THAT(refused({}, 3), HasSubstr("8 = 2 * 3"));
  EXPECT_THAT(refused({"parallel.pp=4"}, 4), HasSubstr("2 layers"));
  EXPECT_THAT(refused({"data.seq_len=128"}, 1), HasSubstr("64 positions"));
  EXPECT_THAT(refused({"parallel.ep=2"}, 2), HasSubstr("experts"));
}

TEST_F(Runs, WhoseFilesAreMissingFailWithTheirNames) {
  const auto failed = [&](const std::vector<std::string>& more) {
    const RunOutcome outcome = train_ranks(config(more), 1)[0];
    EXPECT_EQ(outcome.ending, Ending::failed);
    return outcome.status.to_string();
  };
  EXPECT_THAT(failed({set("model.hf", "none")}), HasSubstr(folder_.file("none")));
  EXPECT_THAT(failed({set("checkpoint.resume", "none")}), HasSubstr(folder_.file("none")));
  EXPECT_THAT(failed({set("log.dir", "corpus.txt")}), HasSubstr(folder_.file("corpus.txt")));
}

// ---- Number types ----

// How far 40 steps of 16 bits may end from those of float32: 0.5% of the loss; it is 0.1%.
constexpr double kNarrowBand = 0.005;

TEST_F(Runs, InBfloat16ReachALossNearFloat32s) {
  const auto with = [&](const std::string& type) {
    return config({"train.steps=40", "train.dtype=" + type, set("log.dir", type)});
  };
  const double wide = train_ok(with("f32"), 2).loss;
  const double narrow = train_ok(with("bf16"), 2).loss;
  EXPECT_LT(wide, 4.0);
  EXPECT_NEAR(narrow, wide, kNarrowBand * wide);
  EXPECT_NE(narrow, wide);
}

TEST_F(Runs, InFloat16ScaleTheirLossAndLearn) {
  const double wide = train_ok(config({"train.steps=40"}), 2).loss;
  train_ok(config({"train.steps=40", "train.dtype=f16", set("log.dir", "f16")}), 2);
  const auto lines = metrics("f16");
  ASSERT_EQ(lines.size(), 40u);
  EXPECT_EQ(value_named(lines[0], "loss_scale"), 65536);
  EXPECT_NEAR(lines.back().loss, wide, kNarrowBand * wide);
}

// A scale that no gradient survives: every rank skips, and shrinks it, until the gradients do.
TEST(Float16, OverflowSkipsTheStepOnAllRanksAndShrinksTheScale) {
  EngineOptions options = small_options(DataType::float16);
  options.mesh.dp_shard = 2;
  options.mesh.dp_replicate = 2;
  options.data.zero = Zero::values;
  options.scales_loss = true;
  options.loss_scaler.initial = 0x1p40;
  options.loss_scaler.hysteresis = 1;
  std::vector<std::int64_t> learnt(4), skipped(4);
  std::vector<double> scales(4);
  constexpr int kSteps = 40;
  const Trained trained = train(options, kSteps, [&](int rank, Engine& engine) {
    const auto at = static_cast<std::size_t>(rank);
    learnt[at] = engine.steps_done();
    skipped[at] = engine.loss_scaler().state().skipped;
    scales[at] = engine.loss_scaler().scale();
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_GE(skipped[rank], 10);
    EXPECT_EQ(skipped[rank], skipped[0]);
    EXPECT_EQ(learnt[rank] + skipped[rank], kSteps);
    EXPECT_EQ(scales[rank], std::ldexp(0x1p40, -static_cast<int>(skipped[rank])));
  }
  // While steps are skipped the weights stay, so that only the tokens differ.
  EXPECT_LT(trained.losses.back(), trained.losses[static_cast<std::size_t>(skipped[0])]);
  for (const auto& [name, values] : trained.weights)
    for (const double value : values) ASSERT_TRUE(std::isfinite(value)) << name;
}

// ---- What must not change a bit ----

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_FALSE(a.weights.empty());
  EXPECT_TRUE(a.weights == b.weights);
}

constexpr int kFewSteps = 3;

TEST(Recomputation, ChangesNoBitWhateverTheLayout) {
  for (const Mesh mesh : {Mesh(), Mesh{.pp = 2}, Mesh{.dp_shard = 2}, Mesh{.tp = 2}}) {
    EngineOptions options = small_options();
    options.mesh = mesh;
    options.micro_batches = 4;
    if (mesh.dp_shard > 1) options.data.zero = Zero::values;
    std::int64_t forwards = 0;
    const auto count = [&](int rank, Engine& engine) {
      for (const auto& stage : engine.stages())
        if (rank == 0) forwards = stage->block_forward_calls();
    };
    const Trained kept = train(options, kFewSteps, count);
    const std::int64_t once = forwards;
    for (const RecomputePolicy policy : {RecomputePolicy{Recompute::full, 1},
                                         {Recompute::full, 2},
                                         {Recompute::full, 3},
                                         {Recompute::selective, 1}}) {
      options.recompute = policy;
      expect_same(train(options, kFewSteps, count), kept);
      EXPECT_EQ(forwards, policy.what == Recompute::full ? 2 * once : once);
    }
  }
}

TEST(Schedules, TrainTheSameBitsAsOneProcess) {
  EngineOptions options = small_options();
  options.model.layers = 8;
  const Trained alone = train(options, kFewSteps);
  for (const int pp : {2, 4})
    for (const std::string& name : schedule_names()) {
      SCOPED_TRACE(name + " of " + std::to_string(pp));
      options.mesh.pp = pp;
      options.schedule = name;
      options.chunks_per_rank = name == "interleaved" ? 2 : 1;
      expect_same(train(options, kFewSteps), alone);
    }
}

// ---- Schedules of files ----

class ScheduleFiles : public Runs {
 protected:
  RunConfig of(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {set("log.dir", name + ".log"), "parallel.pp=2",
                                    "parallel.schedule=file:" + folder_.file(name)};
    all.insert(all.end(), more.begin(), more.end());
    return config(all);
  }

  std::string refused(const RunConfig& run) const {
    const RunOutcome outcome = train_ranks(run, 2)[0];
    EXPECT_EQ(outcome.ending, Ending::refused);
    return outcome.status.to_string();
  }
};

TEST_F(ScheduleFiles, TrainWhatOneProcessTrains) {
  train_ok(config({set("log.dir", "alone.log")}));
  const auto alone = losses_of(metrics("alone.log"));
  ASSERT_EQ(alone.size(), 6u);
  // By hand: two forwards ahead, backwards cut in two, weights late; an idle step as PyTorch has.
  folder_.put("own.csv",
              "0F0,0F1,0F2,,0I0,0I1,0F3,0W0,0W1,0B2,0B3\n"
              ",1F0,1I0,1F1,1W0,1B1,1F2,1B2,1F3,1I3,1W3\n");
  train_ok(of("own.csv"), 2);
  EXPECT_EQ(losses_of(metrics("own.csv.log")), alone);
  for (const std::string& name : {std::string("gpipe"), std::string("zb-h1")}) {
    folder_.put(name, schedule_csv(*make_schedule(name, 2, 4, 1)));
    train_ok(of(name), 2);
    EXPECT_EQ(losses_of(metrics(name + ".log")), alone) << name;
  }
}

TEST_F(ScheduleFiles, WithSeveralStagesOnEachRankNeedVirtual) {
  fs::create_directories(folder_.file("deep"));
  std::string deep = kModel;
  deep.replace(deep.find("hidden_layers\": 2"), 17, "hidden_layers\": 4");
  folder_.put("deep/config.json", deep);
  folder_.put("two.csv", schedule_csv(interleaved_schedule(2, 4, 2)));
  const std::string model = set("model.hf", "deep");
  train_ok(config({model, set("log.dir", "alone.log")}));
  train_ok(of("two.csv", {model, "parallel.virtual=2"}), 2);
  EXPECT_EQ(losses_of(metrics("two.csv.log")), losses_of(metrics("alone.log")));
  EXPECT_THAT(refused(of("two.csv", {model})),
              AllOf(HasSubstr(folder_.file("two.csv")), HasSubstr("parallel.virtual = 1")));
}

TEST_F(ScheduleFiles, ThatCannotBeRunAreRefusedByName) {
  const auto why = [&](const std::string& text) {
    folder_.put("wrong.csv", text);
    return refused(of("wrong.csv"));
  };
  const std::string name = folder_.file("wrong.csv");
  EXPECT_THAT(why("0F0,0B0\n1F0,1X0\n"), AllOf(HasSubstr(name), HasSubstr("line 2, cell 2")));
  EXPECT_THAT(why("0F0,0B0\n"), AllOf(HasSubstr(name), HasSubstr("parallel.pp = 2")));
  EXPECT_THAT(why("0F0,0B0\n1F0,1B0\n"), AllOf(HasSubstr(name), HasSubstr("accumulates 4")));
  EXPECT_THAT(why("0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2\n"),
              AllOf(HasSubstr(name), HasSubstr("3")));
  EXPECT_THAT(why("0F0,0B0,0F1,0B1,0F2,0F3,0B2,0B3\n1F1,1B1,1F0,1B0,1F2,1F3,1B2,1B3\n"),
              AllOf(HasSubstr(name), HasSubstr("wait")));
  EXPECT_THAT(why(""), HasSubstr(name));
  const RunOutcome missing = train_ranks(of("none.csv"), 2)[0];
  EXPECT_EQ(missing.ending, Ending::failed);
  EXPECT_THAT(missing.status.to_string(), HasSubstr(folder_.file("none.csv")));
}

}  // namespace
}  // namespace tutti::training::test
