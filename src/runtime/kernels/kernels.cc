// kernels.cc: checks what callers promise and picks the loops of the element type. Knows nothing
// of vectors; the files per element type do.
#include "runtime/kernels/kernels.hpp"

#include "base/assert.hpp"
#include "runtime/kernels/by_type.hpp"

namespace tutti::runtime::kernels {

void reduce(const ReduceCall& call) {
  TUTTI_ASSERT(!call.sources.empty(), "a reduction needs a source");
  TUTTI_ASSERT(!call.destinations.empty(), "a reduction needs a destination");
  TUTTI_ASSERT(call.divisor == 1 || (call.divisor > 1 && call.op == ReduceOp::avg),
               "only an average divides");
  if (call.count == 0) return;
  switch (call.type) {
    case DataType::float32:
      return reduce_float32(call);
    case DataType::float64:
      return reduce_float64(call);
    case DataType::int8:
      return reduce_int8(call);
    case DataType::uint8:
      return reduce_uint8(call);
    case DataType::int32:
      return reduce_int32(call);
    case DataType::uint32:
      return reduce_uint32(call);
    case DataType::int64:
      return reduce_int64(call);
    case DataType::uint64:
      return reduce_uint64(call);
    case DataType::bfloat16:
      return reduce_bfloat16(call);
    case DataType::float16:
      return reduce_float16(call);
    case DataType::float8_e4m3:
      return reduce_float8_e4m3(call);
    case DataType::float8_e5m2:
      return reduce_float8_e5m2(call);
  }
}

void divide(DataType type, std::byte* data, std::size_t count, int divisor) {
  const std::byte* const sources[] = {data};
  std::byte* const destinations[] = {data};
  reduce({.type = type,
          .op = ReduceOp::avg,
          .sources = sources,
          .destinations = destinations,
          .count = count,
          .divisor = divisor});
}

}  // namespace tutti::runtime::kernels
