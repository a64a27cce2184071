/* endings.c: how communicators end, well or not, while ranks wait for others that never come. */
#include <pthread.h>
#include <string.h>

#include "check.h"

/* Long enough that a rank is inside its call; that it is proves nothing wrong if it is not. */
enum { inside_ms = 300 };

static int make(Rank* rank) {
  return SUCCEEDS(ncclCommInitRank(&rank->comm, rank->size, rank->id, rank->rank));
}

/* A collective that the others do not join comes back with an error. */
static void waits_in_vain(ncclComm_t comm) {
  float values[1000];
  memset(values, 0, sizeof values);
  const ncclResult_t result = ncclAllReduce(values, values, 1000, ncclFloat32, ncclSum, comm, NULL);
  CHECK(result != ncclSuccess && result != ncclInProgress);
}

static void* waiting_thread(void* comm) {
  waits_in_vain((ncclComm_t)comm);
  return NULL;
}

/* Rank 0 waits on a second thread; its own aborts. The others abort theirs, too. */
static void aborted_by_another_thread(Rank* rank) {
  pthread_t waiting;
  if (!make(rank)) return;
  if (rank->rank != 0) {
    meet(rank);
    SUCCEEDS(ncclCommAbort(rank->comm));
    return;
  }
  CHECK(pthread_create(&waiting, NULL, waiting_thread, rank->comm) == 0);
  pause_ms(inside_ms);
  SUCCEEDS(ncclCommAbort(rank->comm));
  CHECK(pthread_join(waiting, NULL) == 0);
  meet(rank);
}

/* Rank 1 aborts, and rank 0 is told while it waits. */
static void aborted_by_another_rank(Rank* rank) {
  ncclResult_t state = ncclSuccess;
  if (!make(rank)) return;
  meet(rank);
  if (rank->rank == 1) {
    pause_ms(inside_ms);
    SUCCEEDS(ncclCommAbort(rank->comm));
    return;
  }
  waits_in_vain(rank->comm);
  SUCCEEDS(ncclCommGetAsyncError(rank->comm, &state));
  CHECK(state != ncclSuccess && state != ncclInProgress);
  SUCCEEDS(ncclCommAbort(rank->comm));
}

/* All but rank 0 revoke, which ends its waiting; all go on without the last rank. */
static void revoked(Rank* rank) {
  int excluded[1];
  int value = 1;
  ncclComm_t child = NULL;
  if (!make(rank)) return;
  meet(rank);
  if (rank->rank == 0) {
    waits_in_vain(rank->comm);
  } else {
    pause_ms(inside_ms);
    SUCCEEDS(ncclCommRevoke(rank->comm, NCCL_REVOKE_DEFAULT));
  }
  meet(rank);
  excluded[0] = rank->size - 1;
  if (rank->rank != excluded[0]) {
    SUCCEEDS(ncclCommShrink(rank->comm, excluded, 1, &child, NULL, NCCL_SHRINK_ABORT));
    SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, child, NULL));
    CHECK(value == rank->size - 1);
    SUCCEEDS(ncclCommDestroy(child));
  }
  SUCCEEDS(ncclCommDestroy(rank->comm));
}

/* Each rank revokes, and is left with a communicator that can be asked and destroyed. */
static void of_no_use_after_revoke(Rank* rank) {
  int found = -1;
  int value = 1;
  if (!make(rank)) return;
  meet(rank);
  SUCCEEDS(ncclCommRevoke(rank->comm, NCCL_REVOKE_DEFAULT));
  meet(rank);
  SUCCEEDS(ncclCommCount(rank->comm, &found));
  CHECK(found == rank->size);
  EXPECT(ncclInvalidUsage, ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, rank->comm, NULL));
  /* Another rank may have been first, so that this cannot be wrong; but it is too late to finish.
   */
  SUCCEEDS(ncclCommRevoke(rank->comm, NCCL_REVOKE_DEFAULT));
  CHECK(ncclCommFinalize(rank->comm) != ncclSuccess);
  SUCCEEDS(ncclCommDestroy(rank->comm));
}

/* What was started is done first; then nothing more can be. */
static void finalized(Rank* rank) {
  int value = rank->rank;
  if (!make(rank)) return;
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclInt, ncclMax, rank->comm, NULL));
  SUCCEEDS(ncclCommFinalize(rank->comm));
  CHECK(value == rank->size - 1);
  CHECK(ncclAllReduce(&value, &value, 1, ncclInt, ncclMax, rank->comm, NULL) != ncclSuccess);
  EXPECT(ncclInvalidArgument, ncclCommFinalize(rank->comm));
  SUCCEEDS(ncclCommDestroy(rank->comm));
}

/* Ranks may leave at different times. */
static void destroyed_one_by_one(Rank* rank) {
  int value = 1;
  if (!make(rank)) return;
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, rank->comm, NULL));
  for (int turn = 0; turn < rank->size; ++turn) {
    if (turn == rank->rank) SUCCEEDS(ncclCommDestroy(rank->comm));
    meet(rank);
  }
  CHECK(value == rank->size);
}

/* One thread ends all of its ranks, one after the other: as programs for NCCL do. */
static void one_thread_ends(void) {
  ncclComm_t comms[3] = {NULL, NULL, NULL};
  if (!SUCCEEDS(ncclCommInitAll(comms, 3, NULL))) return;
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank) SUCCEEDS(ncclCommFinalize(comms[rank]));
  SUCCEEDS(ncclGroupEnd());
  for (int rank = 0; rank < 3; ++rank) SUCCEEDS(ncclCommDestroy(comms[rank]));
  if (!SUCCEEDS(ncclCommInitAll(comms, 3, NULL))) return;
  for (int rank = 0; rank < 3; ++rank) SUCCEEDS(ncclCommAbort(comms[rank]));
}

/* NCCL takes no communicator for one that has ended, and so does Tutti; after the end of one its
 * handle is nobody's. */
static void of_nothing(void) {
  ncclComm_t comm = NULL;
  int found = -1;
  SUCCEEDS(ncclCommDestroy(NULL));
  SUCCEEDS(ncclCommAbort(NULL));
  SUCCEEDS(ncclCommFinalize(NULL));
  SUCCEEDS(ncclCommRevoke(NULL, NCCL_REVOKE_DEFAULT));
  if (!SUCCEEDS(ncclCommInitAll(&comm, 1, NULL))) return;
  REFUSES(ncclInvalidArgument, ncclCommRevoke(comm, 5), "ncclCommRevoke", "5");
  SUCCEEDS(ncclCommDestroy(comm));
  EXPECT(ncclInvalidArgument, ncclCommCount(comm, &found));
  EXPECT(ncclInvalidArgument, ncclCommDestroy(comm));
}

void test_endings(void) {
  of_nothing();
  one_thread_ends();
  for (int size = 1; size <= 3; ++size) {
    run_ranks(size, finalized, NULL);
    run_ranks(size, destroyed_one_by_one, NULL);
    run_ranks(size, of_no_use_after_revoke, NULL);
  }
  run_ranks(2, aborted_by_another_thread, NULL);
  run_ranks(3, aborted_by_another_thread, NULL);
  run_ranks(2, aborted_by_another_rank, NULL);
  run_ranks(3, revoked, NULL);
}
