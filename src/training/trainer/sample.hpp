// sample.hpp: text from a model: the next token drawn from what the model says, again and again.
//
// One process, one sequence; each token computes the whole window anew.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "training/model/stage.hpp"
#include "training/modules/axis.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

struct SampleOptions {
  std::int64_t tokens = 200;  // to be drawn
  double temperature = 0.8;   // 0: always the likeliest
  std::int64_t top = 0;       // only among the so many likeliest; 0: all
  std::uint64_t seed = 1;
};

// A whole model in one process, for what is not training.
class SoloModel {
 public:
  // From a folder with config.json and weights: a checkpoint, or a model of Hugging Face.
  // Errors  system_error; corrupt_data; those of make_gemm().
  static Result<std::unique_ptr<SoloModel>> open(const std::string& folder, DataType type,
                                                 const std::string& gemm);
  ~SoloModel();

  const ModelConfig& config() const { return config_; }

  // [tokens, vocabulary], wide. Requires  1 .. config().positions tokens.
  Tensor logits(std::span<const std::int32_t> tokens);

 private:
  SoloModel(const ModelConfig& config, DataType type, std::unique_ptr<Gemm> gemm);

  ModelConfig config_;
  Arena arena_;
  std::unique_ptr<Gemm> gemm_;
  Alone alone_;
  Context context_;
  std::unique_ptr<Stage> stage_;
};

// Whether a model may be asked about these tokens. Errors  invalid_argument: none, or one outside
// the vocabulary.
Status check_prompt(const SoloModel& model, std::span<const std::int32_t> prompt);

// Calls `say` with each token as it is drawn. Past config().positions tokens the oldest are
// forgotten. Errors  those of check_prompt().
Status sample(SoloModel& model, std::vector<std::int32_t> prompt, const SampleOptions& options,
              const std::function<void(std::int32_t)>& say);

}  // namespace tutti::training
