// memory.hpp: what training keeps in memory, by the formulas that papers give: states of the model
// (values, gradients, what the optimizer has) and activations; and how many parameters of a model
// one rank holds.
//
// Arithmetic only: it knows neither ranks' places (mesh.hpp) nor what an arena really counted.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "training/architecture/config.hpp"
#include "training/architecture/recompute.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// Bytes that one parameter takes, by what they are for. "Bytes per parameter" without the name of
// a recipe means nothing: people say 8, 12, 16, 18 and 20.
struct Recipe {
  std::string_view name;
  int value = 0;  // what the model computes with
  int gradient = 0;
  int optimizer = 0;  // moments, and copies of values in a wider type
  std::string_view meaning;

  int total() const { return value + gradient + optimizer; }
};

std::span<const Recipe> recipes();

// Errors  invalid_argument for a name that we do not know, with those that we do.
Result<Recipe> find_recipe(std::string_view name);

// What one of the ranks that share a state keeps of it: all, or its part.
struct StateBytes {
  double value = 0;
  double gradient = 0;
  double optimizer = 0;

  double total() const { return value + gradient + optimizer; }
};

// Requires  0 <= zero_stage <= 3, shards >= 1.
// Units     bytes of one rank.
// Source    Rajbhandari et al.: ZeRO (2020), section 5: with the recipe "zero-fp16" 16 P for stage
//           0, 4 P + 12 P/N for 1, 2 P + 14 P/N for 2 and 16 P/N for 3.
StateBytes state_bytes(const Recipe& recipe, double parameters, int zero_stage, int shards);

// Elements that a rank sends in a step for each parameter, with many ranks.
// Source  the same, section 7: 2 for stages 0 to 2, 3 for 3.
double zero_volume(int zero_stage);

// One layer of a GPT, for the formulas of Korthikanti et al.
struct LayerShape {
  double sequence = 0;
  double batch = 0;  // of a micro-batch
  double hidden = 0;
  double heads = 0;
};

// Activations of one layer, in 16 bits, on one of `tp` tensor-parallel ranks. `selective`
// recomputes what has the size of the scores.
// Units   bytes.
// Source  Korthikanti et al.: Reducing activation recomputation in large transformer models (2022),
//         table 2: s b h (34 + 5 a s / h) on one rank.
double gpt_activation_bytes(const LayerShape& shape, int tp, bool sequence_parallel,
                            Recompute recompute);

// What `layers` mlps keep if each keeps the `width` numbers of its inner layer, of each token.
double mlp_activation_bytes(double layers, double width, double tokens, double bytes_of_number);

// Where activations of a model are: on one of `tp` ranks, which between tensor-parallel parts have
// local_rows of the rows.
struct ActivationPlace {
  double rows = 0;
  double local_rows = 0;
  int tp = 1;
  double bytes_of_number = 2;
};

// What our own modules keep of one micro-batch between forward and backward: a block, and the head.
// Routing to experts is taken to be uniform.
// Units  bytes.
double block_activation_bytes(const ModelConfig& config, const ActivationPlace& place,
                              Recompute recompute);
double head_activation_bytes(const ModelConfig& config, const ActivationPlace& place);

// Consecutive layers of a model, and whether its ends are with them.
struct ModelPart {
  std::int64_t layers = 0;
  bool has_embedding = true;
  bool has_head = true;
};

// Of a part of a model, on a rank that has the largest share of it. Units: elements.
struct ParameterCount {
  std::int64_t dense = 0;    // all but the experts'
  std::int64_t experts = 0;  // those of the experts here
  std::int64_t tied = 0;     // of a head that computes with an embedding here: only gradients

  std::int64_t total() const { return dense + experts; }
};

// Requires  tp divides heads and the mlp's size, ep the experts; where tp > kv_heads it is a
//           multiple of them.
ParameterCount count_parameters(const ModelConfig& config, const ModelPart& part, int tp = 1,
                                int ep = 1);

}  // namespace tutti::training
