/* mistakes.c: calls that cannot be: each is refused with the result that NCCL gives, and a text
 * that names the function and the value. None may wait for anybody. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static ncclUniqueId some_id(void) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  SUCCEEDS(ncclGetUniqueId(&id));
  return id;
}

/* A number that no constant of the enum is. */
static ncclDataType_t type_of(int number) { return (ncclDataType_t)number; }
static ncclRedOp_t op_of(int number) { return (ncclRedOp_t)number; }
static ncclScalarResidence_t residence_of(int number) { return (ncclScalarResidence_t)number; }

static void in_making(void) {
  ncclComm_t comm = NULL;
  ncclUniqueId id = some_id();
  ncclUniqueId none;
  ncclUniqueId noise;
  const ncclResult_t invalid = ncclInvalidArgument;
  EXPECT(invalid, ncclGetUniqueId(NULL));
  EXPECT(invalid, ncclGetVersion(NULL));
  REFUSES(invalid, ncclCommInitRank(&comm, 0, id, 0), "ncclCommInitRank", "0");
  REFUSES(invalid, ncclCommInitRank(&comm, -3, id, 0), "ncclCommInitRank", "-3");
  REFUSES(invalid, ncclCommInitRank(&comm, 2, id, 2), "ncclCommInitRank", "2");
  REFUSES(invalid, ncclCommInitRank(&comm, 2, id, -1), "ncclCommInitRank", "-1");
  REFUSES(invalid, ncclCommInitRank(NULL, 1, id, 0), "ncclCommInitRank", "comm");
  REFUSES(invalid, ncclCommInitRankConfig(&comm, 1, id, 17, NULL), "ncclCommInitRankConfig", "17");
  REFUSES(invalid, ncclCommInitRankScalable(&comm, 1, 0, 0, &id, NULL), "ncclCommInitRankScalable",
          "0");
  REFUSES(invalid, ncclCommInitRankScalable(&comm, 1, 0, 1, NULL, NULL), "ncclCommInitRankScalable",
          "null");
  REFUSES(invalid, ncclCommInitAll(&comm, -1, NULL), "ncclCommInitAll", "-1");
  REFUSES(invalid, ncclCommInitAll(NULL, 1, NULL), "ncclCommInitAll", "comm");
  memset(&none, 0, sizeof none);
  memset(&noise, 0xa7, sizeof noise);
  REFUSES(invalid, ncclCommInitRank(&comm, 1, none, 0), "ncclCommInitRank", "");
  REFUSES(invalid, ncclCommInitRank(&comm, 1, noise, 0), "ncclCommInitRank", "");
  CHECK(comm == NULL);
}

/* Whatever asks a communicator wants one, and a place for the answer. */
static void in_asking(ncclComm_t comm) {
  int found = 0;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t invalid = ncclInvalidArgument;
  REFUSES(invalid, ncclCommCount(NULL, &found), "ncclCommCount", "null");
  REFUSES(invalid, ncclCommUserRank(NULL, &found), "ncclCommUserRank", "null");
  REFUSES(invalid, ncclCommCuDevice(NULL, &found), "ncclCommCuDevice", "null");
  REFUSES(invalid, ncclCommGetAsyncError(NULL, &state), "ncclCommGetAsyncError", "null");
  EXPECT(invalid, ncclCommCount(comm, NULL));
  EXPECT(invalid, ncclCommUserRank(comm, NULL));
  EXPECT(invalid, ncclCommCuDevice(comm, NULL));
  EXPECT(invalid, ncclCommGetAsyncError(comm, NULL));
}

static void in_collectives(ncclComm_t comm) {
  const ncclResult_t invalid = ncclInvalidArgument;
  const ncclDataType_t type = ncclInt32;
  const ncclDataType_t no_type = type_of(12);
  const ncclRedOp_t no_op = op_of(1234);
  int a[4] = {0, 0, 0, 0};
  int b[4] = {0, 0, 0, 0};
  REFUSES(invalid, ncclAllReduce(a, b, 1, type, ncclSum, NULL, NULL), "ncclAllReduce", "null");
  REFUSES(invalid, ncclAllReduce(a, b, 1, no_type, ncclSum, comm, NULL), "ncclAllReduce", "12");
  REFUSES(invalid, ncclAllReduce(a, b, 1, type_of(-1), ncclSum, comm, NULL), "ncclAllReduce", "-1");
  REFUSES(invalid, ncclAllReduce(a, b, 1, type, no_op, comm, NULL), "ncclAllReduce", "1234");
  REFUSES(invalid, ncclAllReduce(a, b, 1, type, op_of(-1), comm, NULL), "ncclAllReduce", "-1");
  REFUSES(invalid, ncclAllReduce(NULL, b, 1, type, ncclSum, comm, NULL), "ncclAllReduce", "null");
  REFUSES(invalid, ncclAllReduce(a, NULL, 1, type, ncclSum, comm, NULL), "ncclAllReduce", "null");
  REFUSES(invalid, ncclAllReduce(a, b, SIZE_MAX / 2, type, ncclSum, comm, NULL), "ncclAllReduce",
          "9223372036854775807");
  REFUSES(invalid, ncclReduce(a, b, 1, type, ncclSum, 5, comm, NULL), "ncclReduce", "5");
  REFUSES(invalid, ncclReduce(a, b, 1, type, ncclSum, -1, comm, NULL), "ncclReduce", "-1");
  REFUSES(invalid, ncclBroadcast(a, b, 1, type, 5, comm, NULL), "ncclBroadcast", "5");
  REFUSES(invalid, ncclBcast(a, 1, type, -2, comm, NULL), "ncclB", "-2");
  REFUSES(invalid, ncclGather(a, b, 1, type, 7, comm, NULL), "ncclGather", "7");
  REFUSES(invalid, ncclScatter(a, b, 1, type, 8, comm, NULL), "ncclScatter", "8");
  REFUSES(invalid, ncclAllGather(a, b, 1, no_type, comm, NULL), "ncclAllGather", "12");
  REFUSES(invalid, ncclReduceScatter(a, b, 1, type, no_op, comm, NULL), "ncclReduceScatter",
          "1234");
  REFUSES(invalid, ncclAlltoAll(NULL, b, 1, type, comm, NULL), "ncclAlltoAll", "null");
  REFUSES(invalid, ncclSend(a, 1, type, 5, comm, NULL), "ncclSend", "5");
  REFUSES(invalid, ncclSend(a, 1, type, -1, comm, NULL), "ncclSend", "-1");
  REFUSES(invalid, ncclRecv(a, 1, type, 6, comm, NULL), "ncclRecv", "6");
  REFUSES(invalid, ncclRecv(NULL, 1, type, 0, comm, NULL), "ncclRecv", "null");
}

static void in_operators(ncclComm_t comm) {
  const ncclResult_t invalid = ncclInvalidArgument;
  ncclRedOp_t op = ncclSum;
  float factor = 1;
  EXPECT(invalid,
         ncclRedOpCreatePreMulSum(NULL, &factor, ncclFloat, ncclScalarHostImmediate, comm));
  EXPECT(invalid, ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm));
  EXPECT(invalid, ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, NULL));
  EXPECT(invalid,
         ncclRedOpCreatePreMulSum(&op, &factor, type_of(99), ncclScalarHostImmediate, comm));
  EXPECT(invalid, ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, residence_of(9), comm));
  EXPECT(invalid, ncclRedOpDestroy(op_of(4321), comm));
  EXPECT(invalid, ncclRedOpDestroy(op_of(4321), NULL));
}

/* A group that was never begun cannot end; and one that failed is over. */
static void in_groups(ncclComm_t comm) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  int value = 1;
  REFUSES(ncclInvalidUsage, ncclGroupEnd(), "ncclGroupEnd", "ncclGroupStart");
  EXPECT(ncclInvalidUsage, ncclGroupSimulateEnd(&info));
  SUCCEEDS(ncclGroupStart());
  EXPECT(ncclInvalidArgument, ncclBcast(&value, 1, ncclInt, 3, comm, NULL));
  EXPECT(ncclInvalidArgument, ncclGroupEnd());
  EXPECT(ncclInvalidUsage, ncclGroupEnd());
  SUCCEEDS(ncclBcast(&value, 1, ncclInt, 0, comm, NULL));
}

/* A stream is CUDA's, and there is none. */
static void in_streams(ncclComm_t comm) {
  int value = 1;
  cudaStream_t stream = (cudaStream_t)(void*)&value;
  if (!no_cuda_driver()) return;
  REFUSES(ncclInvalidUsage, ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, stream),
          "ncclAllReduce", "stream");
  EXPECT(ncclInvalidUsage, ncclSend(&value, 1, ncclInt, 0, comm, stream));
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, NULL));
  CHECK(value == 1);
}

/* Memory that is no communicator. */
static void in_handles(void) {
  char memory[512];
  int found = 0;
  memset(memory, 0x33, sizeof memory);
  EXPECT(ncclInvalidArgument, ncclCommCount((ncclComm_t)(void*)memory, &found));
  EXPECT(ncclInvalidArgument, ncclCommDestroy((ncclComm_t)(void*)memory));
}

/* An error is told until there is another one, and a success does not wipe it away. */
static void in_texts(ncclComm_t comm) {
  int value = 1;
  EXPECT(ncclInvalidArgument, ncclBcast(&value, 1, ncclInt, 33, comm, NULL));
  SUCCEEDS(ncclBcast(&value, 1, ncclInt, 0, comm, NULL));
  CHECK(strstr(ncclGetLastError(comm), "33") != NULL);
  CHECK(strstr(ncclGetLastError(NULL), "33") != NULL);
}

void test_mistakes(void) {
  ncclComm_t comm = NULL;
  in_making();
  if (!SUCCEEDS(ncclCommInitAll(&comm, 1, NULL))) return;
  in_asking(comm);
  in_collectives(comm);
  in_operators(comm);
  in_groups(comm);
  in_streams(comm);
  in_handles();
  in_texts(comm);
  SUCCEEDS(ncclCommDestroy(comm));
}
