// types.hpp: the small vocabulary that every other header speaks: ranks, element types,
// reduction operations and the names of the collectives.
//
// Knows nothing of how anything is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tutti/status.hpp"

#pragma GCC visibility push(default)
namespace tutti {

// The number of a participant in a communicator, 0 .. size-1.
using Rank = std::int32_t;

// Element types that collectives move and reduce.
enum class DataType : std::uint8_t {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
  float8_e4m3,
  float8_e5m2,
};

inline constexpr DataType kAllDataTypes[] = {
    DataType::int8,    DataType::uint8,    DataType::int32,       DataType::uint32,
    DataType::int64,   DataType::uint64,   DataType::float16,     DataType::float32,
    DataType::float64, DataType::bfloat16, DataType::float8_e4m3, DataType::float8_e5m2};

// How two contributions become one. `avg` sums and divides once, by the number of ranks;
// on integers the division truncates toward zero. 16- and 8-bit floats accumulate in float32
// within a step and are rounded at its end; 8-bit ones saturate, see numeric.hpp.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg };

inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min,
                                             ReduceOp::max, ReduceOp::avg};

// What a group of ranks can do together.
enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send_recv,
  barrier,
};

inline constexpr Collective kAllCollectives[] = {Collective::all_reduce,     Collective::all_gather,
                                                 Collective::reduce_scatter, Collective::broadcast,
                                                 Collective::reduce,         Collective::gather,
                                                 Collective::scatter,        Collective::all_to_all,
                                                 Collective::send_recv,      Collective::barrier};

// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::int8:
    case DataType::uint8:
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      return 1;
    case DataType::bfloat16:
    case DataType::float16:
      return 2;
    case DataType::float32:
    case DataType::int32:
    case DataType::uint32:
      return 4;
    case DataType::float64:
    case DataType::int64:
    case DataType::uint64:
      return 8;
  }
  return 0;
}

bool is_floating(DataType type);

// True for the collectives that combine values (all_reduce, reduce_scatter, reduce).
bool is_reduction(Collective collective);

// True for the collectives that have a root (broadcast, reduce, gather, scatter).
bool has_root(Collective collective);

// Names as users write them: "float", "half", "f8e4m3", "sum", "all_reduce", ...
// (element types carry the names that nccl-tests prints).
std::string_view to_string(DataType type);
std::string_view to_string(ReduceOp op);
std::string_view to_string(Collective collective);

// The inverse of to_string. Errors: invalid_argument, listing the names that exist.
Result<DataType> parse_data_type(std::string_view name);
Result<ReduceOp> parse_reduce_op(std::string_view name);
Result<Collective> parse_collective(std::string_view name);

}  // namespace tutti
#pragma GCC visibility pop
