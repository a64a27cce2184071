/* values.h: elements of every type of NCCL, of which small whole numbers are all that is asked. */
#ifndef TUTTI_TESTS_NCCL_VALUES_H
#define TUTTI_TESTS_NCCL_VALUES_H

#include <nccl.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

size_t size_of_type(ncclDataType_t type);
int is_unsigned(ncclDataType_t type);

/* The element `index` of `buffer`. Requires: a whole number that the type holds, of at most three
 * binary digits up to its last 1. */
void set_value(void* buffer, size_t index, ncclDataType_t type, double value);
double get_value(const void* buffer, size_t index, ncclDataType_t type);

#ifdef __cplusplus
}
#endif

#endif
