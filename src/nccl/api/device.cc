// device.cc: the host functions of NCCL's device interface, and those of its settings: what they
// would give is inlined into GPU kernels of NCCL's, or is NCCL's own, so all say what to do
// instead; but for the few that describe a communicator.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "nccl/api/api.hpp"
#include "tutti/nccl_device.h"

namespace tutti::nccl {
namespace {

ncclResult_t no_device_interface(const char* function) {
  return answer(function, [] {
    return no_such_thing(
        "this library has no device interface: kernels cannot communicate by themselves; call the "
        "collectives from the host");
  });
}

ncclResult_t no_parameters(const char* function) {
  return answer(function, [] {
    return no_such_thing("NCCL's parameters are not kept here; `tutti env` lists the settings");
  });
}

// Every `stride`-th rank, or this one alone.
ncclTeam_t team(const char* function, ncclComm_t handle, bool alone) {
  ncclTeam_t made = {0, 0, 0};
  answer(function, [&] {
    const auto comm = find_comm(handle);
    TUTTI_TRY(comm);
    made = alone ? ncclTeam_t{1, 0, 1} : ncclTeam_t{(*comm)->size(), (*comm)->rank(), 1};
    return Status();
  });
  return made;
}

// The rank in the world of the `rank`-th of a team of which the caller is one.
int world_rank(const char* function, ncclComm_t handle, ncclTeam_t of, int rank) {
  int found = -1;
  answer(function, [&] {
    const auto comm = find_comm(handle);
    TUTTI_TRY(comm);
    found = (*comm)->rank() + (rank - of.rank) * of.stride;
    return Status();
  });
  return found;
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

extern "C" {

ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* props) {
  return answer("ncclCommQueryProperties", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    TUTTI_TRY(check_pointer(props, "props"));
    if (props->magic != NCCL_API_MAGIC || props->size < offsetof(ncclCommProperties_t, rank))
      return tutti::Status(tutti::StatusCode::invalid_argument,
                           "props: begin with NCCL_COMM_PROPERTIES_INITIALIZER");
    ncclCommProperties_t known = NCCL_COMM_PROPERTIES_INITIALIZER;
    known.size = props->size;
    known.version = props->version;
    known.rank = (*found)->rank();
    known.nRanks = (*found)->size();
    known.cudaDev = known.nvmlDev = (*found)->identity().device.ordinal;
    known.nLsaTeams = (*found)->size();
    std::memcpy(props, &known, std::min(props->size, sizeof known));
    return tutti::Status();
  });
}

ncclResult_t pncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements_t*, ncclDevComm_t*) {
  return no_device_interface("ncclDevCommCreate");
}

ncclResult_t pncclDevCommDestroy(ncclComm_t, const ncclDevComm_t*) {
  return no_device_interface("ncclDevCommDestroy");
}

ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**) {
  return no_device_interface("ncclGetLsaMultimemDevicePointer");
}

ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t, size_t, ncclMultimemHandle_t, void**) {
  return no_device_interface("ncclGetMultimemDevicePointer");
}

ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void**) {
  return no_device_interface("ncclGetLsaDevicePointer");
}

ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**) {
  return no_device_interface("ncclGetPeerDevicePointer");
}

ncclTeam_t pncclTeamWorld(ncclComm_t comm) { return team("ncclTeamWorld", comm, false); }

ncclTeam_t pncclTeamLsa(ncclComm_t comm) { return team("ncclTeamLsa", comm, true); }

ncclTeam_t pncclTeamRail(ncclComm_t comm) { return team("ncclTeamRail", comm, false); }

int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return world_rank("ncclTeamRankToWorld", comm, team, rank);
}

// Of those around this rank there is only itself.
int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  const int world = world_rank("ncclTeamRankToLsa", comm, team, rank);
  return world < 0 ? world : rank - team.rank;
}

ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                                              ncclDevResourceRequirements_t*) {
  return no_device_interface("ncclLsaBarrierCreateRequirement");
}

ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*,
                                              ncclDevResourceRequirements_t*) {
  return no_device_interface("ncclGinBarrierCreateRequirement");
}

ncclResult_t pncclGinOutboxCreateRequirement(int, int, ncclGinOutboxHandle_t*,
                                             ncclDevResourceRequirements_t*) {
  return no_device_interface("ncclGinOutboxCreateRequirement");
}

ncclResult_t pncclGinInboxA2ACreateRequirement(ncclTeam_t, int, int, ncclGinInboxA2AHandle_t*,
                                               ncclDevResourceRequirements_t*) {
  return no_device_interface("ncclGinInboxA2ACreateRequirement");
}

int pncclLLA2ACalcSlots(int, int) {
  static_cast<void>(no_device_interface("ncclLLA2ACalcSlots"));
  return 0;
}

ncclResult_t pncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t*,
                                         ncclDevResourceRequirements_t*) {
  return no_device_interface("ncclLLA2ACreateRequirement");
}

ncclResult_t pncclParamBind(ncclParamHandle_t*, const char*) {
  return no_parameters("ncclParamBind");
}

ncclResult_t pncclParamGetI8(ncclParamHandle_t, int8_t*) { return no_parameters("ncclParamGetI8"); }

ncclResult_t pncclParamGetI16(ncclParamHandle_t, int16_t*) {
  return no_parameters("ncclParamGetI16");
}

ncclResult_t pncclParamGetI32(ncclParamHandle_t, int32_t*) {
  return no_parameters("ncclParamGetI32");
}

ncclResult_t pncclParamGetI64(ncclParamHandle_t, int64_t*) {
  return no_parameters("ncclParamGetI64");
}

ncclResult_t pncclParamGetU8(ncclParamHandle_t, uint8_t*) {
  return no_parameters("ncclParamGetU8");
}

ncclResult_t pncclParamGetU16(ncclParamHandle_t, uint16_t*) {
  return no_parameters("ncclParamGetU16");
}

ncclResult_t pncclParamGetU32(ncclParamHandle_t, uint32_t*) {
  return no_parameters("ncclParamGetU32");
}

ncclResult_t pncclParamGetU64(ncclParamHandle_t, uint64_t*) {
  return no_parameters("ncclParamGetU64");
}

ncclResult_t pncclParamGetStr(ncclParamHandle_t, const char**) {
  return no_parameters("ncclParamGetStr");
}

ncclResult_t pncclParamGet(ncclParamHandle_t, void*, int, int*) {
  return no_parameters("ncclParamGet");
}

ncclResult_t pncclParamGetParameter(const char*, const char**, int*) {
  return no_parameters("ncclParamGetParameter");
}

ncclResult_t pncclParamGetAllParameterKeys(const char***, int*) {
  return no_parameters("ncclParamGetAllParameterKeys");
}

void pncclParamDumpAll(void) { static_cast<void>(no_parameters("ncclParamDumpAll")); }

}  // extern "C"

TUTTI_ALSO_AS_NCCL(CommQueryProperties);
TUTTI_ALSO_AS_NCCL(DevCommCreate);
TUTTI_ALSO_AS_NCCL(DevCommDestroy);
TUTTI_ALSO_AS_NCCL(GetLsaMultimemDevicePointer);
TUTTI_ALSO_AS_NCCL(GetMultimemDevicePointer);
TUTTI_ALSO_AS_NCCL(GetLsaDevicePointer);
TUTTI_ALSO_AS_NCCL(GetPeerDevicePointer);
TUTTI_ALSO_AS_NCCL(TeamWorld);
TUTTI_ALSO_AS_NCCL(TeamLsa);
TUTTI_ALSO_AS_NCCL(TeamRail);
TUTTI_ALSO_AS_NCCL(TeamRankToWorld);
TUTTI_ALSO_AS_NCCL(TeamRankToLsa);
TUTTI_ALSO_AS_NCCL(LsaBarrierCreateRequirement);
TUTTI_ALSO_AS_NCCL(GinBarrierCreateRequirement);
TUTTI_ALSO_AS_NCCL(GinOutboxCreateRequirement);
TUTTI_ALSO_AS_NCCL(GinInboxA2ACreateRequirement);
TUTTI_ALSO_AS_NCCL(LLA2ACalcSlots);
TUTTI_ALSO_AS_NCCL(LLA2ACreateRequirement);
TUTTI_ALSO_AS_NCCL(ParamBind);
TUTTI_ALSO_AS_NCCL(ParamGetI8);
TUTTI_ALSO_AS_NCCL(ParamGetI16);
TUTTI_ALSO_AS_NCCL(ParamGetI32);
TUTTI_ALSO_AS_NCCL(ParamGetI64);
TUTTI_ALSO_AS_NCCL(ParamGetU8);
TUTTI_ALSO_AS_NCCL(ParamGetU16);
TUTTI_ALSO_AS_NCCL(ParamGetU32);
TUTTI_ALSO_AS_NCCL(ParamGetU64);
TUTTI_ALSO_AS_NCCL(ParamGetStr);
TUTTI_ALSO_AS_NCCL(ParamGet);
TUTTI_ALSO_AS_NCCL(ParamGetParameter);
TUTTI_ALSO_AS_NCCL(ParamGetAllParameterKeys);
TUTTI_ALSO_AS_NCCL(ParamDumpAll);
