// checkpoint_command.cc: options of `tutti checkpoint` and its three uses.
#include "cli/checkpoint_command.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "training/trainer/checkpoint.hpp"
#include "training/trainer/checkpoint_tools.hpp"
#include "training/trainer/run_config.hpp"

namespace tutti::cli {
namespace {

constexpr int kDiffers = 1;
constexpr int kFailed = 2;

struct Options {
  std::string first, second;
  std::string type = "f32";
  double shard_gb = 5;
};

int fail(const Status& status) {
  fmt::print(stderr, "tutti checkpoint: {}\n", status.to_string());
  return kFailed;
}

// A folder of checkpoints means its newest one.
std::string newest_of(const std::string& path) {
  const std::string newest = training::newest_checkpoint(path);
  return newest.empty() ? path : newest;
}

int inspect(const Options& options) {
  auto text = training::describe_checkpoint(newest_of(options.first));
  if (!text.ok()) return fail(text.status());
  fmt::print("{}\n{}", newest_of(options.first), *text);
  return 0;
}

int diff(const Options& options) {
  auto found = training::compare_checkpoints(newest_of(options.first), newest_of(options.second));
  if (!found.ok()) return fail(found.status());
  if (found->empty()) {
    fmt::print("equal to the bit\n");
    return 0;
  }
  for (const training::TensorDifference& tensor : *found)
    if (!tensor.problem.empty())
      fmt::print("{:<56} {}\n", tensor.name, tensor.problem);
    else
      fmt::print("{:<56} {} of {} differ, at most by {:.3e}, relative {:.3e}\n", tensor.name,
                 tensor.differing, tensor.count, tensor.largest, tensor.relative);
  return kDiffers;
}

int reshard(const Options& options) {
  auto type = training::parse_run_type(options.type);
  if (!type.ok()) return fail(type.status());
  training::SaveOptions save;
  save.type = *type;
  save.max_shard_bytes = static_cast<std::uint64_t>(options.shard_gb * 1e9);
  const Status status = training::reshard(newest_of(options.first), options.second, save);
  if (!status.ok()) return fail(status);
  fmt::print("wrote {}\n", options.second);
  return 0;
}

}  // namespace

void add_checkpoint_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("checkpoint", "Look into, compare, convert checkpoints");
  command->require_subcommand(1);
  command->footer(
      "Checkpoints know nothing of the layout that wrote them: any layout resumes from "
      "any of them.\nA folder of checkpoints means the newest of them.\n"
      "Exit codes: 0 done, and equal; 1 `diff` found a difference; 2 failed.");
  auto options = std::make_shared<Options>();

  CLI::App* look = command->add_subcommand("inspect", "Tell what is in it");
  look->add_option("checkpoint", options->first, "A checkpoint, or a folder of weights")
      ->required();
  look->callback([options, &exit_code] { exit_code = inspect(*options); });

  CLI::App* compare = command->add_subcommand(
      "diff", "Tell which tensors differ, and by how much; exit code 1 if any does");
  compare->add_option("a", options->first, "A checkpoint, or a folder of weights")->required();
  compare->add_option("b", options->second, "Another")->required();
  compare->callback([options, &exit_code] { exit_code = diff(*options); });

  CLI::App* convert = command->add_subcommand(
      "reshard", "Write the weights as a folder that Hugging Face's transformers opens");
  convert->add_option("from", options->first, "A checkpoint, or a folder of weights")->required();
  convert->add_option("to", options->second, "The folder to write")->required();
  convert->add_option("--type", options->type, "Of the tensors: f32, f64, bf16 or f16");
  convert->add_option("--shard-gb", options->shard_gb, "No file is larger; 10^9 bytes")
      ->check(CLI::PositiveNumber);
  convert->callback([options, &exit_code] { exit_code = reshard(*options); });
}

}  // namespace tutti::cli
