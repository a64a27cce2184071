// Names, sizes and kinds of the small vocabulary, and parsing it.
#include "tutti/types.hpp"

#include <array>
#include <span>
#include <string>

namespace tutti {
namespace {

constexpr std::array<std::string_view, 12> kDataTypeNames = {
    "int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
    "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
constexpr std::array<std::string_view, 5> kReduceOpNames = {"sum", "prod", "min", "max", "avg"};
constexpr std::array<std::string_view, 10> kCollectiveNames = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
    "gather",     "scatter",    "all_to_all",     "send_recv", "barrier"};

template <typename Enum>
Result<Enum> parse(std::span<const std::string_view> names, std::string_view name,
                   std::string_view what) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  std::string text = "unknown " + std::string(what) + " '" + std::string(name) + "', use one of";
  for (std::string_view known : names) text += " " + std::string(known);
  return Status(StatusCode::invalid_argument, text);
}

}  // namespace

bool is_floating(DataType type) {
  switch (type) {
    case DataType::float16:
    case DataType::float32:
    case DataType::float64:
    case DataType::bfloat16:
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      return true;
    default:
      return false;
  }
}

bool is_reduction(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

std::string_view to_string(DataType type) { return kDataTypeNames[static_cast<std::size_t>(type)]; }
std::string_view to_string(ReduceOp op) { return kReduceOpNames[static_cast<std::size_t>(op)]; }
std::string_view to_string(Collective collective) {
  return kCollectiveNames[static_cast<std::size_t>(collective)];
}

Result<DataType> parse_data_type(std::string_view name) {
  return parse<DataType>(kDataTypeNames, name, "element type");
}
Result<ReduceOp> parse_reduce_op(std::string_view name) {
  return parse<ReduceOp>(kReduceOpNames, name, "reduction");
}
Result<Collective> parse_collective(std::string_view name) {
  return parse<Collective>(kCollectiveNames, name, "collective");
}

}  // namespace tutti
