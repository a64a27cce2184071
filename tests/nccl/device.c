/* device.c: the host functions of the device interface: all are there, and say that there is none.
 * NCCL's own header of them is C++. */
#include "check.h"

#if defined(TUTTI_NCCL) || defined(__cplusplus)
#define HAVE_DEVICE_HEADER 1
#include <nccl_device.h>
#endif

#ifdef HAVE_DEVICE_HEADER

/* Bytes for structs that only kernels look into. */
typedef struct {
  char bytes[4096];
} Room;
static Room room;

static void kernels_get_nothing(ncclComm_t comm) {
  const ncclDevCommRequirements_t* wishes = (const ncclDevCommRequirements_t*)(void*)&room;
  ncclDevComm_t* made = (ncclDevComm_t*)(void*)&room;
  REFUSES(ncclInvalidUsage, ncclDevCommCreate(comm, wishes, made), "ncclDevCommCreate", "device");
  REFUSES(ncclInvalidUsage, ncclDevCommDestroy(comm, made), "ncclDevCommDestroy", "device");
}

static void requirements(ncclComm_t comm, ncclTeam_t team) {
  ncclDevResourceRequirements_t* needs = (ncclDevResourceRequirements_t*)(void*)&room;
  void* handle = &room;
  REFUSES(ncclInvalidUsage,
          ncclLsaBarrierCreateRequirement(team, 1, (ncclLsaBarrierHandle_t*)handle, needs),
          "ncclLsaBarrierCreateRequirement", "device");
  REFUSES(ncclInvalidUsage,
          ncclGinBarrierCreateRequirement(comm, team, 1, (ncclGinBarrierHandle_t*)handle, needs),
          "ncclGinBarrierCreateRequirement", "device");
  REFUSES(ncclInvalidUsage, ncclLLA2ACreateRequirement(1, 1, (ncclLLA2AHandle_t*)handle, needs),
          "ncclLLA2ACreateRequirement", "device");
  CHECK(ncclLLA2ACalcSlots(8, 8) >= 0);
#ifdef TUTTI_NCCL
  REFUSES(ncclInvalidUsage,
          ncclGinOutboxCreateRequirement(1, 1, (ncclGinOutboxHandle_t*)handle, needs),
          "ncclGinOutboxCreateRequirement", "device");
  REFUSES(ncclInvalidUsage,
          ncclGinInboxA2ACreateRequirement(team, 1, 1, (ncclGinInboxA2AHandle_t*)handle, needs),
          "ncclGinInboxA2ACreateRequirement", "device");
#endif
}

static void teams(Rank* rank) {
  const ncclTeam_t world = ncclTeamWorld(rank->comm);
  const ncclTeam_t near_by = ncclTeamLsa(rank->comm);
  const ncclTeam_t rail = ncclTeamRail(rank->comm);
  CHECK(world.nRanks == rank->size && world.rank == rank->rank && world.stride == 1);
  /* The two others divide the world between them. */
  CHECK(near_by.nRanks * rail.nRanks == rank->size);
  for (int peer = 0; peer < rank->size; ++peer)
    CHECK(ncclTeamRankToWorld(rank->comm, world, peer) == peer);
  CHECK(ncclTeamRankToWorld(rank->comm, near_by, near_by.rank) == rank->rank);
  CHECK(ncclTeamRankToLsa(rank->comm, world, rank->rank) == near_by.rank);
  CHECK(ncclTeamWorld(NULL).nRanks == 0);
}

#ifdef TUTTI_NCCL
static void properties(Rank* rank) {
  ncclCommProperties_t found = NCCL_COMM_PROPERTIES_INITIALIZER;
  SUCCEEDS(ncclCommQueryProperties(rank->comm, &found));
  CHECK(found.rank == rank->rank && found.nRanks == rank->size);
  CHECK(!found.deviceApiSupport && !found.multimemSupport && !found.hostRmaSupport);
  CHECK(found.ginType == NCCL_GIN_TYPE_NONE && found.railedGinType == NCCL_GIN_TYPE_NONE);
  CHECK(found.nLsaTeams >= 1);
  found.magic = 0;
  EXPECT(ncclInvalidArgument, ncclCommQueryProperties(rank->comm, &found));
  EXPECT(ncclInvalidArgument, ncclCommQueryProperties(rank->comm, NULL));
  EXPECT(ncclInvalidArgument, ncclCommQueryProperties(NULL, &found));
}

static void addresses(void) {
  ncclMultimemHandle_t handle = {NULL};
  ncclWindow_t window = NULL;
  void* found = &room;
  REFUSES(ncclInvalidUsage, ncclGetLsaMultimemDevicePointer(window, 0, &found),
          "ncclGetLsaMultimemDevicePointer", "device");
  REFUSES(ncclInvalidUsage, ncclGetMultimemDevicePointer(window, 0, handle, &found),
          "ncclGetMultimemDevicePointer", "device");
  REFUSES(ncclInvalidUsage, ncclGetLsaDevicePointer(window, 0, 0, &found),
          "ncclGetLsaDevicePointer", "device");
  REFUSES(ncclInvalidUsage, ncclGetPeerDevicePointer(window, 0, 0, &found),
          "ncclGetPeerDevicePointer", "device");
}
#endif

static void device_of_member(Rank* rank) {
  teams(rank);
#ifdef TUTTI_NCCL
  properties(rank);
#endif
}

void test_device(void) {
  ncclComm_t comm = NULL;
  for (int size = 1; size <= 3; ++size) run_members(size, device_of_member, NULL);
  if (!SUCCEEDS(ncclCommInitAll(&comm, 1, NULL))) return;
  kernels_get_nothing(comm);
  requirements(comm, ncclTeamWorld(comm));
#ifdef TUTTI_NCCL
  addresses();
#endif
  SUCCEEDS(ncclCommDestroy(comm));
}
#else
void test_device(void) {}
#endif
