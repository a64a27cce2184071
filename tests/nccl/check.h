/* check.h: what the programs of this folder check with, and how they run ranks. In the part of C99
 * that is C++ too, so that each file is compiled as both. */
#ifndef TUTTI_TESTS_NCCL_CHECK_H
#define TUTTI_TESTS_NCCL_CHECK_H

#include <nccl.h>
#include <stddef.h>

/* Names of NCCL 2.29 and later are in Tutti's header, whatever version it says. */
#if defined(TUTTI_NCCL) || NCCL_VERSION_CODE >= 22902
#define HAVE_NCCL_2_29 1
#endif
#if defined(TUTTI_NCCL) || NCCL_VERSION_CODE >= 23007
#define HAVE_NCCL_2_30 1
#endif
#if defined(TUTTI_NCCL) || NCCL_VERSION_CODE >= 23100
#define HAVE_NCCL_2_31 1
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Counts a failed check, and says where it was and what came out. Threading: any. */
void check_failed(const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
int checks_failed(void);

/* 1 when the call came to `expected`, else counts it, with the library's own text. */
int check_result(const char* file, int line, const char* call, ncclResult_t result,
                 ncclResult_t expected);
/* The same, and the library's text must hold both words. */
int check_refused(const char* file, int line, const char* call, ncclResult_t result,
                  ncclResult_t expected, const char* function, const char* value);

#define CHECK(condition) \
  ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, "not so: %s", #condition))
#define EXPECT(expected, call) check_result(__FILE__, __LINE__, #call, call, expected)
#define SUCCEEDS(call) EXPECT(ncclSuccess, call)
#define REFUSES(expected, call, function, value) \
  check_refused(__FILE__, __LINE__, #call, call, expected, function, value)

/* One rank of several that are threads. */
struct team;
typedef struct {
  int rank;
  int size;
  ncclComm_t comm; /* NULL until the rank has made it */
  ncclUniqueId id;
  struct team* team;
  void* shared; /* the same of all ranks */
} Rank;

typedef void (*RankBody)(Rank* rank);

/* Runs body on `size` threads and waits for them. */
void run_ranks(int size, RankBody body, void* shared);
/* The same, each with a communicator of them all, which is ended afterwards. */
void run_members(int size, RankBody body, void* shared);
/* Waits until all ranks of the team are here. */
void meet(Rank* rank);

/* 1 when there is no CUDA driver, so that only host memory and the null stream can be. */
int no_cuda_driver(void);

/* Memory of that many bytes, at least one, or the end of the program. */
void* take_memory(size_t bytes);

/* Asks until the communicator is at it no longer, and gives what it came to. */
ncclResult_t settle(ncclComm_t comm);

/* The milliseconds for which something that should not end is given time to. */
void pause_ms(int ms);

/* The themes, one per file. */
void test_processes(void);
void test_making(void);
void test_configs(void);
void test_collectives(void);
void test_groups(void);
void test_families(void);
void test_endings(void);
void test_memory(void);
void test_mistakes(void);
void test_names(void);
void test_newer(void);
void test_device(void);

#ifdef __cplusplus
}
#endif

#endif
