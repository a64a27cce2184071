// resave IN OUT [TYPE] [MAX_SHARD_BYTES]: reads a Hugging Face model folder with our reader, every
// parameter as we hold it, and writes it with our writer. check.py compares what transformers makes
// of the two folders; between them lie all our names, transposes and slices, twice.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "training/model/weights.hpp"
#include "training/tensor/arena.hpp"

namespace tutti::training {
namespace {

DataType type_of(std::string_view name) {
  if (name == "float64") return DataType::float64;
  if (name == "float16") return DataType::float16;
  if (name == "bfloat16") return DataType::bfloat16;
  return DataType::float32;
}

Status resave(const std::string& in, const std::string& out, const SaveOptions& options) {
  const Result<ModelConfig> config = read_model_config(in);
  if (!config.ok()) return config.status();
  const Result<WeightFolder> weights = WeightFolder::open(in);
  if (!weights.ok()) return weights.status();
  if (Status status = check_weights(*weights, *config); !status.ok()) return status;
  Arena arena;
  return save_model(out, *config, options, [&](const NamedShape& named) -> Result<Tensor> {
    const Parameter parameter = whole_parameter(named.name, named.shape);
    const Tensor whole(arena, MemoryKind::parameter, DataType::float32, named.shape);
    Status status = load_parameter(*weights, *config, parameter, whole);
    if (!status.ok()) return status;
    return whole;
  });
}

}  // namespace
}  // namespace tutti::training

int main(int count, char** values) {
  if (count < 3 || count > 5)
    return std::fputs("usage: resave IN OUT [TYPE] [MAX_SHARD_BYTES]\n", stderr), 2;
  tutti::training::SaveOptions options;
  if (count > 3) options.type = tutti::training::type_of(values[3]);
  if (count > 4) options.max_shard_bytes = std::strtoull(values[4], nullptr, 10);
  const tutti::Status status = tutti::training::resave(values[1], values[2], options);
  if (!status.ok()) return std::fprintf(stderr, "%s\n", status.to_string().c_str()), 1;
  return 0;
}
