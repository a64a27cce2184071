// abi.hpp: NCCL's numbers as Tutti's words, and back; and what the library says of itself.
#pragma once

#include <optional>

#include "tutti/nccl.h"
#include "tutti/types.hpp"

namespace tutti::nccl {

// Errors  invalid_argument, naming the number.
Result<DataType> data_type_of(ncclDataType_t type);
// Of the operations that every library has. Errors  invalid_argument, naming the number.
Result<ReduceOp> reduce_op_of(ncclRedOp_t op);

ncclResult_t result_of(const Status& status);

// Keeps what went wrong for ncclGetLastError, says it in the log, and is what the caller gets.
// Ok is ncclSuccess and leaves the last error alone. Threading: any thread.
ncclResult_t report(const char* function, const Status& status);

// The latest error of this process. Lifetime: until this thread asks again.
const char* last_error();

}  // namespace tutti::nccl
