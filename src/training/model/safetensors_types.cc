// safetensors_types.cc: see safetensors_types.hpp.
#include "training/model/safetensors_types.hpp"

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

constexpr SafetensorsType kTypes[] = {
    {"F64", 64, DataType::float64},
    {"F32", 32, DataType::float32},
    {"F16", 16, DataType::float16},
    {"BF16", 16, DataType::bfloat16},
    {"I64", 64, DataType::int64},
    {"U64", 64, DataType::uint64},
    {"I32", 32, DataType::int32},
    {"U32", 32, DataType::uint32},
    {"I8", 8, DataType::int8},
    {"U8", 8, DataType::uint8},
    {"F8_E4M3", 8, DataType::float8_e4m3},
    {"F8_E5M2", 8, DataType::float8_e5m2},
    {"C64", 64, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"BOOL", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F4", 4, std::nullopt},
};

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) {
  for (const SafetensorsType& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

const SafetensorsType& safetensors_type_of(DataType type) {
  for (const SafetensorsType& known : kTypes)
    if (known.type == type) return known;
  check_failed("a known DataType", __FILE__, __LINE__, "safetensors has all our types");
}

std::optional<std::uint64_t> safetensors_bytes(const SafetensorsType& type,
                                               const Extents& extents) {
  std::int64_t bits = type.bits;
  for (const std::int64_t extent : extents)
    if (extent < 0 || __builtin_mul_overflow(bits, extent, &bits)) return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return static_cast<std::uint64_t>(bits / 8);
}

}  // namespace tutti::training
