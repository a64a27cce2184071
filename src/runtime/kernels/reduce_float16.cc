// reduce_float16.cc: the reductions of float16, compiled for each instruction set that this
// processor family knows, and the choice among them at run time.
#include "runtime/kernels/by_type.hpp"
#include "runtime/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/reduce_float16.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/kernels/reduce_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::runtime::kernels::HWY_NAMESPACE {

void run_float16(const ReduceCall& call) { reduce_as<Float16Format>(call, 2); }

}  // namespace tutti::runtime::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::runtime::kernels {

HWY_EXPORT(run_float16);

void reduce_float16(const ReduceCall& call) { HWY_DYNAMIC_DISPATCH(run_float16)(call); }

}  // namespace tutti::runtime::kernels
#endif
