// safetensors_types.hpp: the format's numbers and element types, for its reader and its writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "training/model/safetensors.hpp"
#include "tutti/types.hpp"

namespace tutti::training {

inline constexpr std::size_t kSafetensorsPrefix = 8;             // the header's length
inline constexpr std::size_t kSafetensorsHeaderMax = 100000000;  // of the reference, too

struct SafetensorsType {
  std::string_view name;
  unsigned bits;                 // of an element
  std::optional<DataType> type;  // none: we cannot hold it
};

// Null for a name that the format does not have.
const SafetensorsType* find_safetensors_type(std::string_view name);
const SafetensorsType& safetensors_type_of(DataType type);

// None: above 2^60, or not a multiple of 8 bits.
std::optional<std::uint64_t> safetensors_bytes(const SafetensorsType& type, const Extents& extents);

}  // namespace tutti::training
