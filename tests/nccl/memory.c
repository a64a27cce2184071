/* memory.c: memory of the library's own, registered buffers, windows and operators. */
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { floats = 4096 };

static void adds_up(Rank* rank, float* values) {
  for (int i = 0; i < floats; ++i) values[i] = 1;
  SUCCEEDS(ncclAllReduce(values, values, floats, ncclFloat32, ncclSum, rank->comm, NULL));
  for (int i = 0; i < floats; ++i) CHECK(values[i] == (float)rank->size);
}

/* Memory that windows can be made of. */
static float* allocated(void) {
  void* memory = NULL;
  if (!SUCCEEDS(ncclMemAlloc(&memory, floats * sizeof(float)))) return NULL;
  CHECK(memory != NULL);
  CHECK((uintptr_t)memory % NCCL_WIN_REQUIRED_ALIGNMENT == 0);
  return (float*)memory;
}

static void allocation(Rank* rank) {
  float* values = allocated();
  if (values == NULL) return;
  adds_up(rank, values);
  SUCCEEDS(ncclMemFree(values));
}

static void registration(Rank* rank) {
  static float buffers[8][floats];
  float* values = buffers[rank->rank];
  void* handles[2] = {NULL, NULL};
  /* Twice is once more. */
  for (int i = 0; i < 2; ++i)
    SUCCEEDS(ncclCommRegister(rank->comm, values, floats * sizeof *values, &handles[i]));
  adds_up(rank, values);
  for (int i = 0; i < 2; ++i) SUCCEEDS(ncclCommDeregister(rank->comm, handles[i]));
  SUCCEEDS(ncclCommDeregister(rank->comm, NULL));
  adds_up(rank, values);
}

static void windows(Rank* rank, int flags) {
  float* values = allocated();
  ncclWindow_t window = NULL;
  if (values == NULL) return;
  if (SUCCEEDS(
          ncclCommWindowRegister(rank->comm, values, floats * sizeof *values, &window, flags))) {
    adds_up(rank, values);
#ifdef HAVE_NCCL_2_29
    if (window != NULL) {
      void* found = NULL;
      SUCCEEDS(ncclWinGetUserPtr(rank->comm, window, &found));
      CHECK(found == values);
    }
#endif
    SUCCEEDS(ncclCommWindowDeregister(rank->comm, window));
  }
  SUCCEEDS(ncclMemFree(values));
}

/* An operator is its communicator's and its type's. */
static void operators(Rank* rank) {
  float factor = 2;
  float value = 1;
  int whole = 1;
  ncclRedOp_t ops[3];
  for (int i = 0; i < 3; ++i)
    SUCCEEDS(ncclRedOpCreatePreMulSum(&ops[i], &factor, ncclFloat32, ncclScalarHostImmediate,
                                      rank->comm));
  CHECK(ops[0] != ops[1] && ops[1] != ops[2] && ops[0] != ops[2]);
  SUCCEEDS(ncclRedOpDestroy(ops[1], rank->comm));
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclFloat32, ops[2], rank->comm, NULL));
  CHECK(value == 2 * (float)rank->size);
  EXPECT(ncclInvalidArgument,
         ncclAllReduce(&whole, &whole, 1, ncclInt32, ops[0], rank->comm, NULL));
  EXPECT(ncclInvalidArgument,
         ncclAllReduce(&value, &value, 1, ncclFloat32, ops[1], rank->comm, NULL));
  EXPECT(ncclInvalidArgument, ncclRedOpDestroy(ops[1], rank->comm));
  EXPECT(ncclInvalidArgument, ncclRedOpDestroy(ncclSum, rank->comm));
  SUCCEEDS(ncclRedOpDestroy(ops[0], rank->comm));
  SUCCEEDS(ncclRedOpDestroy(ops[2], rank->comm));
}

/* Within a group an operator may end before the collective that uses it has begun. */
static void operator_in_a_group(Rank* rank) {
  double factor = 3;
  double value = 1;
  ncclRedOp_t op;
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(
      ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat64, ncclScalarHostImmediate, rank->comm));
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclFloat64, op, rank->comm, NULL));
  SUCCEEDS(ncclRedOpDestroy(op, rank->comm));
  SUCCEEDS(ncclGroupEnd());
  CHECK(value == 3 * rank->size);
}

static void all_memory(Rank* rank) {
  allocation(rank);
  registration(rank);
  windows(rank, NCCL_WIN_DEFAULT);
  windows(rank, NCCL_WIN_COLL_SYMMETRIC);
  operators(rank);
  operator_in_a_group(rank);
}

/* Every size down to nothing, each writable to its end. */
static void sizes(void) {
  static const size_t bytes[] = {1, 7, 4096, 4097, 3u << 20};
  for (int i = 0; i < 5; ++i) {
    void* memory = NULL;
    if (!SUCCEEDS(ncclMemAlloc(&memory, bytes[i]))) continue;
    memset(memory, 0x5a, bytes[i]);
    SUCCEEDS(ncclMemFree(memory));
  }
  SUCCEEDS(ncclMemFree(NULL));
  /* Nothing is no mistake: programs that gather less than they have ranks need so much. */
  void* nothing = &nothing;
  SUCCEEDS(ncclMemAlloc(&nothing, 0));
  CHECK(nothing == NULL);
}

static void memory_mistakes(void) {
  ncclComm_t comm = NULL;
  ncclWindow_t window = NULL;
  void* handle = NULL;
  char buffer[64];
  EXPECT(ncclInvalidArgument, ncclMemAlloc(NULL, 64));
  EXPECT(ncclInvalidArgument, ncclCommRegister(NULL, buffer, 64, &handle));
  EXPECT(ncclInvalidArgument, ncclCommDeregister(NULL, handle));
  EXPECT(ncclInvalidArgument, ncclCommWindowRegister(NULL, buffer, 64, &window, 0));
  EXPECT(ncclInvalidArgument, ncclCommWindowDeregister(NULL, window));
  if (!SUCCEEDS(ncclCommInitAll(&comm, 1, NULL))) return;
  EXPECT(ncclInvalidArgument, ncclCommRegister(comm, buffer, 64, NULL));
  EXPECT(ncclInvalidArgument, ncclCommRegister(comm, NULL, 64, &handle));
  EXPECT(ncclInvalidArgument, ncclCommWindowRegister(comm, buffer, 64, NULL, 0));
  CHECK(ncclCommDeregister(comm, buffer) != ncclSuccess); /* is no handle */
  SUCCEEDS(ncclCommDestroy(comm));
}

void test_memory(void) {
  sizes();
  for (int size = 1; size <= 3; ++size) run_members(size, all_memory, NULL);
  memory_mistakes();
}
