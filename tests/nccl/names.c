/* names.c: every function is there twice, and a tool that stands in front of one may call the
 * other. */
#include <string.h>

#include "check.h"

typedef void (*Function)(void);

typedef struct {
  const char* name;
  Function usual;
  Function profiled;
} Name;

#define NAME(name) \
  { #name, (Function)nccl##name, (Function)pnccl##name }

static const Name all_names[] = {
    NAME(AllGather),
    NAME(AllReduce),
    NAME(AlltoAll),
    NAME(Bcast),
    NAME(Broadcast),
    NAME(CommAbort),
    NAME(CommCount),
    NAME(CommCuDevice),
    NAME(CommDeregister),
    NAME(CommDestroy),
    NAME(CommFinalize),
    NAME(CommGetAsyncError),
    NAME(CommInitAll),
    NAME(CommInitRank),
    NAME(CommInitRankConfig),
    NAME(CommInitRankScalable),
    NAME(CommRegister),
    NAME(CommRevoke),
    NAME(CommShrink),
    NAME(CommSplit),
    NAME(CommUserRank),
    NAME(CommWindowDeregister),
    NAME(CommWindowRegister),
    NAME(Gather),
    NAME(GetErrorString),
    NAME(GetLastError),
    NAME(GetUniqueId),
    NAME(GetVersion),
    NAME(GroupEnd),
    NAME(GroupSimulateEnd),
    NAME(GroupStart),
    NAME(MemAlloc),
    NAME(MemFree),
    NAME(Recv),
    NAME(RedOpCreatePreMulSum),
    NAME(RedOpDestroy),
    NAME(Reduce),
    NAME(ReduceScatter),
    NAME(Scatter),
    NAME(Send),
#ifdef HAVE_NCCL_2_29
    NAME(CommGetUniqueId),
    NAME(CommGrow),
    NAME(CommSuspend),
    NAME(CommResume),
    NAME(CommMemStats),
    NAME(WinGetUserPtr),
    NAME(PutSignal),
    NAME(Signal),
    NAME(WaitSignal),
#endif
#ifdef HAVE_NCCL_2_30
    NAME(ParamBind),
    NAME(ParamDumpAll),
    NAME(ParamGet),
    NAME(ParamGetAllParameterKeys),
    NAME(ParamGetI16),
    NAME(ParamGetI32),
    NAME(ParamGetI64),
    NAME(ParamGetI8),
    NAME(ParamGetParameter),
    NAME(ParamGetStr),
    NAME(ParamGetU16),
    NAME(ParamGetU32),
    NAME(ParamGetU64),
    NAME(ParamGetU8),
#endif
#ifdef HAVE_NCCL_2_31
    NAME(AllGatherConfig),
    NAME(AllReduceConfig),
    NAME(AlltoAllConfig),
    NAME(BroadcastConfig),
    NAME(GatherConfig),
    NAME(ReduceConfig),
    NAME(ReduceScatterConfig),
    NAME(ScatterConfig),
#endif
};

/* Nothing stands in front of this program's library, so that both names are one function. */
static void are_one(void) {
  for (size_t i = 0; i < sizeof all_names / sizeof all_names[0]; ++i) {
    if (all_names[i].usual == all_names[i].profiled && all_names[i].usual != NULL) continue;
    check_failed(__FILE__, __LINE__, "nccl%s is not pnccl%s", all_names[i].name, all_names[i].name);
  }
}

/* As a profiler would call them. */
static void can_be_called(void) {
  ncclComm_t comm = NULL;
  int version = 0;
  int other = 0;
  double value = 5;
  SUCCEEDS(pncclGetVersion(&version));
  SUCCEEDS(ncclGetVersion(&other));
  CHECK(version == other);
  CHECK(strcmp(pncclGetErrorString(ncclSystemError), ncclGetErrorString(ncclSystemError)) == 0);
  if (!SUCCEEDS(pncclCommInitAll(&comm, 1, NULL))) return;
  SUCCEEDS(pncclGroupStart());
  SUCCEEDS(pncclAllReduce(&value, &value, 1, ncclDouble, ncclSum, comm, NULL));
  SUCCEEDS(pncclGroupEnd());
  CHECK(value == 5);
  EXPECT(ncclInvalidArgument, pncclBcast(&value, 1, ncclDouble, 9, comm, NULL));
  CHECK(strstr(pncclGetLastError(comm), "9") != NULL);
  SUCCEEDS(pncclCommDestroy(comm));
}

/* NCCL has it and calls it deprecated, of which a warning would be an error here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void log_settings(void) {
  ncclResetDebugInit();
  pncclResetDebugInit();
}
#pragma GCC diagnostic pop

void test_names(void) {
  are_one();
  can_be_called();
  log_settings();
}
