// abi.cc: see abi.hpp.
#include "nccl/abi.hpp"

#include <mutex>
#include <string>

#include <fmt/format.h>

#include "nccl/process.hpp"

namespace tutti::nccl {
namespace {

struct LastError {
  std::mutex mutex;
  std::string text;
};

LastError& the_last() {
  static LastError last;
  return last;
}

}  // namespace

Result<DataType> data_type_of(ncclDataType_t type) {
  static constexpr DataType kTypes[] = {
      DataType::int8,    DataType::uint8,    DataType::int32,       DataType::uint32,
      DataType::int64,   DataType::uint64,   DataType::float16,     DataType::float32,
      DataType::float64, DataType::bfloat16, DataType::float8_e4m3, DataType::float8_e5m2};
  static_assert(std::size(kTypes) == ncclNumTypes);
  const int number = static_cast<int>(type);
  if (number >= 0 && number < ncclNumTypes) return kTypes[number];
  return Status(StatusCode::invalid_argument,
                fmt::format("{} is no ncclDataType_t (0..{})", number, ncclNumTypes - 1));
}

Result<ReduceOp> reduce_op_of(ncclRedOp_t op) {
  switch (static_cast<int>(op)) {
    case ncclSum:
      return ReduceOp::sum;
    case ncclProd:
      return ReduceOp::prod;
    case ncclMax:
      return ReduceOp::max;
    case ncclMin:
      return ReduceOp::min;
    case ncclAvg:
      return ReduceOp::avg;
    default:
      return Status(StatusCode::invalid_argument,
                    fmt::format("{} is no ncclRedOp_t of this communicator", static_cast<int>(op)));
  }
}

ncclResult_t result_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::ok:
      return ncclSuccess;
    case StatusCode::invalid_argument:
    case StatusCode::corrupt_data:
      return ncclInvalidArgument;
    case StatusCode::unsupported:
    case StatusCode::mismatch:
    case StatusCode::aborted:
    case StatusCode::revoked:
      return ncclInvalidUsage;
    case StatusCode::timeout:
    case StatusCode::peer_lost:
      return ncclRemoteError;
    case StatusCode::system_error:
      return ncclSystemError;
    case StatusCode::internal:
      return ncclInternalError;
  }
  return ncclInternalError;
}

ncclResult_t report(const char* function, const Status& status) {
  if (status.ok()) return ncclSuccess;
  const std::string text = fmt::format("{}: {}", function, status.to_string());
  // NCCL's users look for reasons where NCCL_DEBUG=WARN shows them.
  if (settings().log) log().warn(text);
  LastError& last = the_last();
  const std::lock_guard lock(last.mutex);
  last.text = text;
  return result_of(status);
}

const char* last_error() {
  static thread_local std::string mine;
  LastError& last = the_last();
  const std::lock_guard lock(last.mutex);
  mine = last.text;
  return mine.c_str();
}

}  // namespace tutti::nccl
