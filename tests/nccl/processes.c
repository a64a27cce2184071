/* processes.c: ranks that are processes, made before the library has been called, and given the id
 * by a pipe. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

typedef struct {
  int rank;
  int size;
  int pipes[8][2]; /* rank 0 writes into those of the others */
} Process;

static ncclUniqueId exchange(const Process* self) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  if (self->rank == 0) {
    SUCCEEDS(ncclGetUniqueId(&id));
    for (int peer = 1; peer < self->size; ++peer)
      CHECK(write(self->pipes[peer][1], &id, sizeof id) == (ssize_t)sizeof id);
  } else {
    CHECK(read(self->pipes[self->rank][0], &id, sizeof id) == (ssize_t)sizeof id);
  }
  return id;
}

static void reduces(const Process* self, ncclComm_t comm, size_t count) {
  float* in = (float*)take_memory(count * sizeof *in);
  float* out = (float*)take_memory(count * sizeof *out);
  const float ranks = (float)self->size;
  for (size_t i = 0; i < count; ++i) in[i] = (float)self->rank + (float)(i % 100);
  SUCCEEDS(ncclAllReduce(in, out, count, ncclFloat32, ncclSum, comm, NULL));
  for (size_t i = 0; i < count; ++i)
    CHECK(out[i] == ranks * (ranks - 1) / 2 + ranks * (float)(i % 100));
  free(out);
  free(in);
}

static void sends_round(const Process* self, ncclComm_t comm) {
  int in = -1;
  SUCCEEDS(ncclGroupStart());
  SUCCEEDS(ncclSend(&self->rank, 1, ncclInt, (self->rank + 1) % self->size, comm, NULL));
  SUCCEEDS(ncclRecv(&in, 1, ncclInt, (self->rank + self->size - 1) % self->size, comm, NULL));
  SUCCEEDS(ncclGroupEnd());
  CHECK(in == (self->rank + self->size - 1) % self->size);
}

static void splits(const Process* self, ncclComm_t comm) {
  ncclComm_t half_comm = NULL;
  int value = 1;
  SUCCEEDS(ncclCommSplit(comm, self->rank % 2, self->rank, &half_comm, NULL));
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, half_comm, NULL));
  CHECK(value == (self->size + 1 - self->rank % 2) / 2);
  SUCCEEDS(ncclCommDestroy(half_comm));
}

static void run_process(const Process* self) {
  static const size_t counts[] = {0, 1, 7, 1000, 100003};
  ncclComm_t comm = NULL;
  const ncclUniqueId id = exchange(self);
  if (!SUCCEEDS(ncclCommInitRank(&comm, self->size, id, self->rank))) return;
  for (int i = 0; i < 5; ++i) reduces(self, comm, counts[i]);
  sends_round(self, comm);
  splits(self, comm);
  SUCCEEDS(ncclCommFinalize(comm));
  SUCCEEDS(ncclCommDestroy(comm));
}

/* Of the child's own: what has failed in the parent before is none of it. */
static int run_child(const Process* self) {
  const int before = checks_failed();
  alarm(60);
  run_process(self);
  return checks_failed() == before ? 0 : 1;
}

static void run_processes(int size) {
  Process self;
  pid_t children[8] = {0};
  memset(&self, 0, sizeof self);
  self.size = size;
  for (int rank = 0; rank < size; ++rank) CHECK(pipe(self.pipes[rank]) == 0);
  fflush(NULL);
  for (int rank = 0; rank < size; ++rank) {
    self.rank = rank;
    children[rank] = fork();
    if (children[rank] == 0) _exit(run_child(&self));
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = -1;
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    if (status != 0) check_failed(__FILE__, __LINE__, "rank %d of %d: %#x", rank, size, status);
    close(self.pipes[rank][0]);
    close(self.pipes[rank][1]);
  }
}

void test_processes(void) {
  for (int size = 1; size <= 4; ++size) run_processes(size);
  run_processes(7);
}
