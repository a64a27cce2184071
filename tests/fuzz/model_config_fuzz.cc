// A model's config.json, which comes with weights from anywhere.
//
// Beyond not crashing: what is accepted is a model, has a positive number of parameters, and
// prints and reads again to the same; memory stays within a multiple of the text.
#include <algorithm>

#include "fuzz.hpp"
#include "training/architecture/config.hpp"
#include "training/architecture/presets.hpp"

namespace tutti::fuzz {

using namespace tutti::training;

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  Result<ModelConfig> config = ModelConfig();
  {
    const AllocationLimit limit(512 * input.size() + 64 * 1024);
    config = parse_model_config(input);
  }
  if (!config.ok()) {
    TUTTI_ASSERT(!config.status().message().empty(), "a refusal says why");
    return;
  }
  TUTTI_ASSERT(check(*config).ok(), "what is read is a model");
  TUTTI_ASSERT(config->parameter_count() > 0, "a model has parameters");
  const auto again = parse_model_config(model_config_json(*config, "float32"));
  TUTTI_ASSERT(again.ok() && *again == *config, "a config prints and reads again to the same");
}

std::vector<std::string> seeds() {
  std::vector<std::string> made = {
      R"({"model_type":"llama","vocab_size":9,"hidden_size":8,"num_hidden_layers":1,)"
      R"("num_attention_heads":2,"intermediate_size":4,"max_position_embeddings":16,)"
      R"("rope_parameters":{"rope_type":"default","rope_theta":1e4},"sliding_window":null})",
      R"({"model_type":"gpt2","vocab_size":9,"n_embd":8,"n_layer":1,"n_head":2,"n_inner":null})"};
  for (const std::string& name : model_preset_names())
    made.push_back(model_config_json(model_preset(name).value(), "bfloat16"));
  for (std::string& text : made) text.resize(std::min(text.size(), input_bytes_max()));
  return made;
}

}  // namespace tutti::fuzz
