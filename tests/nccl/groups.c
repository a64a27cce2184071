/* groups.c: messages and collectives that are started together: rings, nested groups, several
 * communicators, one thread that speaks for all ranks, and groups that are only estimated. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "values.h"

static int next_of(const Rank* rank) { return (rank->rank + 1) % rank->size; }
static int previous_of(const Rank* rank) { return (rank->rank + rank->size - 1) % rank->size; }

static double sent_by(int rank, size_t index) { return (rank + (int)(index % 97)) % 8; }

static void ring(Rank* rank, ncclDataType_t type, size_t count) {
  void* out = take_memory(count * size_of_type(type));
  void* in = take_memory(count * size_of_type(type));
  for (size_t i = 0; i < count; ++i) set_value(out, i, type, sent_by(rank->rank, i));
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclSend(out, count, type, next_of(rank), rank->comm, NULL));
  SUCCEEDS(ncclRecv(in, count, type, previous_of(rank), rank->comm, NULL));
  SUCCEEDS(ncclGroupEnd());
  for (size_t i = 0; i < count; ++i) CHECK(get_value(in, i, type) == sent_by(previous_of(rank), i));
  free(in);
  free(out);
}

static void rings(Rank* rank) {
  static const size_t counts[] = {0, 1, 7, 1000, 200003};
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (int i = 0; i < 4; ++i) ring(rank, (ncclDataType_t)type, counts[i]);
  }
  ring(rank, ncclFloat32, counts[4]);
}

/* Receives first, in groups within groups; nothing may start before the last one ends. */
static void nested(Rank* rank) {
  int in[2] = {-1, -1};
  const int out[2] = {rank->rank, 10 + rank->rank};
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclRecv(&in[0], 1, ncclInt32, previous_of(rank), rank->comm, NULL));
  SUCCEEDS(ncclGroupEnd());
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclRecv(&in[1], 1, ncclInt32, previous_of(rank), rank->comm, NULL));
  SUCCEEDS(ncclGroupEnd());
  SUCCEEDS(ncclGroupEnd());
  SUCCEEDS(ncclSend(&out[0], 1, ncclInt32, next_of(rank), rank->comm, NULL));
  SUCCEEDS(ncclSend(&out[1], 1, ncclInt32, next_of(rank), rank->comm, NULL));
  SUCCEEDS(ncclGroupEnd());
  /* Messages between two ranks keep their order. */
  CHECK(in[0] == previous_of(rank));
  CHECK(in[1] == 10 + previous_of(rank));
}

/* As frameworks make an all-to-all of unequal parts: rank r gets r + 1 elements of everybody. */
static void unequal_all_to_all(Rank* rank) {
  int* out = (int*)take_memory((size_t)rank->size * sizeof *out * 8);
  int* in = (int*)take_memory((size_t)rank->size * sizeof *in * 8);
  const size_t mine = (size_t)rank->rank + 1;
  for (int i = 0; i < rank->size * 8; ++i) out[i] = 100 * rank->rank + i;
  SUCCEEDS(ncclGroupStart());
  for (int peer = 0; peer < rank->size; ++peer) {
    SUCCEEDS(ncclSend(out + peer, (size_t)peer + 1, ncclInt32, peer, rank->comm, NULL));
    SUCCEEDS(ncclRecv(in + (size_t)peer * mine, mine, ncclInt32, peer, rank->comm, NULL));
  }
  SUCCEEDS(ncclGroupEnd());
  for (int i = 0; i < rank->size * (int)mine; ++i)
    CHECK(in[i] == 100 * (i / (int)mine) + rank->rank + i % (int)mine);
  free(in);
  free(out);
}

/* Collectives and messages of one communicator in one group. */
static void mixed(Rank* rank) {
  int sum = rank->rank;
  int most = rank->rank;
  int in = -1;
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL));
  SUCCEEDS(ncclSend(&rank->rank, 1, ncclInt32, next_of(rank), rank->comm, NULL));
  SUCCEEDS(ncclAllReduce(&most, &most, 1, ncclInt32, ncclMax, rank->comm, NULL));
  SUCCEEDS(ncclRecv(&in, 1, ncclInt32, previous_of(rank), rank->comm, NULL));
  SUCCEEDS(ncclGroupEnd());
  CHECK(sum == rank->size * (rank->size - 1) / 2);
  CHECK(most == rank->size - 1);
  CHECK(in == previous_of(rank));
}

static void all_messages(Rank* rank) {
  rings(rank);
  nested(rank);
  unequal_all_to_all(rank);
  mixed(rank);
}

/* Every rank has two communicators, and names them in another order than its neighbour. */
static void two_communicators(Rank* rank) {
  ncclComm_t other = NULL;
  int values[2] = {1, 10};
  const int first = rank->rank % 2;
  if (!SUCCEEDS(ncclCommSplit(rank->comm, 0, rank->rank, &other, NULL))) return;
  SUCCEEDS(ncclGroupStart());
  for (int i = 0; i < 2; ++i) {
    int* value = &values[(first + i) % 2];
    ncclComm_t comm = (first + i) % 2 == 0 ? rank->comm : other;
    SUCCEEDS(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, comm, NULL));
  }
  SUCCEEDS(ncclGroupEnd());
  CHECK(values[0] == rank->size);
  CHECK(values[1] == 10 * rank->size);
  SUCCEEDS(ncclCommDestroy(other));
}

enum { owned = 4, elements = 1000 };

static void one_thread_reduces(const ncclComm_t* comms) {
  static float in[owned][elements];
  static float out[owned][elements];
  for (int rank = 0; rank < owned; ++rank) {
    for (int i = 0; i < elements; ++i) in[rank][i] = (float)(rank + i);
  }
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < owned; ++rank)
    SUCCEEDS(ncclAllReduce(in[rank], out[rank], elements, ncclFloat, ncclSum, comms[rank], NULL));
  SUCCEEDS(ncclGroupEnd());
  for (int rank = 0; rank < owned; ++rank) {
    for (int i = 0; i < elements; ++i) CHECK(out[rank][i] == (float)(6 + 4 * i));
  }
}

/* Everybody to everybody, two collectives each, all from one thread. */
static void one_thread_does_all(const ncclComm_t* comms) {
  int in[owned][owned];
  int sums[owned];
  for (int rank = 0; rank < owned; ++rank) sums[rank] = rank;
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < owned; ++rank) {
    static const int out[owned] = {0, 1, 2, 3};
    for (int peer = 0; peer < owned; ++peer) {
      SUCCEEDS(ncclSend(&out[rank], 1, ncclInt, peer, comms[rank], NULL));
      SUCCEEDS(ncclRecv(&in[rank][peer], 1, ncclInt, peer, comms[rank], NULL));
    }
    SUCCEEDS(ncclAllReduce(&sums[rank], &sums[rank], 1, ncclInt, ncclSum, comms[rank], NULL));
    SUCCEEDS(ncclBroadcast(&sums[rank], &sums[rank], 1, ncclInt, 1, comms[rank], NULL));
  }
  SUCCEEDS(ncclGroupEnd());
  for (int rank = 0; rank < owned; ++rank) {
    CHECK(sums[rank] == 6);
    for (int peer = 0; peer < owned; ++peer) CHECK(in[rank][peer] == peer);
  }
}

/* Only one rank asks, so that it would wait for ever if anything were started. */
static void simulated(const ncclComm_t* comms) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  float in[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  float out[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclAllReduce(in, out, 8, ncclFloat32, ncclSum, comms[0], NULL));
  SUCCEEDS(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime > 0);
  CHECK(out[0] == 0 && out[7] == 0);
  one_thread_reduces(comms); /* the group is over, and nothing of it is left */
  info.magic = 1;
  SUCCEEDS(ncclGroupStart());
  EXPECT(ncclInvalidArgument, ncclGroupSimulateEnd(&info));
  EXPECT(ncclInvalidUsage, ncclGroupEnd());
}

/* What is wrong with one call is wrong with its group, and the group starts nothing. */
static void failed_group(const ncclComm_t* comms) {
  int value = 1;
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], NULL));
  EXPECT(ncclInvalidArgument, ncclBroadcast(&value, &value, 1, ncclInt, 99, comms[1], NULL));
  EXPECT(ncclInvalidArgument, ncclGroupEnd());
  CHECK(value == 1);
  one_thread_reduces(comms);
}

static void one_thread(void) {
  ncclComm_t comms[owned] = {NULL};
  if (!SUCCEEDS(ncclCommInitAll(comms, owned, NULL))) return;
  one_thread_reduces(comms);
  one_thread_does_all(comms);
  failed_group(comms);
  simulated(comms);
  for (int rank = 0; rank < owned; ++rank) SUCCEEDS(ncclCommDestroy(comms[rank]));
}

/* A group of nothing is none. */
static void empty_groups(void) {
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclGroupEnd());
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclGroupEnd());
  SUCCEEDS(ncclGroupEnd());
}

void test_groups(void) {
  static const int sizes[] = {1, 2, 3, 5};
  empty_groups();
  for (int i = 0; i < 4; ++i) run_members(sizes[i], all_messages, NULL);
  for (int i = 0; i < 4; ++i) run_members(sizes[i], two_communicators, NULL);
  one_thread();
}
