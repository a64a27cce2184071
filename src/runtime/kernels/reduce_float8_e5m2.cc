// reduce_float8_e5m2.cc: the reductions of float8_e5m2, compiled for each instruction set that this
// processor family knows, and the choice among them at run time.
#include "runtime/kernels/by_type.hpp"
#include "runtime/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/reduce_float8_e5m2.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/kernels/reduce_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::runtime::kernels::HWY_NAMESPACE {

void run_float8_e5m2(const ReduceCall& call) { reduce_as<Float8E5M2Format>(call, 1); }

}  // namespace tutti::runtime::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::runtime::kernels {

HWY_EXPORT(run_float8_e5m2);

void reduce_float8_e5m2(const ReduceCall& call) { HWY_DYNAMIC_DISPATCH(run_float8_e5m2)(call); }

}  // namespace tutti::runtime::kernels
#endif
