/* families.c: communicators that come from others: split by color and key, and shrunk. */
#include "check.h"

static void is_child(ncclComm_t child, int rank, int size) {
  int found = -1;
  int value = 1;
  CHECK(child != NULL);
  if (child == NULL) return;
  SUCCEEDS(ncclCommUserRank(child, &found));
  CHECK(found == rank);
  SUCCEEDS(ncclCommCount(child, &found));
  CHECK(found == size);
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, child, NULL));
  CHECK(value == size);
}

static void end_child(ncclComm_t child) {
  if (child != NULL) SUCCEEDS(ncclCommDestroy(child));
}

/* Even and odd ranks, the last first. */
static void by_parity(Rank* rank) {
  const int parity = rank->rank % 2;
  const int size = (rank->size + 1 - parity) / 2;
  ncclComm_t child = NULL;
  SUCCEEDS(ncclCommSplit(rank->comm, parity, -rank->rank, &child, NULL));
  is_child(child, size - 1 - rank->rank / 2, size);
  end_child(child);
}

/* Equal keys: the parent's order. */
static void by_equal_keys(Rank* rank) {
  ncclComm_t child = NULL;
  SUCCEEDS(ncclCommSplit(rank->comm, 5, 3, &child, NULL));
  is_child(child, rank->rank, rank->size);
  end_child(child);
}

/* Rank 0 stays outside. */
static void without_color(Rank* rank) {
  ncclComm_t child = rank->comm; /* must be overwritten */
  SUCCEEDS(ncclCommSplit(rank->comm, rank->rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, 0, &child, NULL));
  if (rank->rank == 0)
    CHECK(child == NULL);
  else
    is_child(child, rank->rank - 1, rank->size - 1);
  end_child(child);
}

/* A child with a config of its own lives on without its parent; its children do, too. */
static void grandchildren(Rank* rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t child = NULL;
  ncclComm_t grandchild = NULL;
  config.commName = "child";
  config.splitShare = 1;
  SUCCEEDS(ncclCommSplit(rank->comm, 0, rank->rank, &child, &config));
  SUCCEEDS(ncclCommSplit(child, 0, -rank->rank, &grandchild, NULL));
  end_child(child);
  is_child(grandchild, rank->size - 1 - rank->rank, rank->size);
  end_child(grandchild);
}

/* One thread's ranks are split in one group, whose end makes them. */
static void split_in_a_group(void) {
  ncclComm_t comms[4] = {NULL};
  ncclComm_t halves[4] = {NULL};
  int values[4] = {1, 2, 3, 4};
  if (!SUCCEEDS(ncclCommInitAll(comms, 4, NULL))) return;
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < 4; ++rank)
    SUCCEEDS(ncclCommSplit(comms[rank], rank / 2, rank, &halves[rank], NULL));
  SUCCEEDS(ncclGroupEnd());
  SUCCEEDS(ncclGroupStart());
  for (int rank = 0; rank < 4; ++rank)
    SUCCEEDS(ncclAllReduce(&values[rank], &values[rank], 1, ncclInt, ncclSum, halves[rank], NULL));
  SUCCEEDS(ncclGroupEnd());
  for (int rank = 0; rank < 4; ++rank) CHECK(values[rank] == (rank < 2 ? 3 : 7));
  for (int rank = 0; rank < 4; ++rank) end_child(halves[rank]);
  for (int rank = 0; rank < 4; ++rank) SUCCEEDS(ncclCommDestroy(comms[rank]));
}

/* Rank 1 is left out and does not call. */
static void without_one(Rank* rank, int flags) {
  int excluded[] = {1};
  ncclComm_t child = NULL;
  if (rank->rank != 1) {
    SUCCEEDS(ncclCommShrink(rank->comm, excluded, 1, &child, NULL, flags));
    is_child(child, rank->rank == 0 ? 0 : rank->rank - 1, rank->size - 1);
    end_child(child);
  }
  meet(rank);
}

static void shrunk(Rank* rank) { without_one(rank, NCCL_SHRINK_DEFAULT); }

/* The parent is of no use afterwards, but can be ended. */
static void shrunk_after_abort(Rank* rank) {
  if (!SUCCEEDS(ncclCommInitRank(&rank->comm, rank->size, rank->id, rank->rank))) return;
  meet(rank);
  without_one(rank, NCCL_SHRINK_ABORT);
  SUCCEEDS(ncclCommAbort(rank->comm));
}

static void several_left_out(Rank* rank) {
  int excluded[] = {4, 0}; /* in any order */
  ncclComm_t child = NULL;
  if (rank->rank % 4 != 0) {
    SUCCEEDS(ncclCommShrink(rank->comm, excluded, 2, &child, NULL, NCCL_SHRINK_DEFAULT));
    is_child(child, rank->rank - 1, 3);
    end_child(child);
  }
  meet(rank);
}

static void mistakes_of_one(void) {
  ncclComm_t comm = NULL;
  ncclComm_t child = NULL;
  int excluded[] = {7};
  if (!SUCCEEDS(ncclCommInitAll(&comm, 1, NULL))) return;
  EXPECT(ncclInvalidArgument, ncclCommSplit(NULL, 0, 0, &child, NULL));
  EXPECT(ncclInvalidArgument, ncclCommSplit(comm, 0, 0, NULL, NULL));
  EXPECT(ncclInvalidArgument, ncclCommShrink(NULL, excluded, 1, &child, NULL, 0));
  EXPECT(ncclInvalidArgument, ncclCommShrink(comm, excluded, 1, NULL, NULL, 0));
  REFUSES(ncclInvalidArgument, ncclCommShrink(comm, excluded, 1, &child, NULL, 0), "ncclCommShrink",
          "7");
  EXPECT(ncclInvalidArgument, ncclCommShrink(comm, NULL, 1, &child, NULL, 0));
  EXPECT(ncclInvalidArgument, ncclCommShrink(comm, excluded, 0, &child, NULL, 0));
  EXPECT(ncclInvalidArgument, ncclCommShrink(comm, excluded, -1, &child, NULL, 0));
  excluded[0] = 0; /* itself */
  EXPECT(ncclInvalidArgument, ncclCommShrink(comm, excluded, 1, &child, NULL, 0));
  SUCCEEDS(ncclCommDestroy(comm));
}

void test_families(void) {
  for (int size = 2; size <= 5; ++size) {
    run_members(size, by_parity, NULL);
    run_members(size, without_color, NULL);
    run_members(size, shrunk, NULL);
  }
  run_members(1, by_equal_keys, NULL);
  run_members(4, by_equal_keys, NULL);
  run_members(3, grandchildren, NULL);
  run_members(5, several_left_out, NULL);
  run_ranks(3, shrunk_after_abort, NULL);
  split_in_a_group();
  mistakes_of_one();
}
