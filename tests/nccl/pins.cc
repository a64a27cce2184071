// pins.cc: what Tutti's header says is what NCCL's says: values, sizes, offsets and initial values,
// with both in one file. To compile it is the test; it needs NCCL's header, of 2.28.9 or later.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

// What NCCL's macros are, before Tutti's take their names.
namespace theirs {
constexpr int kVersion = NCCL_VERSION_CODE;
constexpr int kVersion208 = NCCL_VERSION(2, 8, 4);
constexpr int kVersion209 = NCCL_VERSION(2, 9, 1);
constexpr ncclConfig_t kConfig = NCCL_CONFIG_INITIALIZER;
constexpr ncclSimInfo_t kSimInfo = NCCL_SIM_INFO_INITIALIZER;
constexpr int kIdBytes = NCCL_UNIQUE_ID_BYTES;
constexpr int kUndefInt = NCCL_CONFIG_UNDEF_INT;
constexpr float kUndefFloat = NCCL_UNDEF_FLOAT;
constexpr int kNoColor = NCCL_SPLIT_NOCOLOR;
constexpr int kFlags[] = {
    NCCL_WIN_DEFAULT,           NCCL_WIN_COLL_SYMMETRIC, NCCL_CTA_POLICY_DEFAULT,
    NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO,    NCCL_SHRINK_DEFAULT,
    NCCL_SHRINK_ABORT,          NCCL_REVOKE_DEFAULT,     NCCL_WIN_REQUIRED_ALIGNMENT};
}  // namespace theirs

#undef NCCL_MAJOR
#undef NCCL_MINOR
#undef NCCL_PATCH
#undef NCCL_SUFFIX
#undef NCCL_VERSION_CODE
#undef NCCL_VERSION
#undef NCCL_COMM_NULL
#undef NCCL_UNIQUE_ID_BYTES
#undef NCCL_CONFIG_UNDEF_INT
#undef NCCL_CONFIG_UNDEF_PTR
#undef NCCL_UNDEF_FLOAT
#undef NCCL_SPLIT_NOCOLOR
#undef NCCL_API_MAGIC
#undef NCCL_WIN_DEFAULT
#undef NCCL_WIN_COLL_SYMMETRIC
#undef NCCL_WIN_STRICT_ORDERING
#undef NCCL_WIN_GIN_ONLY
#undef NCCL_WIN_REQUIRED_ALIGNMENT
#undef NCCL_CTA_POLICY_DEFAULT
#undef NCCL_CTA_POLICY_EFFICIENCY
#undef NCCL_CTA_POLICY_ZERO
#undef NCCL_SHRINK_DEFAULT
#undef NCCL_SHRINK_ABORT
#undef NCCL_REVOKE_DEFAULT
#undef NCCL_SUSPEND_MEM
#undef NCCL_CONFIG_INITIALIZER
#undef NCCL_COLLCONFIG_INITIALIZER
#undef NCCL_SIM_INFO_INITIALIZER

namespace ours {
#include "tutti/nccl_types.h"

constexpr ncclConfig_t kConfig = NCCL_CONFIG_INITIALIZER;
constexpr ncclSimInfo_t kSimInfo = NCCL_SIM_INFO_INITIALIZER;
constexpr int kFlags[] = {
    NCCL_WIN_DEFAULT,           NCCL_WIN_COLL_SYMMETRIC, NCCL_CTA_POLICY_DEFAULT,
    NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO,    NCCL_SHRINK_DEFAULT,
    NCCL_SHRINK_ABORT,          NCCL_REVOKE_DEFAULT,     NCCL_WIN_REQUIRED_ALIGNMENT};
}  // namespace ours

namespace {

template <typename Ours, typename Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<long long>(ours) == static_cast<long long>(theirs) &&
         sizeof(Ours) == sizeof(Theirs);
}

template <typename Ours, typename Theirs>
constexpr bool same_layout() {
  return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
}

#define SAME(name) static_assert(same(ours::name, ::name), #name " differs")

// Versions: the formula, and that ours is not above theirs. A newer one only adds.
static_assert(NCCL_VERSION_CODE == 22809);
static_assert(theirs::kVersion >= NCCL_VERSION_CODE, "NCCL's header is too old to compare with");
static_assert(NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH) == NCCL_VERSION_CODE);
static_assert(NCCL_VERSION(2, 8, 4) == theirs::kVersion208);
static_assert(NCCL_VERSION(2, 9, 1) == theirs::kVersion209);

SAME(ncclSuccess);
SAME(ncclUnhandledCudaError);
SAME(ncclSystemError);
SAME(ncclInternalError);
SAME(ncclInvalidArgument);
SAME(ncclInvalidUsage);
SAME(ncclRemoteError);
SAME(ncclInProgress);
static_assert(static_cast<int>(ours::ncclNumResults) >= static_cast<int>(::ncclNumResults));

SAME(ncclNumOps_dummy);
SAME(ncclSum);
SAME(ncclProd);
SAME(ncclMax);
SAME(ncclMin);
SAME(ncclAvg);
SAME(ncclNumOps);
SAME(ncclMaxRedOp);

SAME(ncclInt8);
SAME(ncclChar);
SAME(ncclUint8);
SAME(ncclInt32);
SAME(ncclInt);
SAME(ncclUint32);
SAME(ncclInt64);
SAME(ncclUint64);
SAME(ncclFloat16);
SAME(ncclHalf);
SAME(ncclFloat32);
SAME(ncclFloat);
SAME(ncclFloat64);
SAME(ncclDouble);
SAME(ncclBfloat16);
SAME(ncclFloat8e4m3);
SAME(ncclFloat8e5m2);
SAME(ncclNumTypes);

SAME(ncclScalarDevice);
SAME(ncclScalarHostImmediate);

constexpr bool same_flags() {
  static_assert(sizeof ours::kFlags == sizeof theirs::kFlags);
  for (std::size_t i = 0; i < sizeof ours::kFlags / sizeof *ours::kFlags; ++i) {
    if (ours::kFlags[i] != theirs::kFlags[i]) return false;
  }
  return true;
}
static_assert(same_flags());
static_assert(NCCL_UNIQUE_ID_BYTES == theirs::kIdBytes);
static_assert(NCCL_CONFIG_UNDEF_INT == theirs::kUndefInt);
static_assert(NCCL_UNDEF_FLOAT == theirs::kUndefFloat);
static_assert(NCCL_SPLIT_NOCOLOR == theirs::kNoColor);

// By value, and so in registers or on the stack: a matter of size and alignment.
static_assert(same_layout<ours::ncclUniqueId, ::ncclUniqueId>());
static_assert(same_layout<ours::ncclSimInfo_t, ::ncclSimInfo_t>());
static_assert(std::is_same_v<struct CUstream_st*, ::cudaStream_t>);

// Ours is the longer one; what theirs has is at the same place, and begins as the same.
static_assert(sizeof(ours::ncclConfig_t) >= sizeof(::ncclConfig_t));
static_assert(alignof(ours::ncclConfig_t) == alignof(::ncclConfig_t));
static_assert(ours::kConfig.size == sizeof(ours::ncclConfig_t));
static_assert(ours::kConfig.magic == theirs::kConfig.magic);
static_assert(ours::kConfig.version == NCCL_VERSION_CODE);

#define SAME_MEMBER(name)                                                                         \
  static_assert(offsetof(ours::ncclConfig_t, name) == offsetof(::ncclConfig_t, name), #name);     \
  static_assert(                                                                                  \
      std::is_same_v<decltype(ours::ncclConfig_t::name), decltype(::ncclConfig_t::name)>, #name); \
  static_assert(ours::kConfig.name == theirs::kConfig.name, #name)

SAME_MEMBER(blocking);
SAME_MEMBER(cgaClusterSize);
SAME_MEMBER(minCTAs);
SAME_MEMBER(maxCTAs);
SAME_MEMBER(netName);
SAME_MEMBER(splitShare);
SAME_MEMBER(trafficClass);
SAME_MEMBER(commName);
SAME_MEMBER(collnetEnable);
SAME_MEMBER(CTAPolicy);
SAME_MEMBER(shrinkShare);
SAME_MEMBER(nvlsCTAs);
SAME_MEMBER(nChannelsPerNetPeer);
SAME_MEMBER(nvlinkCentricSched);
static_assert(offsetof(ours::ncclConfig_t, size) == offsetof(::ncclConfig_t, size));
static_assert(offsetof(ours::ncclConfig_t, magic) == offsetof(::ncclConfig_t, magic));
static_assert(offsetof(ours::ncclConfig_t, version) == offsetof(::ncclConfig_t, version));
// What 2.28 does not have begins where it ends, but for its padding.
static_assert(offsetof(ours::ncclConfig_t, graphUsageMode) ==
              offsetof(ours::ncclConfig_t, nvlinkCentricSched) + sizeof(int));

static_assert(ours::kSimInfo.size == theirs::kSimInfo.size);
static_assert(ours::kSimInfo.magic == theirs::kSimInfo.magic);
static_assert(ours::kSimInfo.estimatedTime == theirs::kSimInfo.estimatedTime);
static_assert(offsetof(ours::ncclSimInfo_t, estimatedTime) ==
              offsetof(::ncclSimInfo_t, estimatedTime));

}  // namespace
