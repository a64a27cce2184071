/* collectives.c: every collective with every type, operator and awkward count, in place and not, of
 * one to four ranks that are threads. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "values.h"

/* The built-in operators have their own numbers. */
enum { premul_sum = ncclNumOps, op_kinds };
enum { guard_elements = 3, guard = 5, untouched = 7 };

typedef struct {
  ncclDataType_t type;
  int kind; /* an operator that NCCL has, or premul_sum */
  size_t count;
  int in_place;
} Case;

/* Small numbers with which every operator is exact in every type, however it is associated. */
static double input_of(const Case* one, int rank, size_t index) {
  const int step = rank + (int)(index % 997);
  switch (one->kind) {
    case ncclProd:
      return 1 + step % 2;
    case ncclMax:
    case ncclMin:
      return (3 * rank + (int)(index % 997)) % 5 - (is_unsigned(one->type) ? 0 : 2);
    case ncclAvg:
      return 4 * (step % 3);
    case premul_sum:
      return step % 2;
    default:
      return step % 3;
  }
}

static double scalar_of(int rank) { return 1 + rank % 2; }

static double joined(const Case* one, int size, size_t index) {
  double result = input_of(one, 0, index);
  for (int rank = 1; rank < size; ++rank) {
    const double value = input_of(one, rank, index);
    if (one->kind == ncclProd) result *= value;
    if (one->kind == ncclMax && value > result) result = value;
    if (one->kind == ncclMin && value < result) result = value;
    if (one->kind == ncclSum || one->kind == ncclAvg) result += value;
    if (one->kind == premul_sum) result += value * scalar_of(rank);
  }
  return one->kind == ncclAvg ? result / size : result;
}

/* `count` elements and a guard. */
static void* blank(const Case* one, size_t count) {
  void* buffer = take_memory((count + guard_elements) * size_of_type(one->type));
  for (size_t i = 0; i < count; ++i) set_value(buffer, i, one->type, untouched);
  for (size_t i = 0; i < guard_elements; ++i) set_value(buffer, count + i, one->type, guard);
  return buffer;
}

static void* filled(const Case* one, size_t count, int rank) {
  void* buffer = blank(one, count);
  for (size_t i = 0; i < count; ++i) set_value(buffer, i, one->type, input_of(one, rank, i));
  return buffer;
}

static char* element(void* buffer, const Case* one, size_t index) {
  return (char*)buffer + index * size_of_type(one->type);
}

static void compare(const char* call, const Case* one, const void* buffer, size_t index,
                    double expected) {
  const double found = get_value(buffer, index, one->type);
  if (found == expected) return;
  check_failed(__FILE__, __LINE__, "%s of type %d, op %d, count %zu%s: element %zu is %g, not %g",
               call, (int)one->type, one->kind, one->count, one->in_place ? ", in place" : "",
               index, found, expected);
}

static void compare_guard(const char* call, const Case* one, const void* buffer, size_t count) {
  for (size_t i = 0; i < guard_elements; ++i) compare(call, one, buffer, count + i, guard);
}

/* What was only read is as it was. */
static void compare_input(const char* call, const Case* one, const void* buffer, size_t count,
                          int rank) {
  for (size_t i = 0; i < count; ++i) compare(call, one, buffer, i, input_of(one, rank, i));
  compare_guard(call, one, buffer, count);
}

static void one_all_reduce(Rank* rank, const Case* one, ncclRedOp_t op) {
  void* input = filled(one, one->count, rank->rank);
  void* output = one->in_place ? input : blank(one, one->count);
  SUCCEEDS(ncclAllReduce(input, output, one->count, one->type, op, rank->comm, NULL));
  for (size_t i = 0; i < one->count; ++i)
    compare("ncclAllReduce", one, output, i, joined(one, rank->size, i));
  compare_guard("ncclAllReduce", one, output, one->count);
  if (!one->in_place) compare_input("ncclAllReduce", one, input, one->count, rank->rank);
  if (!one->in_place) free(output);
  free(input);
}

static void one_reduce(Rank* rank, const Case* one, ncclRedOp_t op) {
  const int root = (int)(one->count % (size_t)rank->size);
  const int is_root = rank->rank == root;
  void* input = filled(one, one->count, rank->rank);
  void* output = one->in_place ? input : is_root ? blank(one, one->count) : NULL;
  SUCCEEDS(ncclReduce(input, output, one->count, one->type, op, root, rank->comm, NULL));
  for (size_t i = 0; i < one->count && is_root; ++i)
    compare("ncclReduce", one, output, i, joined(one, rank->size, i));
  if (output != NULL) compare_guard("ncclReduce", one, output, one->count);
  if (!one->in_place) compare_input("ncclReduce", one, input, one->count, rank->rank);
  if (!one->in_place) free(output);
  free(input);
}

static void one_reduce_scatter(Rank* rank, const Case* one, ncclRedOp_t op) {
  const size_t all = one->count * (size_t)rank->size;
  const size_t mine = one->count * (size_t)rank->rank;
  void* input = filled(one, all, rank->rank);
  void* apart = blank(one, one->count);
  void* output = one->in_place ? element(input, one, mine) : apart;
  SUCCEEDS(ncclReduceScatter(input, output, one->count, one->type, op, rank->comm, NULL));
  for (size_t i = 0; i < one->count; ++i)
    compare("ncclReduceScatter", one, output, i, joined(one, rank->size, mine + i));
  compare_guard("ncclReduceScatter", one, input, all);
  compare_guard("ncclReduceScatter", one, apart, one->count);
  if (!one->in_place) compare_input("ncclReduceScatter", one, input, all, rank->rank);
  free(apart);
  free(input);
}

static void one_broadcast(Rank* rank, const Case* one) {
  const int root = (int)(one->count % (size_t)rank->size);
  void* input = rank->rank == root ? filled(one, one->count, root) : blank(one, one->count);
  void* apart = blank(one, one->count);
  void* output = one->in_place ? input : apart;
  const void* source = rank->rank == root || one->in_place ? input : NULL;
  SUCCEEDS(ncclBroadcast(source, output, one->count, one->type, root, rank->comm, NULL));
  compare_input("ncclBroadcast", one, output, one->count, root);
  if (rank->rank != root) memset(input, 0, one->count * size_of_type(one->type));
  SUCCEEDS(ncclBcast(input, one->count, one->type, root, rank->comm, NULL));
  compare_input("ncclBcast", one, input, one->count, root);
  free(apart);
  free(input);
}

static void one_all_gather(Rank* rank, const Case* one) {
  const size_t all = one->count * (size_t)rank->size;
  void* apart = filled(one, one->count, rank->rank);
  void* output = blank(one, all);
  char* place = element(output, one, one->count * (size_t)rank->rank);
  memcpy(place, apart, one->in_place ? one->count * size_of_type(one->type) : 0);
  SUCCEEDS(ncclAllGather(one->in_place ? place : (char*)apart, output, one->count, one->type,
                         rank->comm, NULL));
  for (size_t i = 0; i < all; ++i)
    compare("ncclAllGather", one, output, i, input_of(one, (int)(i / one->count), i % one->count));
  compare_guard("ncclAllGather", one, output, all);
  compare_input("ncclAllGather", one, apart, one->count, rank->rank);
  free(output);
  free(apart);
}

static void one_all_to_all(Rank* rank, const Case* one) {
  const size_t all = one->count * (size_t)rank->size;
  const size_t mine = one->count * (size_t)rank->rank;
  void* input = filled(one, all, rank->rank);
  void* output = one->in_place ? input : blank(one, all);
  SUCCEEDS(ncclAlltoAll(input, output, one->count, one->type, rank->comm, NULL));
  for (size_t i = 0; i < all; ++i)
    compare("ncclAlltoAll", one, output, i,
            input_of(one, (int)(i / one->count), mine + i % one->count));
  compare_guard("ncclAlltoAll", one, output, all);
  if (!one->in_place) compare_input("ncclAlltoAll", one, input, all, rank->rank);
  if (!one->in_place) free(output);
  free(input);
}

static void one_gather(Rank* rank, const Case* one) {
  const int root = (int)(one->count % (size_t)rank->size);
  const size_t all = one->count * (size_t)rank->size;
  void* apart = filled(one, one->count, rank->rank);
  void* output = rank->rank == root ? blank(one, all) : NULL;
  const char* input = (const char*)apart;
  if (one->in_place && rank->rank == root) {
    char* place = element(output, one, one->count * (size_t)root);
    memcpy(place, apart, one->count * size_of_type(one->type));
    input = place;
  }
  SUCCEEDS(ncclGather(input, output, one->count, one->type, root, rank->comm, NULL));
  for (size_t i = 0; i < all && rank->rank == root; ++i)
    compare("ncclGather", one, output, i, input_of(one, (int)(i / one->count), i % one->count));
  if (rank->rank == root) compare_guard("ncclGather", one, output, all);
  free(output);
  free(apart);
}

static void one_scatter(Rank* rank, const Case* one) {
  const int root = (int)(one->count % (size_t)rank->size);
  const size_t all = one->count * (size_t)rank->size;
  const size_t mine = one->count * (size_t)rank->rank;
  void* input = rank->rank == root ? filled(one, all, root) : NULL;
  void* apart = blank(one, one->count);
  void* output = one->in_place && rank->rank == root ? element(input, one, mine) : apart;
  SUCCEEDS(ncclScatter(input, output, one->count, one->type, root, rank->comm, NULL));
  for (size_t i = 0; i < one->count; ++i)
    compare("ncclScatter", one, output, i, input_of(one, root, mine + i));
  compare_guard("ncclScatter", one, apart, one->count);
  if (rank->rank == root) compare_input("ncclScatter", one, input, all, root);
  free(apart);
  free(input);
}

static void reductions(Rank* rank, const Case* one) {
  char scalar[8];
  ncclRedOp_t op = (ncclRedOp_t)one->kind;
  if (one->kind == ncclAvg && rank->size == 3) return; /* thirds are not exact */
  if (one->kind == premul_sum) {
    const ncclScalarResidence_t residence =
        one->count % 2 == 0 ? ncclScalarHostImmediate : ncclScalarDevice;
    set_value(scalar, 0, one->type, scalar_of(rank->rank));
    if (!SUCCEEDS(ncclRedOpCreatePreMulSum(&op, scalar, one->type, residence, rank->comm))) return;
    CHECK((int)op >= (int)ncclNumOps);
  }
  one_all_reduce(rank, one, op);
  one_reduce(rank, one, op);
  one_reduce_scatter(rank, one, op);
  if (one->kind == premul_sum) SUCCEEDS(ncclRedOpDestroy(op, rank->comm));
}

static void movements(Rank* rank, const Case* one) {
  one_broadcast(rank, one);
  one_all_gather(rank, one);
  one_all_to_all(rank, one);
  one_gather(rank, one);
  one_scatter(rank, one);
}

static void all_cases(Rank* rank) {
  static const size_t counts[] = {0, 1, 7, 1000};
  Case one;
  for (int type = 0; type < ncclNumTypes; ++type) {
    one.type = (ncclDataType_t)type;
    for (int variant = 0; variant < 8; ++variant) {
      one.count = counts[variant / 2];
      one.in_place = variant % 2;
      for (one.kind = 0; one.kind < op_kinds; ++one.kind) reductions(rank, &one);
      one.kind = ncclSum;
      movements(rank, &one);
    }
  }
}

/* Of no elements there need not be memory. */
static void nothing_at_all(Rank* rank) {
  SUCCEEDS(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, rank->comm, NULL));
  SUCCEEDS(ncclAllGather(NULL, NULL, 0, ncclFloat32, rank->comm, NULL));
  SUCCEEDS(ncclBroadcast(NULL, NULL, 0, ncclFloat32, 0, rank->comm, NULL));
}

/* An average of whole numbers is cut off; a scalar may be a fraction. */
static void fractions(Rank* rank) {
  int whole = 1 + rank->rank; /* 1 + 2 + 3 + 4 = 10, a quarter of it is 2.5 */
  float factor = 0.5f;
  float value = 3.0f;
  ncclRedOp_t op = ncclSum;
  SUCCEEDS(ncclAllReduce(&whole, &whole, 1, ncclInt32, ncclAvg, rank->comm, NULL));
  CHECK(whole == 2);
  SUCCEEDS(
      ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, rank->comm));
  factor = 0; /* was read */
  SUCCEEDS(ncclAllReduce(&value, &value, 1, ncclFloat32, op, rank->comm, NULL));
  CHECK(value == 6.0f);
  SUCCEEDS(ncclRedOpDestroy(op, rank->comm));
}

static void long_ones(Rank* rank) {
  Case one = {ncclFloat32, ncclSum, 300001, 0};
  reductions(rank, &one);
  movements(rank, &one);
}

void test_collectives(void) {
  for (int size = 1; size <= 4; ++size) run_members(size, all_cases, NULL);
  run_members(3, nothing_at_all, NULL);
  run_members(4, fractions, NULL);
  run_members(3, long_ones, NULL);
}
