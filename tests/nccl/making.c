/* making.c: every way to make a communicator, and what one says of itself. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* The communicator is whole: it knows who it is, and all ranks add up. */
static void is_member(ncclComm_t comm, int rank, int size) {
  int found = -1;
  float one = 1;
  ncclResult_t state = ncclInternalError;
  SUCCEEDS(ncclCommCount(comm, &found));
  CHECK(found == size);
  SUCCEEDS(ncclCommUserRank(comm, &found));
  CHECK(found == rank);
  SUCCEEDS(ncclCommCuDevice(comm, &found));
  CHECK(found >= 0);
  SUCCEEDS(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  SUCCEEDS(ncclAllReduce(&one, &one, 1, ncclFloat32, ncclSum, comm, NULL));
  CHECK(one == (float)size);
}

static void by_rank(Rank* rank) { is_member(rank->comm, rank->rank, rank->size); }

/* Those that one thread owns. */
static void are_members(const ncclComm_t* comms, int size) {
  float* values = (float*)take_memory((size_t)size * sizeof *values);
  int found = -1;
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < size; ++rank) {
    values[rank] = 1;
    SUCCEEDS(ncclCommUserRank(comms[rank], &found));
    CHECK(found == rank);
    SUCCEEDS(
        ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat32, ncclSum, comms[rank], NULL));
  }
  SUCCEEDS(ncclGroupEnd());
  for (int rank = 0; rank < size; ++rank) CHECK(values[rank] == (float)size);
  free(values);
}

static void destroy_all(const ncclComm_t* comms, int size) {
  for (int rank = 0; rank < size; ++rank) SUCCEEDS(ncclCommDestroy(comms[rank]));
}

static void by_init_all(int size) {
  ncclComm_t comms[8] = {NULL};
  if (!SUCCEEDS(ncclCommInitAll(comms, size, NULL))) return;
  are_members(comms, size);
  destroy_all(comms, size);
}

/* Where there is no driver, a device is a name. */
static void by_device_list(void) {
  static const int devices[] = {3, 1};
  ncclComm_t comms[2] = {NULL, NULL};
  int device = -1;
  if (!no_cuda_driver()) return;
  if (!SUCCEEDS(ncclCommInitAll(comms, 2, devices))) return;
  for (int rank = 0; rank < 2; ++rank) {
    SUCCEEDS(ncclCommCuDevice(comms[rank], &device));
    CHECK(device == devices[rank]);
  }
  destroy_all(comms, 2);
}

static void in_a_group(int size) {
  ncclComm_t comms[8] = {NULL};
  ncclUniqueId id;
  SUCCEEDS(ncclGetUniqueId(&id));
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < size; ++rank) SUCCEEDS(ncclCommInitRank(&comms[rank], size, id, rank));
  if (!SUCCEEDS(ncclGroupEnd())) return;
  are_members(comms, size);
  destroy_all(comms, size);
}

/* Two communicators, the ranks of the second the other way round, made in one group. */
static void two_in_a_group(void) {
  ncclComm_t one[3] = {NULL, NULL, NULL};
  ncclComm_t other[3] = {NULL, NULL, NULL};
  ncclUniqueId ids[2];
  for (int i = 0; i < 2; ++i) SUCCEEDS(ncclGetUniqueId(&ids[i]));
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank) {
    SUCCEEDS(ncclCommInitRank(&one[rank], 3, ids[0], rank));
    SUCCEEDS(ncclCommInitRankConfig(&other[2 - rank], 3, ids[1], 2 - rank, NULL));
  }
  if (!SUCCEEDS(ncclGroupEnd())) return;
  are_members(one, 3);
  are_members(other, 3);
  destroy_all(one, 3);
  destroy_all(other, 3);
}

/* Several ids, of which any number may be used. */
static void by_several_ids(Rank* rank) {
  ncclUniqueId* ids = (ncclUniqueId*)rank->shared;
  ncclComm_t comm = NULL;
  if (!SUCCEEDS(ncclCommInitRankScalable(&comm, rank->size, rank->rank, 2, ids, NULL))) return;
  is_member(comm, rank->rank, rank->size);
  SUCCEEDS(ncclCommDestroy(comm));
}

static void scalable(void) {
  ncclUniqueId ids[2];
  for (int i = 0; i < 2; ++i) SUCCEEDS(ncclGetUniqueId(&ids[i]));
  run_ranks(4, by_several_ids, ids);
}

/* Many, one after the other and at the same time, each with what it was given. */
static void many(Rank* rank) {
  ncclComm_t others[3] = {NULL, NULL, NULL};
  const ncclUniqueId* ids = (const ncclUniqueId*)rank->shared;
  for (int i = 0; i < 3; ++i)
    SUCCEEDS(ncclCommInitRank(&others[i], rank->size, ids[i], rank->rank));
  for (int i = 2; i >= 0; --i) is_member(others[i], rank->rank, rank->size);
  is_member(rank->comm, rank->rank, rank->size);
  for (int i = 0; i < 3; ++i) SUCCEEDS(ncclCommDestroy(others[i]));
}

static void several_at_once(void) {
  ncclUniqueId ids[3];
  for (int i = 0; i < 3; ++i) SUCCEEDS(ncclGetUniqueId(&ids[i]));
  run_members(2, many, ids);
}

static void ids_differ(void) {
  ncclUniqueId one;
  ncclUniqueId other;
  memset(&one, 0, sizeof one);
  memset(&other, 0, sizeof other);
  SUCCEEDS(ncclGetUniqueId(&one));
  SUCCEEDS(ncclGetUniqueId(&other));
  CHECK(memcmp(&one, &other, sizeof one) != 0);
}

static void version_and_texts(void) {
  int version = 0;
  SUCCEEDS(ncclGetVersion(&version));
  CHECK(version == 22809); /* what the layouts of both headers are */
  for (int result = 0; result <= 8; ++result) {
    const char* text = ncclGetErrorString((ncclResult_t)result);
    CHECK(text != NULL && text[0] != '\0');
    for (int other = 0; other < result && text != NULL; ++other)
      CHECK(strcmp(text, ncclGetErrorString((ncclResult_t)other)) != 0);
  }
  int unknown = 77;
  CHECK(ncclGetErrorString((ncclResult_t)unknown) != NULL);
  CHECK(ncclGetLastError(NULL) != NULL);
}

void test_making(void) {
  version_and_texts();
  ids_differ();
  for (int size = 1; size <= 5; ++size) {
    by_init_all(size);
    in_a_group(size);
    run_members(size, by_rank, NULL);
  }
  by_device_list();
  two_in_a_group();
  scalable();
  several_at_once();
}
