/* newer.c: what NCCL has had since 2.29. A function either does what it says or returns
 * ncclInvalidUsage with a text that names it. */
#include <string.h>

#include "check.h"

#ifdef HAVE_NCCL_2_29

/* 1 when it was done. */
static int done_or_refused(const char* function, int line, ncclResult_t result) {
  if (result == ncclSuccess) return 1;
  check_refused(__FILE__, line, function, result, ncclInvalidUsage, function, "");
  return 0;
}
#define DONE_OR_REFUSED(function, call) done_or_refused(function, __LINE__, call)

static void suspended(Rank* rank) {
  uint64_t bytes = 0;
  DONE_OR_REFUSED("ncclCommMemStats", ncclCommMemStats(rank->comm, ncclStatGpuMemTotal, &bytes));
  if (DONE_OR_REFUSED("ncclCommSuspend", ncclCommSuspend(rank->comm, NCCL_SUSPEND_MEM)))
    SUCCEEDS(ncclCommResume(rank->comm));
  else
    DONE_OR_REFUSED("ncclCommResume", ncclCommResume(rank->comm));
}

/* Two ranks, and a third that joins them. */
static void grown(Rank* rank) {
  ncclComm_t old = NULL;
  ncclComm_t grown_comm = NULL;
  ncclUniqueId* id = (ncclUniqueId*)rank->shared;
  int value = 1;
  int can = 1;
  if (rank->rank < 2 && !SUCCEEDS(ncclCommInitRank(&old, 2, rank->id, rank->rank))) return;
  if (rank->rank == 0) can = DONE_OR_REFUSED("ncclCommGetUniqueId", ncclCommGetUniqueId(old, id));
  if (rank->rank == 0 && !can) memset(id, 0, sizeof *id);
  meet(rank);
  for (size_t i = 0; i < sizeof *id; ++i) can = can && (i > 0 || id->internal[i] != 0);
  if (can && SUCCEEDS(ncclCommGrow(old, 3, rank->rank == 1 ? NULL : id,
                                   rank->rank < 2 ? -1 : rank->rank, &grown_comm, NULL))) {
    SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, grown_comm, NULL));
    CHECK(value == 3);
    SUCCEEDS(ncclCommDestroy(grown_comm));
  } else if (!can) {
    DONE_OR_REFUSED("ncclCommGrow", ncclCommGrow(old, 3, id, -1, &grown_comm, NULL));
  }
  if (old != NULL) SUCCEEDS(ncclCommDestroy(old));
}

/* Rank 0 puts into rank 1's window and signals, twice. */
static void one_sided(Rank* rank) {
  ncclWaitSignalDesc_t wait = {1, 0, 0, 0};
  int* values = NULL;
  ncclWindow_t window = NULL;
  const int sent = 42;
  if (!SUCCEEDS(ncclMemAlloc((void**)&values, 4096))) return;
  values[3] = 0;
  SUCCEEDS(ncclCommWindowRegister(rank->comm, values, 4096, &window, NCCL_WIN_DEFAULT));
  meet(rank);
  if (rank->rank == 0) {
    DONE_OR_REFUSED("ncclPutSignal", ncclPutSignal(&sent, 1, ncclInt, 1, window, 3 * sizeof(int), 0,
                                                   0, 0, rank->comm, NULL));
    DONE_OR_REFUSED("ncclSignal", ncclSignal(1, 0, 0, 0, rank->comm, NULL));
  }
  meet(rank); /* the library's text is that of the last refusal of all ranks */
  if (rank->rank == 1 &&
      DONE_OR_REFUSED("ncclWaitSignal", ncclWaitSignal(1, &wait, rank->comm, NULL))) {
    CHECK(values[3] == sent);
    SUCCEEDS(ncclWaitSignal(1, &wait, rank->comm, NULL));
  }
  meet(rank);
  SUCCEEDS(ncclCommWindowDeregister(rank->comm, window));
  SUCCEEDS(ncclMemFree(values));
}
#endif

#ifdef HAVE_NCCL_2_30
static void values_of(ncclParamHandle_t handle) {
  int8_t i8 = 0;
  int16_t i16 = 0;
  int32_t i32 = 0;
  int64_t i64 = 0;
  uint8_t u8 = 0;
  uint16_t u16 = 0;
  uint32_t u32 = 0;
  uint64_t u64 = 0;
  char bytes[64];
  int length = 0;
  const char* text = NULL;
  DONE_OR_REFUSED("ncclParamGetI8", ncclParamGetI8(handle, &i8));
  DONE_OR_REFUSED("ncclParamGetI16", ncclParamGetI16(handle, &i16));
  DONE_OR_REFUSED("ncclParamGetI32", ncclParamGetI32(handle, &i32));
  DONE_OR_REFUSED("ncclParamGetI64", ncclParamGetI64(handle, &i64));
  DONE_OR_REFUSED("ncclParamGetU8", ncclParamGetU8(handle, &u8));
  DONE_OR_REFUSED("ncclParamGetU16", ncclParamGetU16(handle, &u16));
  DONE_OR_REFUSED("ncclParamGetU32", ncclParamGetU32(handle, &u32));
  DONE_OR_REFUSED("ncclParamGetU64", ncclParamGetU64(handle, &u64));
  DONE_OR_REFUSED("ncclParamGetStr", ncclParamGetStr(handle, &text));
  DONE_OR_REFUSED("ncclParamGet", ncclParamGet(handle, bytes, (int)sizeof bytes, &length));
}

static void parameters(void) {
  ncclParamHandle_t handle = NULL;
  const char* text = NULL;
  const char** keys = NULL;
  int count = 0;
  DONE_OR_REFUSED("ncclParamBind", ncclParamBind(&handle, "NCCL_DEBUG"));
  values_of(handle);
  DONE_OR_REFUSED("ncclParamGetParameter", ncclParamGetParameter("NCCL_DEBUG", &text, &count));
  DONE_OR_REFUSED("ncclParamGetAllParameterKeys", ncclParamGetAllParameterKeys(&keys, &count));
  ncclParamDumpAll();
}
#endif

#ifdef HAVE_NCCL_2_31
static void reducing_with_wishes(Rank* rank, const ncclCollConfig_t* wishes) {
  const int size = rank->size;
  const int sum = size * (size + 1) / 2;
  ncclComm_t comm = rank->comm;
  int in[4] = {rank->rank + 1, rank->rank + 1, rank->rank + 1, rank->rank + 1};
  int out[4] = {0, 0, 0, 0};
  SUCCEEDS(ncclAllReduceConfig(in, out, 1, ncclInt, ncclSum, comm, NULL, wishes));
  CHECK(out[0] == sum);
  SUCCEEDS(ncclReduceConfig(in, out, 1, ncclInt, ncclMax, 0, comm, NULL, wishes));
  CHECK(rank->rank != 0 || out[0] == size);
  SUCCEEDS(ncclReduceScatterConfig(in, out, 1, ncclInt, ncclSum, comm, NULL, wishes));
  CHECK(out[0] == sum);
}

static void moving_with_wishes(Rank* rank, const ncclCollConfig_t* wishes) {
  const int last = rank->size - 1;
  ncclComm_t comm = rank->comm;
  int in[4] = {10 * rank->rank, 10 * rank->rank + 1, 10 * rank->rank + 2, 10 * rank->rank + 3};
  int out[4] = {-1, -1, -1, -1};
  SUCCEEDS(ncclBroadcastConfig(in, out, 1, ncclInt, last, comm, NULL, wishes));
  CHECK(out[0] == 10 * last);
  SUCCEEDS(ncclAllGatherConfig(in, out, 1, ncclInt, comm, NULL, wishes));
  CHECK(out[last] == 10 * last);
  SUCCEEDS(ncclAlltoAllConfig(in, out, 1, ncclInt, comm, NULL, wishes));
  CHECK(out[last] == 10 * last + rank->rank);
  SUCCEEDS(ncclGatherConfig(in, out, 1, ncclInt, 0, comm, NULL, wishes));
  CHECK(rank->rank != 0 || out[last] == 10 * last);
  SUCCEEDS(ncclScatterConfig(in, out, 1, ncclInt, 0, comm, NULL, wishes));
  CHECK(out[0] == rank->rank);
}

static void with_wishes(Rank* rank) {
  ncclCollConfig_t wishes = NCCL_COLLCONFIG_INITIALIZER;
  ncclConfigExt_t ext;
  int value = 1;
  memset(&ext, 0, sizeof ext);
  ext.key.vendorId = 4711;
  reducing_with_wishes(rank, NULL);
  moving_with_wishes(rank, NULL);
  wishes.ext = &ext;
  wishes.minCTAs = 1;
  wishes.maxCTAs = 4;
  wishes.userProfilerTag = 5;
  reducing_with_wishes(rank, &wishes);
  moving_with_wishes(rank, &wishes);
  wishes.magic = 3;
  EXPECT(ncclInvalidArgument,
         ncclAllReduceConfig(&value, &value, 1, ncclInt, ncclSum, rank->comm, NULL, &wishes));
}
#endif

void test_newer(void) {
#ifdef HAVE_NCCL_2_29
  ncclUniqueId id;
  run_members(1, suspended, NULL);
  run_ranks(3, grown, &id);
  run_members(2, one_sided, NULL);
#endif
#ifdef HAVE_NCCL_2_30
  parameters();
#endif
#ifdef HAVE_NCCL_2_31
  run_members(1, with_wishes, NULL);
  run_members(4, with_wishes, NULL);
#endif
}
