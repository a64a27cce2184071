// run_data.cc: see run_data.hpp.
#include "training/trainer/run_data.hpp"

#include <span>
#include <string>
#include <vector>

#include "training/optim/learning_rate.hpp"

namespace tutti::training {

Result<std::unique_ptr<RunData>> RunData::open(const RunConfig& run) {
  std::vector<std::string> files = run.data.train;
  if (files.empty()) {
    auto path = default_corpus_path();
    if (!path.ok()) return path.status();
    files.push_back(*path);
  }
  auto corpus = Corpus::open(files, run.data.held_out);
  if (!corpus.ok()) return corpus.status();
  std::unique_ptr<RunData> made(new RunData(run, std::move(*corpus)));
  auto training =
      Sampler::make(made->corpus_, made->corpus_.train(), run.data.seq_len,
                    Sampler::Order::shuffled, static_cast<std::uint64_t>(run.train.seed));
  if (!training.ok()) return training.status().with_context("[data] train");
  made->training_ = std::move(*training);
  if (made->corpus_.validation().size() == 0) return made;
  auto validation = Sampler::make(made->corpus_, made->corpus_.validation(), run.data.seq_len,
                                  Sampler::Order::in_order);
  if (!validation.ok()) return validation.status().with_context("[data] held_out");
  made->validation_ = std::move(*validation);
  return made;
}

StepInput RunData::rows(const Sampler& sampler, std::int64_t first_row,
                        std::int64_t micro_batches) const {
  const std::int64_t each = run_.train.micro_batch;
  StepInput made;
  made.fill = [&sampler, first_row, each](std::int64_t number, std::span<std::int32_t> tokens,
                                          std::span<std::int32_t> targets) {
    sampler.fill(first_row + number * each, each, tokens, targets);
  };
  made.targets = sampler.count_targets(first_row, micro_batches * each);
  return made;
}

StepInput RunData::step(std::int64_t step, std::int64_t micro_batches) const {
  StepInput made = rows(*training_, step * run_.train.global_batch, micro_batches);
  made.learning_rate = learning_rate(run_.optim.rate, step, run_.train.steps);
  return made;
}

StepInput RunData::validation_rows(std::int64_t first_row, std::int64_t micro_batches) const {
  return rows(*validation_, first_row, micro_batches);
}

}  // namespace tutti::training
