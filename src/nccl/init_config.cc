// init_config.cc: see init_config.hpp.
#include "nccl/init_config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/process.hpp"

namespace tutti::nccl {
namespace {

// The head that every version has.
constexpr std::size_t kHeadBytes = offsetof(ncclConfig_t, blocking);

struct Range {
  const char* name;
  int ncclConfig_t::*member;
  int least;
  int most;
};

// What a GPU would heed has no effect here, but a value that cannot be is the caller's mistake.
constexpr Range kRanges[] = {
    {"blocking", &ncclConfig_t::blocking, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, 8},
    {"minCTAs", &ncclConfig_t::minCTAs, 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, 0, 1},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 0, 1},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 1, INT_MAX},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 0, 1},
};

Status refuse(const std::string& reason) {
  return Status(StatusCode::invalid_argument, "ncclConfig_t: " + reason);
}

// As much of it as the caller has and this library knows; the rest undefined.
Result<ncclConfig_t> read(const ncclConfig_t* from) {
  std::size_t size = 0;
  std::memcpy(&size, from, sizeof size);
  if (size < kHeadBytes)
    return refuse(fmt::format("size {} is too small; begin with NCCL_CONFIG_INITIALIZER", size));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Only whole members: every struct's size is a multiple of its alignment.
  size -= size % alignof(ncclConfig_t);
  std::memcpy(&config, from, std::min(size, sizeof config));
  if (config.magic != NCCL_API_MAGIC)
    return refuse(fmt::format("magic {:#x} is not {:#x}; begin with NCCL_CONFIG_INITIALIZER",
                              config.magic, NCCL_API_MAGIC));
  return config;
}

}  // namespace

Result<InitConfig> read_config(const ncclConfig_t* config) {
  InitConfig made;
  if (config != nullptr) {
    const Result<ncclConfig_t> known = read(config);
    TUTTI_TRY(known);
    for (const auto& [name, member, least, most] : kRanges) {
      const int value = (*known).*member;
      if (value != NCCL_CONFIG_UNDEF_INT && (value < least || value > most))
        return refuse(fmt::format("{} is {}, expected {}..{}", name, value, least, most));
    }
    if (known->minCTAs != NCCL_CONFIG_UNDEF_INT && known->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
        known->minCTAs > known->maxCTAs)
      return refuse(
          fmt::format("minCTAs {} is more than maxCTAs {}", known->minCTAs, known->maxCTAs));
    made.blocking = known->blocking != 0;
    made.copy_engines =
        known->CTAPolicy != NCCL_CONFIG_UNDEF_INT && (known->CTAPolicy & NCCL_CTA_POLICY_ZERO) != 0;
    if (known->commName != nullptr) made.name = known->commName;
  }
  if (settings().blocking) made.blocking = *settings().blocking;
  return made;
}

}  // namespace tutti::nccl
