// by_type.hpp: the seam between the public functions and the loops compiled for each element
// type. It exists so that the element types compile side by side.
//
// Callers outside of this folder include kernels.hpp instead.
#pragma once

#include "runtime/kernels/kernels.hpp"

namespace tutti::runtime::kernels {

void reduce_float32(const ReduceCall& call);
void reduce_float64(const ReduceCall& call);
void reduce_int8(const ReduceCall& call);
void reduce_uint8(const ReduceCall& call);
void reduce_int32(const ReduceCall& call);
void reduce_uint32(const ReduceCall& call);
void reduce_int64(const ReduceCall& call);
void reduce_uint64(const ReduceCall& call);
void reduce_bfloat16(const ReduceCall& call);
void reduce_float16(const ReduceCall& call);
void reduce_float8_e4m3(const ReduceCall& call);
void reduce_float8_e5m2(const ReduceCall& call);

}  // namespace tutti::runtime::kernels
