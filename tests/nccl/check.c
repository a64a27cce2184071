/* check.c: see check.h. */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t failures_mutex = PTHREAD_MUTEX_INITIALIZER;
static int failures = 0;

void check_failed(const char* file, int line, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&failures_mutex);
  /* A loop that is wrong is wrong often; the first lines say it all. */
  if (++failures <= 40) {
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
  }
  pthread_mutex_unlock(&failures_mutex);
  va_end(arguments);
}

int checks_failed(void) {
  pthread_mutex_lock(&failures_mutex);
  const int count = failures;
  pthread_mutex_unlock(&failures_mutex);
  return count;
}

int check_result(const char* file, int line, const char* call, ncclResult_t result,
                 ncclResult_t expected) {
  if (result == expected) return 1;
  check_failed(file, line, "%s\n  came to %d (%s), not %d; last error: %s", call, (int)result,
               ncclGetErrorString(result), (int)expected, ncclGetLastError(NULL));
  return 0;
}

int check_refused(const char* file, int line, const char* call, ncclResult_t result,
                  ncclResult_t expected, const char* function, const char* value) {
  if (!check_result(file, line, call, result, expected)) return 0;
  const char* text = ncclGetLastError(NULL);
  if (text != NULL && strstr(text, function) != NULL && strstr(text, value) != NULL) return 1;
  check_failed(file, line, "%s\n  the text does not hold \"%s\" and \"%s\": %s", call, function,
               value, text == NULL ? "NULL" : text);
  return 0;
}

struct team {
  pthread_barrier_t barrier;
  RankBody body;
};

static void* run_rank(void* argument) {
  Rank* rank = (Rank*)argument;
  rank->team->body(rank);
  return NULL;
}

static void run_threads(int size, RankBody body, void* shared, const ncclUniqueId* id) {
  struct team team;
  pthread_t* threads = (pthread_t*)take_memory((size_t)size * sizeof *threads);
  Rank* ranks = (Rank*)take_memory((size_t)size * sizeof *ranks);
  pthread_barrier_init(&team.barrier, NULL, (unsigned)size);
  team.body = body;
  for (int rank = 0; rank < size; ++rank) {
    memset(&ranks[rank], 0, sizeof ranks[rank]);
    ranks[rank].rank = rank;
    ranks[rank].size = size;
    ranks[rank].team = &team;
    ranks[rank].shared = shared;
    if (id != NULL) ranks[rank].id = *id;
    if (pthread_create(&threads[rank], NULL, run_rank, &ranks[rank]) != 0) abort();
  }
  for (int rank = 0; rank < size; ++rank) pthread_join(threads[rank], NULL);
  pthread_barrier_destroy(&team.barrier);
  free(ranks);
  free(threads);
}

void run_ranks(int size, RankBody body, void* shared) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  if (SUCCEEDS(ncclGetUniqueId(&id))) run_threads(size, body, shared, &id);
}

struct members {
  RankBody body;
  void* shared;
};

static void run_member(Rank* rank) {
  const struct members* members = (const struct members*)rank->shared;
  if (!SUCCEEDS(ncclCommInitRank(&rank->comm, rank->size, rank->id, rank->rank))) return;
  rank->shared = members->shared;
  members->body(rank);
  SUCCEEDS(ncclCommFinalize(rank->comm));
  SUCCEEDS(ncclCommDestroy(rank->comm));
}

void run_members(int size, RankBody body, void* shared) {
  struct members members;
  members.body = body;
  members.shared = shared;
  run_ranks(size, run_member, &members);
}

void meet(Rank* rank) { pthread_barrier_wait(&rank->team->barrier); }

int no_cuda_driver(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == NULL) return 1;
  dlclose(driver);
  return 0;
}

void* take_memory(size_t bytes) {
  void* memory = malloc(bytes == 0 ? 1 : bytes);
  if (memory == NULL) abort();
  return memory;
}

void pause_ms(int ms) {
  struct timespec time;
  time.tv_sec = ms / 1000;
  time.tv_nsec = (long)(ms % 1000) * 1000000;
  nanosleep(&time, NULL);
}

ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  /* The program's alarm bounds it. */
  while (state == ncclInProgress) {
    if (!SUCCEEDS(ncclCommGetAsyncError(comm, &state))) return ncclInternalError;
    if (state == ncclInProgress) pause_ms(1);
  }
  return state;
}
