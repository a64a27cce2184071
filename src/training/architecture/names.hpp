// names.hpp: what parameters are called, here and in Hugging Face's files.
//
// Within the training layer every architecture uses the names of Hugging Face's Llama and Mixtral
// and linear weights are [out, in]. Files of those two are just so. GPT-2's are not: other names,
// linear weights [in, out], and the projections of queries, keys and values side by side in one
// tensor. The tables here say where each parameter lies.
//
// Knows no file; weights.hpp reads and writes them by these rules.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/tensor/shape.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

struct NamedShape {
  std::string name;
  Shape shape;  // of the whole weight

  friend bool operator==(const NamedShape&, const NamedShape&) = default;
};

// Every parameter of the model, tied ones once: the embedding, the layers' in order, the last norm,
// the head. Parameters that share a tensor of a file are next to each other.
// Requires  check(config) is ok.
std::vector<NamedShape> parameter_shapes(const ModelConfig& config);
std::vector<NamedShape> shapes_of_layer(const ModelConfig& config, std::int64_t layer);
std::vector<NamedShape> shapes_outside_layers(const ModelConfig& config);

// Where a parameter lies in a Hugging Face file.
struct FilePlace {
  std::string tensor;       // the file's name for it
  std::string bare_tensor;  // its name in files of the model without a head; may be the same
  bool transposed = false;  // the file has [in, out]
  std::int64_t piece = 0;   // the parameter is this one of so many equal pieces of the outputs
  std::int64_t pieces = 1;

  // The extents of the file's tensor, given those of the whole parameter.
  Shape file_shape(const Shape& parameter) const;
};

// Errors  invalid_argument: the architecture has no such parameter; the text has the nearest ones.
Result<FilePlace> file_place(const ModelConfig& config, std::string_view parameter);

// The names that `wanted` most likely meant come first; equally near ones keep their order.
// Cost  of a name, the product of the lengths; names that are much longer than any of ours come
//       last unread.
std::vector<std::string> nearest_first(std::string_view wanted, std::vector<std::string> names);

// "a, b, c": the first `count` of nearest_first(), for an error's text.
std::string nearest_text(std::string_view wanted, std::vector<std::string> names,
                         std::size_t count = 3);

}  // namespace tutti::training
