// signatures.cc: every function has in Tutti's header the parameters that it has in NCCL's: two
// declarations of one C function that differ do not compile. It needs NCCL's header.
#include <nccl.h>
#include <nccl_device.h>

#include <cstdint>

// Types that came after NCCL's header; where they are known, they are those.
#if NCCL_VERSION_CODE < 22902
enum ncclCommMemStat_t : unsigned int;
struct ncclWaitSignalDesc_t;
#endif
#if NCCL_VERSION_CODE < 23007
typedef struct ncclParamHandle* ncclParamHandle_t;
#endif
#if NCCL_VERSION_CODE < 23100
struct ncclCollConfig_t;
#endif

// All other types are NCCL's: Tutti's are passed over.
#define TUTTI_NCCL_TYPES_H
#include "tutti/nccl.h"

// The device interface: as nccl_device.h declares it, of types that both have.
extern "C" {
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t* reqs,
                               ncclDevComm_t* outDevComm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t* devComm);
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                             ncclLsaBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                             ncclGinBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                        ncclDevResourceRequirements_t* outReq);
}
