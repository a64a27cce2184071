// run_data.hpp: the tokens of a run, in rows: which sequences each step and each validation has.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "training/data/corpus.hpp"
#include "training/data/sampler.hpp"
#include "training/engine/engine.hpp"
#include "training/trainer/run_config.hpp"

namespace tutti::training {

// Lifetime  of the config: longer.
class RunData {
 public:
  // Errors  those of Corpus and Sampler; invalid_argument where no file is named and the default
  //         corpus is not installed.
  static Result<std::unique_ptr<RunData>> open(const RunConfig& run);

  const Corpus& corpus() const { return corpus_; }
  const Sampler* validation() const { return validation_ ? &*validation_ : nullptr; }

  // What step `step`, of so many micro-batches, learns from.
  StepInput step(std::int64_t step, std::int64_t micro_batches) const;
  // Rows of the validation from `first_row` on. Requires  validation().
  StepInput validation_rows(std::int64_t first_row, std::int64_t micro_batches) const;

 private:
  RunData(const RunConfig& run, Corpus corpus) : run_(run), corpus_(std::move(corpus)) {}
  StepInput rows(const Sampler& sampler, std::int64_t first_row, std::int64_t micro_batches) const;

  const RunConfig& run_;
  Corpus corpus_;
  std::optional<Sampler> training_, validation_;
};

}  // namespace tutti::training
