// A run.toml with overrides: files that people edit and pass around, and words of a command line.
//
// Beyond not crashing: what is accepted is within its ranges, prints as TOML and reads again to the
// same; errors have a bounded length; memory stays within a multiple of the text. In an input the
// overrides follow the file, each after a zero byte.
#include "fuzz.hpp"
#include "training/trainer/run_config.hpp"

namespace tutti::fuzz {
namespace {

using training::RunConfig;

// Twenty lines, each with a few clipped texts.
constexpr std::size_t kErrorBytesMax = 32 * 1024;

void check_accepted(const RunConfig& config) {
  TUTTI_ASSERT(training::check(config).ok(), "what is accepted is in range");
  const std::string printed = training::to_toml(config);
  const auto again = training::parse_run_config(printed, "printed.toml");
  TUTTI_ASSERT(again.ok() && *again == config,
               "a configuration prints and reads again to the same");
  for (const std::int64_t ranks : {1, 2, 3, 64}) {
    const auto steps = training::accumulation_steps(config.train, ranks);
    TUTTI_ASSERT(
        !steps.ok() || *steps * config.train.micro_batch * ranks == config.train.global_batch,
        "the equation holds");
  }
}

}  // namespace

std::size_t input_bytes_max() { return 2048; }

void run(std::string_view input) {
  const std::size_t file_end = std::min(input.find('\0'), input.size());
  const std::string_view file = input.substr(0, file_end);
  std::vector<std::string> overrides;
  for (std::string_view rest = input.substr(file_end); !rest.empty();) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    overrides.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  Result<RunConfig> config = RunConfig();
  {
    const AllocationLimit limit(512 * input.size() + 256 * 1024);
    config = training::parse_run_config(file, "run.toml", overrides);
  }
  if (config.ok())
    check_accepted(*config);
  else
    TUTTI_ASSERT(config.status().message().size() < kErrorBytesMax, "errors are short");
}

std::vector<std::string> seeds() {
  using namespace std::string_literals;
  return {training::to_toml(RunConfig()),
          "[model]\nhf = \"a/b\"\n[data]\ntrain = [\"*.bin\", '''c'''] # two\nheld_out = 0\n"s
          "[train]\ndtype = \"bf16\"\n[parallel]\nschedule = \"interleaved\"\nvirtual = 2\n"s +
              "\0train.steps=3\0optim.lr=1e-3\0data.train=[\"x\"]\0log.trace=\"t\\u0041\""s,
          "train = {steps = 3, global_batch = 0x10}\nmemory.recompute = \"every:3\"\n"s,
          "[train]\nstep = 1\nlr = 1.5\nsteps = \"\"\"a\"\"\"\"\n[nonsense]\n\0no\0a.b=c"s};
}

}  // namespace tutti::fuzz
