// What a run.toml and overrides become, and what is said of those that are wrong.
#include "training/trainer/run_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "training/trainer/run_config_keys.hpp"

namespace tutti::training {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Result<RunConfig> parse(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return parse_run_config(text, "run.toml", overrides);
}

// What is wrong with it; "" when nothing is.
std::string error(std::string_view text, const std::vector<std::string>& overrides = {}) {
  const Status status = parse(text, overrides).status();
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::invalid_argument);
  return status.message();
}

RunConfig accepted(std::string_view text, const std::vector<std::string>& overrides = {}) {
  auto config = parse(text, overrides);
  EXPECT_EQ(config.status().to_string(), "ok");
  return config.ok() ? *config : RunConfig();
}

// A configuration in which no key has its default.
RunConfig all_changed() {
  RunConfig c;
  c.model = {.hf = "models/a \"b\"\\c\n\x7f \xc3\xa9",
             .preset = "",
             .load_weights = false,
             .capacity_factor = 1.25};
  c.data = {.train = {"a.bin", "", "*.txt"}, .seq_len = 128, .held_out = 0.1 + 0.2};
  c.data.train[1] = "'\"\"\"'";
  c.train = {.steps = 12,
             .global_batch = 24,
             .micro_batch = 3,
             .seed = 77,
             .dtype = DataType::bfloat16,
             .gemm = "builtin",
             .deterministic = false,
             .eval_every = 5,
             .eval_batches = 6};
  c.optim.optimizer = {.kind = OptimizerKind::sgd,
                       .beta1 = 0.5,
                       .beta2 = 0.75,
                       .epsilon = 1e-300,
                       .weight_decay = 1.0 / 3,
                       .momentum = 0};
  c.optim.rate = {.peak = 5e-324, .warmup_steps = 9, .decay = Decay::linear, .final_fraction = 1};
  c.optim.clip = 0;
  c.parallel.pp = 2;
  c.parallel.dp_replicate = -1;
  c.parallel.dp_shard = 4;
  c.parallel.tp = 2;
  c.parallel.ep = 2;
  c.parallel.zero = 3;
  c.parallel.sequence_parallel = true;
  c.parallel.schedule = "interleaved";
  c.parallel.virtual_stages = 2;
  c.parallel.reshard_after_forward = Reshard::never;
  c.parallel.keep_last_block = false;
  c.parallel.prefetch = 3;
  c.parallel.bucket_mb = 0.125;
  c.parallel.overlap = false;
  c.parallel.algorithm = "ring";
  c.parallel.transport = "shm";
  c.memory.recompute = {.kind = RecomputeConfig::Kind::every, .blocks = 3};
  c.comm = {.timeout_s = 2.5, .checksums = true};
  c.checkpoint = {.dir = "out", .every = 50, .keep = 0, .async = false, .resume = "out/step-3"};
  c.log = {.dir = "logs", .every = 2, .jsonl = false, .tensorboard = true, .trace = "t.json"};
  return c;
}

TEST(RunConfig, AnEmptyFileIsTheDefaults) { EXPECT_EQ(accepted(""), RunConfig()); }

TEST(RunConfig, PrintsAndParsesToTheSame) {
  for (const RunConfig& config : {RunConfig(), all_changed()}) {
    EXPECT_EQ(check(config).to_string(), "ok");
    EXPECT_EQ(accepted(to_toml(config)), config) << to_toml(config);
  }
}

// Else the round trip would not notice a key that does not reach its member.
TEST(RunConfig, TheRoundTripChangesEachKey) {
  RunConfig changed = all_changed();
  RunConfig defaults;
  const auto theirs = config_sections(changed);
  const auto ours = config_sections(defaults);
  for (std::size_t s = 0; s < ours.size(); ++s)
    for (std::size_t k = 0; k < ours[s].keys.size(); ++k) {
      const ConfigKey& key = ours[s].keys[k];
      if (key.name == "cp") continue;  // has only one value
      EXPECT_NE(printed(key.value), printed(theirs[s].keys[k].value))
          << ours[s].name << "." << key.name;
    }
}

TEST(RunConfig, ReadsTheExampleOfTheDocument) {
  const RunConfig config = accepted(R"(
[model]
preset = "small"
[data]
train = "corpus.txt"
[train]
steps = 200
global_batch = 64
micro_batch = 2
dtype = "float16"
[optim]
lr = 3e-4
clip = 2          # an integer where a number is expected
[parallel]
zero = 3
[memory]
recompute = "every:4"
)");
  EXPECT_EQ(config.model.preset, "small");
  EXPECT_EQ(config.data.train, std::vector<std::string>{"corpus.txt"});
  EXPECT_EQ(config.train.steps, 200);
  EXPECT_EQ(config.train.dtype, DataType::float16);
  EXPECT_EQ(config.optim.rate.peak, 3e-4);
  EXPECT_EQ(config.optim.clip, 2);
  EXPECT_EQ(config.parallel.zero, 3);
  EXPECT_EQ(config.memory.recompute, (RecomputeConfig{RecomputeConfig::Kind::every, 4}));
}

TEST(RunConfig, UnknownNamesAreErrorsWithTheNearestOne) {
  EXPECT_EQ(error("[train]\n  stepps = 3"),
            "run.toml:2:3: [train] has no key \"stepps\"; did you mean train.steps?");
  EXPECT_EQ(error("[trian]\nsteps = 3"),
            "run.toml:1:2: there is no section \"trian\"; did you mean train?");
  EXPECT_THAT(error("[train]\nlr = 3"), HasSubstr("did you mean optim.lr?"));
  EXPECT_THAT(error("[parallel]\ndp = 3"), HasSubstr("did you mean parallel.dp_replicate?"));
  EXPECT_THAT(error("[optim]\neps = 3"), HasSubstr("did you mean optim.epsilon?"));
  EXPECT_THAT(error("[train]\nxyzzy = 3"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(error("steps = 3"), HasSubstr("there is no section \"steps\""));
}

TEST(RunConfig, WrongTypesSayWhatWasExpectedAndFound) {
  EXPECT_EQ(error("[train]\nsteps = \"ten\""),
            "run.toml:2:9: train.steps: expected an integer from 0 to 2^40, found the text "
            "\"ten\"");
  EXPECT_THAT(error("[train]\nsteps = 1.5"), HasSubstr("found the number 1.5"));
  EXPECT_THAT(error("[train]\ndeterministic = 1"),
              HasSubstr("expected true or false, found the integer 1"));
  EXPECT_THAT(error("[optim]\nlr = true"), HasSubstr("found true"));
  EXPECT_THAT(error("[model]\nhf = [\"a\"]"), HasSubstr("expected a text, found a list"));
  EXPECT_THAT(error("[data]\ntrain = [\"a\", 3]"), HasSubstr("data.train: expected"));
  EXPECT_THAT(error("[log]\ndir = 2020-01-01"), HasSubstr("found a date or time"));
  EXPECT_THAT(error("[log.dir]\nx = 1"), HasSubstr("log.dir: expected a text, found a section"));
  EXPECT_THAT(error("train = 3"), HasSubstr("[train] is a section, not the integer 3"));
  EXPECT_THAT(error("[[train]]\nsteps = 3"), HasSubstr("[train] is a section, not a list"));
  EXPECT_THAT(error("[train]\ndtype = \"fp8\""),
              HasSubstr("expected `f32`, `f64`, `bf16` or `f16`, found the text \"fp8\""));
  EXPECT_THAT(error("[memory]\nrecompute = \"every:0\""), HasSubstr("`every:K`"));
  EXPECT_THAT(error("[memory]\nrecompute = \"every:3x\""), HasSubstr("`every:K`"));
  EXPECT_THAT(error("[parallel]\nschedule = \"file:\""), HasSubstr("`file:PATH.csv`"));
  EXPECT_THAT(error("[log]\ndir = \"a\\u0000b\""), HasSubstr("log.dir: expected a text"));
}

TEST(RunConfig, ValuesOutOfRangeSayTheRangeAndThePlace) {
  EXPECT_EQ(error("[train]\nmicro_batch = 0"),
            "run.toml:2:15: train.micro_batch = 0: expected an integer from 1 to 2^30");
  EXPECT_EQ(error("", {"optim.beta1=1"}),
            "--set optim.beta1=1: optim.beta1 = 1.0: expected a number from 0 and below 1");
  EXPECT_THAT(error("[optim]\nlr = nan"), HasSubstr("optim.lr = nan"));
  EXPECT_THAT(error("[optim]\nlr = inf"), HasSubstr("optim.lr = inf"));
  EXPECT_THAT(error("[parallel]\nbucket_mb = 0"), HasSubstr("a number above 0"));
  EXPECT_THAT(error("[parallel]\nzero = 4"), HasSubstr("an integer from 0 to 3"));
  EXPECT_THAT(error("[parallel]\ncp = 2"), HasSubstr("expected the integer 1"));
}

TEST(RunConfig, KeysMustGoTogether) {
  EXPECT_THAT(error("[model]\nhf = \"a\"\npreset = \"b\""), HasSubstr("exclude each other"));
  EXPECT_THAT(error("[model]\npreset = \"\""), HasSubstr("neither model.hf nor model.preset"));
  EXPECT_THAT(error("[parallel]\ndp_replicate = -1"), HasSubstr("are both -1"));
  EXPECT_THAT(error("[parallel]\ndp_shard = 0"), HasSubstr("at least 1"));
  EXPECT_THAT(error("[parallel]\nvirtual = 2"), HasSubstr("needs parallel.schedule"));
  EXPECT_THAT(error("[parallel]\nschedule = \"interleaved\""), HasSubstr("at least 2"));
  EXPECT_EQ(error("[parallel]\nschedule = \"file:a.csv\"\nvirtual = 2"), "");
  EXPECT_THAT(error("[checkpoint]\nevery = 5"), HasSubstr("needs checkpoint.dir"));
  EXPECT_THAT(error("[checkpoint]\nresume = \"\""), HasSubstr("checkpoint.resume is empty"));
  EXPECT_THAT(error("[train]\nmicro_batch = 3"), HasSubstr("no multiple of"));
  EXPECT_THAT(error("[train]\neval_every = 3\n[data]\nheld_out = 0"),
              HasSubstr("data.held_out above 0"));
  EXPECT_THAT(error("[data]\nseq_len = 5\n[parallel]\ntp = 2\nsequence_parallel = true"),
              HasSubstr("1 * 5 = 5 is no multiple of parallel.tp = 2"));
  EXPECT_THAT(error("[data]\ntrain = [\"\"]"), HasSubstr("data.train has an empty name"));
}

TEST(RunConfig, AllErrorsAreToldInTheOrderOfTheFile) {
  const std::string text =
      error("[train]\nzeta = 1\nalpha = 2\n[data]\nseq_len = 'x'", {"nothing"});
  EXPECT_THAT(text, StartsWith("run.toml:2:1"));
  EXPECT_THAT(text, HasSubstr("\nrun.toml:3:1: "));
  EXPECT_THAT(text, HasSubstr("\nrun.toml:5:11: "));
  EXPECT_THAT(text, HasSubstr("\n--set nothing: write section.key=value"));
  std::string many = "[train]\n";
  for (int i = 0; i < 30; ++i) many += "k" + std::to_string(i) + " = 1\n";
  EXPECT_THAT(error(many), HasSubstr("\nand 10 more"));
}

TEST(RunConfig, SyntaxErrorsHaveAPlace) {
  EXPECT_THAT(error("[train]\nsteps = = 3"), StartsWith("run.toml:2:9: "));
  EXPECT_THAT(error("[train]\nsteps = 3\nsteps = 4"), StartsWith("run.toml:3:"));
  EXPECT_THAT(error("[log]\ndir = \"\xff\""), StartsWith("run.toml:2:"));
}

// toml++ 3.3 would stop the process at these, or worse.
TEST(RunConfig, SectionsWithoutNamesAreErrors) {
  for (const std::string header :
       {"[!]", "[\n]", "[[*]]", "[ [?]]", "[[[", "[\xc3\xa9]", "[\r\n]", "[.a]"})
    EXPECT_EQ(error("[log]\n \t" + header + "\nx = 1"),
              "run.toml:2:3: expected the name of a section after [");
  for (const std::string header : {"[]", "[[]]", "[", "[[", "[ ", "[a", "[a.]", "[a..b]", "[\"a]"})
    EXPECT_THAT(error("\xef\xbb\xbf" + header), StartsWith("run.toml:1:"));
  EXPECT_EQ(accepted("[data]\ntrain = [\n'a', # [!\n'[!']\n[ 'log' ]\n").data.train,
            (std::vector<std::string>{"a", "[!"}));
}

TEST(RunConfig, BracketsAndLettersThatCannotBeThereAreErrors) {
  for (const std::string value :
       {"[}", "[1, }", "{a = ]", "]", "[\xe2\x80\xa8 1]", "[\x01]", "[\v]"})
    EXPECT_THAT(error("[data]\ntrain = " + value), StartsWith("run.toml:2:"));
  EXPECT_THAT(error("", {"data.train=[}"}), HasSubstr("data.train: expected"));
  EXPECT_EQ(accepted("# \xe2\x80\xa8 }\n[log]\ndir = '}\xe2\x80\xa8'").log.dir, "}\xe2\x80\xa8");
}

TEST(RunConfig, OverridesGoOverTheFile) {
  const RunConfig config =
      accepted("[train]\nsteps = 3\n[log]\ndir = \"a\"",
               {"train.steps=4", "train.steps=5", "train.dtype=bf16", "optim.lr=1e-2",
                "checkpoint.dir=2024", "data.train=[\"a\", \"b\"]", "log.trace=\"t j\"",
                "train.deterministic=false", "memory.recompute=every:2", "log.dir="});
  EXPECT_EQ(config.train.steps, 5);
  EXPECT_EQ(config.train.dtype, DataType::bfloat16);
  EXPECT_EQ(config.optim.rate.peak, 0.01);
  EXPECT_EQ(config.checkpoint.dir, "2024");
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.log.trace, "t j");
  EXPECT_FALSE(config.train.deterministic);
  EXPECT_EQ(config.memory.recompute, (RecomputeConfig{RecomputeConfig::Kind::every, 2}));
  EXPECT_EQ(config.log.dir, "");
  EXPECT_EQ(accepted("", {"data.train=x=y.bin"}).data.train, std::vector<std::string>{"x=y.bin"});
}

TEST(RunConfig, WrongOverridesAreErrors) {
  EXPECT_EQ(error("", {"train.steps=many"}),
            "--set train.steps=many: train.steps: expected an integer from 0 to 2^40, found "
            "\"many\"");
  EXPECT_THAT(error("", {"train.step=1"}), HasSubstr("did you mean train.steps?"));
  EXPECT_THAT(error("", {"trains.steps=1"}), HasSubstr("did you mean train?"));
  EXPECT_THAT(error("", {"steps=1"}), HasSubstr("write section.key=value"));
  EXPECT_THAT(error("", {"train.steps"}), HasSubstr("write section.key=value"));
  EXPECT_THAT(error("", {"train.steps=1\nother=2"}), HasSubstr("train.steps: expected"));
  EXPECT_THAT(error("", {"log.dir=\xff"}), HasSubstr("log.dir: expected a text"));
}

TEST(RunConfig, NamingAModelReplacesTheOtherWayToNameIt) {
  EXPECT_EQ(accepted("[model]\nhf = \"a\"").model.preset, "");
  EXPECT_EQ(accepted("", {"model.hf=a"}).model.preset, "");
  EXPECT_EQ(accepted("[model]\npreset = \"b\"", {"model.hf=a"}).model.preset, "");
  EXPECT_EQ(accepted("[model]\nhf = \"a\"", {"model.preset=b"}).model.hf, "");
  EXPECT_THAT(error("", {"model.hf=a", "model.preset=b"}), HasSubstr("exclude each other"));
  EXPECT_EQ(accepted("[model]\nhf = \"\"").model.preset, "tiny");
}

TEST(RunConfig, TypesHaveTwoNamesAndPrintAsTheShortOne) {
  for (const auto& [name, type] :
       std::vector<std::pair<std::string, DataType>>{{"f32", DataType::float32},
                                                     {"float32", DataType::float32},
                                                     {"f64", DataType::float64},
                                                     {"float64", DataType::float64},
                                                     {"f16", DataType::float16},
                                                     {"float16", DataType::float16},
                                                     {"bf16", DataType::bfloat16},
                                                     {"bfloat16", DataType::bfloat16}})
    EXPECT_EQ(accepted("", {"train.dtype=" + name}).train.dtype, type);
  EXPECT_THAT(to_toml(accepted("", {"train.dtype=bfloat16"})), HasSubstr("dtype = \"bf16\""));
}

TEST(RunConfig, FilesAreBounded) {
  EXPECT_THAT(error(std::string(kRunConfigBytesMax + 1, '\n')), HasSubstr("larger than"));
  std::string deep = "a";
  for (int i = 0; i < 300000; ++i) deep += ".a";
  EXPECT_THAT(error(deep + " = 1"), HasSubstr("more than 1000 dots"));
  // Hidden from who takes strings to end too early or too late.
  for (const std::string before :
       {"\"\\\"\"", "\"\"\"x\"\"\"\"", "'''\n'''''", "\"\"", "'\\'", "\"\"\"\\\"\"\"\"\"\""})
    EXPECT_THAT(error("t = {a = " + before + ", " + deep + " = 1}"), HasSubstr("1000 dots"));
  EXPECT_THAT(error(std::string(2000, '[')), Not(HasSubstr("dots")));
  const std::string dots(2000, '.');
  EXPECT_EQ(accepted("# " + dots + "\n[log]\ndir = \"" + dots + "\" # " + dots).log.dir, dots);
}

TEST(RunConfig, ErrorsOfLargeFilesComeSoonAndAreShort) {
  std::string many = "[train]\n";
  for (int i = 0; i < 60000; ++i) many += "k" + std::to_string(i) + " = 1\n";
  EXPECT_LT(error(many).size(), 4096u);
  EXPECT_LT(error("[" + std::string(500000, 'x') + "]").size(), 4096u);
}

TEST(RunConfig, StructsMadeByProgramsAreChecked) {
  RunConfig config;
  config.train.steps = -1;
  config.train.gemm = "abacus";
  config.memory.recompute = {.kind = RecomputeConfig::Kind::every, .blocks = 0};
  const std::string text = check(config).message();
  EXPECT_THAT(text, HasSubstr("train.steps = -1: expected an integer"));
  EXPECT_THAT(text, HasSubstr("train.gemm = \"abacus\": expected `auto`, `builtin`"));
  EXPECT_THAT(text, HasSubstr("memory.recompute = \"every:0\""));
}

TEST(RunConfig, ReadsFilesAndSaysWhyNot) {
  const std::string path = testing::TempDir() + "/tutti_run_config_test.toml";
  std::ofstream(path) << "[train]\nsteps = 7\n";
  const auto config = read_run_config(path, std::vector<std::string>{"train.seed=9"});
  std::remove(path.c_str());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->train.steps, 7);
  EXPECT_EQ(config->train.seed, 9);
  EXPECT_EQ(read_run_config("/nonexistent/run.toml").status().code(), StatusCode::system_error);
  EXPECT_THAT(read_run_config("/").status().message(), StartsWith("cannot read /: "));
}

TEST(AccumulationSteps, FollowFromTheBatches) {
  TrainConfig train{.global_batch = 64, .micro_batch = 2};
  EXPECT_EQ(*accumulation_steps(train, 1), 32);
  EXPECT_EQ(*accumulation_steps(train, 8), 4);
  EXPECT_EQ(*accumulation_steps(train, 32), 1);
}

TEST(AccumulationSteps, ShowTheEquationThatDoesNotHold) {
  TrainConfig train{.global_batch = 10, .micro_batch = 2};
  const Status status = accumulation_steps(train, 4).status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ(status.message(),
            "train.global_batch = train.micro_batch * data-parallel ranks * accumulated "
            "micro-batches: 10 = 2 * 4 * 1 and 2 rows are left; take a global_batch of 8 or 16");
  EXPECT_THAT(accumulation_steps(train, 64).status().message(), HasSubstr("10 = 2 * 64 * a fr"));
  EXPECT_FALSE(accumulation_steps(train, 0).ok());
}

// The document holds the reference word for word, and no other rows.
TEST(RunConfigDocument, HasEachKeyWithTypeDefaultAndMeaning) {
#ifndef TUTTI_DOCS_FOLDER
  GTEST_SKIP() << "built without TUTTI_DOCS_FOLDER, the place of docs/";
#else
  std::ifstream file(TUTTI_DOCS_FOLDER "/training-config.md");
  const std::string document(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(document.empty());
  std::string reference = run_config_reference();
  reference.resize(reference.find_last_not_of('\n') + 1);
  const std::size_t at = document.find(reference);
  EXPECT_NE(at, std::string::npos)
      << "docs/training-config.md must contain what run_config_reference() gives:\n"
      << reference;
  const auto rows = [](const std::string& text) {
    std::size_t count = 0;
    for (std::size_t i = text.find("\n| `"); i != std::string::npos; i = text.find("\n| `", i + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(rows(document), rows(reference));
#endif
}

}  // namespace
}  // namespace tutti::training
