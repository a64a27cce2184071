/* configs.c: what a communicator shall be like: configs of older and newer callers, and those that
 * do not block. */
#include <string.h>

#include "check.h"

static ncclConfig_t fresh(void) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return config;
}

static void add_up(Rank* rank, ncclComm_t comm) {
  double value = 1 + rank->rank;
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclFloat64, ncclSum, comm, NULL));
  CHECK(value == rank->size * (rank->size + 1) / 2);
}

/* With the config that the team shares. */
static void with_config(Rank* rank) {
  ncclComm_t comm = NULL;
  if (!SUCCEEDS(ncclCommInitRankConfig(&comm, rank->size, rank->id, rank->rank,
                                       (ncclConfig_t*)rank->shared)))
    return;
  add_up(rank, comm);
  SUCCEEDS(ncclCommDestroy(comm));
}

/* As its first header laid it out: NCCL 2.14 had one member. */
static void older_caller(void) {
  struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
  } config;
  memset(&config, 0, sizeof config);
  config.size = sizeof config;
  config.magic = 0xcafebeef;
  config.version = 21400;
  config.blocking = 1;
  run_ranks(2, with_config, &config);
}

/* Members that nobody knows yet. */
static void newer_caller(void) {
  struct {
    ncclConfig_t known;
    int unknown[16];
  } config;
  memset(&config, 0x11, sizeof config);
  config.known = fresh();
  config.known.size = sizeof config;
  config.known.version = 23200;
  run_ranks(2, with_config, &config);
}

/* All wishes that every version knows, none of which may be in the way. */
static void all_wishes(void) {
  ncclConfig_t config = fresh();
  config.blocking = 1;
  config.cgaClusterSize = 2;
  config.minCTAs = 1;
  config.maxCTAs = 8;
  config.splitShare = 1;
  config.trafficClass = 0;
  config.commName = "a name";
  config.collnetEnable = 0;
  config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  config.shrinkShare = 1;
  config.nvlsCTAs = 4;
  config.nChannelsPerNetPeer = 2;
  config.nvlinkCentricSched = 0;
  run_ranks(2, with_config, &config);
}

static void refused_configs(void) {
  ncclConfig_t config = fresh();
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  SUCCEEDS(ncclGetUniqueId(&id));
  config.magic = 0xdeadbeef;
  REFUSES(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &config),
          "ncclCommInitRankConfig", "NCCL_CONFIG_INITIALIZER");
  CHECK(comm == NULL);
  memset(&config, 0, sizeof config);
  EXPECT(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  config = fresh();
  config.size = 4; /* ends before its own magic */
  EXPECT(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  config = fresh();
  config.blocking = 7;
  REFUSES(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &config),
          "ncclCommInitRankConfig", "7");
}

static int done_or_at_it(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

static void not_blocking(Rank* rank) {
  ncclConfig_t config = fresh();
  ncclComm_t comm = NULL;
  ncclComm_t half_comm = NULL;
  double value = 1 + rank->rank;
  config.blocking = 0;
  CHECK(done_or_at_it(ncclCommInitRankConfig(&comm, rank->size, rank->id, rank->rank, &config)));
  CHECK(comm != NULL);
  if (comm == NULL) return;
  CHECK(settle(comm) == ncclSuccess);
  CHECK(done_or_at_it(ncclAllReduce(&value, &value, 1, ncclFloat64, ncclSum, comm, NULL)));
  CHECK(settle(comm) == ncclSuccess);
  CHECK(value == rank->size * (rank->size + 1) / 2);
  CHECK(done_or_at_it(ncclCommSplit(comm, rank->rank % 2, 0, &half_comm, NULL)));
  CHECK(settle(comm) == ncclSuccess);
  CHECK(half_comm != NULL);
  if (half_comm == NULL) return;
  CHECK(settle(half_comm) == ncclSuccess);
  CHECK(done_or_at_it(ncclCommFinalize(half_comm)));
  CHECK(settle(half_comm) == ncclSuccess);
  SUCCEEDS(ncclCommDestroy(half_comm));
  CHECK(done_or_at_it(ncclCommFinalize(comm)));
  CHECK(settle(comm) == ncclSuccess);
  SUCCEEDS(ncclCommDestroy(comm));
}

/* One thread makes several at once, and nobody else is there to wait for. */
static void not_blocking_in_a_group(void) {
  ncclConfig_t config = fresh();
  ncclComm_t comms[3] = {NULL, NULL, NULL};
  int values[3] = {1, 2, 3};
  ncclUniqueId id;
  config.blocking = 0;
  SUCCEEDS(ncclGetUniqueId(&id));
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank)
    CHECK(done_or_at_it(ncclCommInitRankConfig(&comms[rank], 3, id, rank, &config)));
  CHECK(done_or_at_it(ncclGroupEnd()));
  for (int rank = 0; rank < 3; ++rank) CHECK(settle(comms[rank]) == ncclSuccess);
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank)
    CHECK(done_or_at_it(
        ncclAllReduce(&values[rank], &values[rank], 1, ncclInt32, ncclSum, comms[rank], NULL)));
  CHECK(done_or_at_it(ncclGroupEnd()));
  for (int rank = 0; rank < 3; ++rank) CHECK(settle(comms[rank]) == ncclSuccess);
  for (int rank = 0; rank < 3; ++rank) CHECK(values[rank] == 6);
  for (int rank = 0; rank < 3; ++rank) SUCCEEDS(ncclCommDestroy(comms[rank]));
}

/* A rank that never comes: who does not block can go away again. */
static void alone_and_not_blocking(void) {
  ncclConfig_t config = fresh();
  ncclComm_t comm = NULL;
  ncclResult_t state = ncclSuccess;
  ncclUniqueId id;
  config.blocking = 0;
  SUCCEEDS(ncclGetUniqueId(&id));
  EXPECT(ncclInProgress, ncclCommInitRankConfig(&comm, 2, id, 0, &config));
  SUCCEEDS(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclInProgress);
  SUCCEEDS(ncclCommAbort(comm));
}

void test_configs(void) {
  ncclConfig_t plain = fresh();
  run_ranks(3, with_config, NULL);
  run_ranks(3, with_config, &plain);
  older_caller();
  newer_caller();
  all_wishes();
  refused_configs();
  for (int size = 1; size <= 4; ++size) run_ranks(size, not_blocking, NULL);
  not_blocking_in_a_group();
  alone_and_not_blocking();
}
