// sample_command.cc: options of `tutti sample`.
#include "cli/sample_command.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "training/data/byte_tokenizer.hpp"
#include "training/tensor/element.hpp"
#include "training/trainer/checkpoint.hpp"
#include "training/trainer/run_config.hpp"
#include "training/trainer/sample.hpp"

namespace tutti::cli {
namespace {

constexpr int kFailed = 1;

struct Options {
  std::string folder;
  std::string prompt = "In the beginning ";
  std::string tokens;
  std::string type = "f32";
  std::string gemm = "auto";
  bool logits = false;
  training::SampleOptions sample;
};

int fail(const Status& status) {
  fmt::print(stderr, "tutti sample: {}\n", status.to_string());
  return kFailed;
}

Result<std::vector<std::int32_t>> prompt_of(const Options& options) {
  if (options.tokens.empty()) return training::encode_bytes(options.prompt);
  std::vector<std::int32_t> tokens;
  std::istringstream text(options.tokens);
  std::string word;
  while (std::getline(text, word, ',')) {
    std::istringstream number(word);
    std::int32_t token = 0;
    if (!(number >> token) || !number.eof())
      return Status(StatusCode::invalid_argument,
                    fmt::format("--tokens: '{}' is not a token's number", word));
    tokens.push_back(token);
  }
  return tokens;
}

// A line for each token of the prompt: what the model says comes next.
int print_logits(training::SoloModel& model, const std::vector<std::int32_t>& prompt) {
  if (const Status status = training::check_prompt(model, prompt); !status.ok())
    return fail(status);
  const std::int64_t positions = model.config().positions;
  if (static_cast<std::int64_t>(prompt.size()) > positions)
    return fail(Status(
        StatusCode::invalid_argument,
        fmt::format("{} tokens are more than the model's {} positions", prompt.size(), positions)));
  const training::Tensor logits = model.logits(prompt);
  training::visit(logits.type(), [&](auto zero) {
    const auto* values = logits.as<decltype(zero)>();
    for (std::int64_t row = 0; row < logits.rows(); ++row)
      for (std::int64_t i = 0; i < logits.columns(); ++i)
        fmt::print("{:.9g}{}", training::load(values[row * logits.columns() + i]),
                   i + 1 == logits.columns() ? "\n" : " ");
  });
  return 0;
}

int run_command(const Options& options) {
  auto type = training::parse_run_type(options.type);
  if (!type.ok()) return fail(type.status());
  // A folder of checkpoints means its newest one.
  const std::string newest = training::newest_checkpoint(options.folder);
  auto model =
      training::SoloModel::open(newest.empty() ? options.folder : newest, *type, options.gemm);
  if (!model.ok()) return fail(model.status());
  auto prompt = prompt_of(options);
  if (!prompt.ok()) return fail(prompt.status());
  if (options.logits) return print_logits(**model, *prompt);
  const bool bytes = (*model)->config().vocabulary == training::kByteVocabulary;
  if (bytes) fmt::print("{}", options.prompt);
  const Status status = training::sample(**model, *prompt, options.sample, [&](std::int32_t token) {
    if (bytes)
      std::fputc(token, stdout);
    else
      fmt::print("{} ", token);
    std::fflush(stdout);
  });
  fmt::print("\n");
  return status.ok() ? 0 : fail(status);
}

}  // namespace

void add_sample_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("sample", "Write text with a model");
  auto options = std::make_shared<Options>();
  command
      ->add_option("folder,--model", options->folder,
                   "A checkpoint, a folder of checkpoints, or a model of Hugging Face")
      ->required();
  command->add_option("--prompt", options->prompt, "What the text begins with, as bytes");
  command->add_option("--tokens", options->tokens, "The same as tokens: 1,2,3");
  command->add_option("--count", options->sample.tokens, "How many tokens to write")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--temperature", options->sample.temperature,
                   "0: always the likeliest token; 1: as the model says")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top", options->sample.top, "Only among so many; 0: all")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->sample.seed, "Of the drawing");
  command->add_option("--type", options->type, "What to compute in: f32, f64 or bf16");
  command->add_option("--gemm", options->gemm, "Who multiplies matrices");
  command->add_flag("--logits", options->logits, "Print the logits of the prompt, and stop");
  command->callback([options, &exit_code] { exit_code = run_command(*options); });
}

}  // namespace tutti::cli
