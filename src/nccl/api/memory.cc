// memory.cc: the functions of nccl.h about memory, windows and operations.
#include "nccl/memory.hpp"

#include <fmt/format.h>

#include "nccl/api/api.hpp"
#include "nccl/memory_kind.hpp"

using tutti::Status;
using tutti::StatusCode;
using namespace tutti::nccl;

namespace {

// What is known now is read now; all else when a call is made, wherever it lies.
tutti::Result<Comm::PremulSum> premul_sum_of(tutti::DataType type, const void* scalar,
                                             bool immediate) {
  if (!immediate) {
    constexpr std::uint64_t kUnknown = 0;
    return Comm::PremulSum{tutti::Reduction::premul_sum(type, &kUnknown), scalar};
  }
  const auto kind = memory_kind_of(loaded_driver(), scalar);
  TUTTI_TRY(kind);
  if (kind->device)
    return Status(StatusCode::invalid_argument,
                  fmt::format("the scalar at {} is in device memory, which is not read now; say "
                              "ncclScalarDevice, and it is read whenever a call is made",
                              scalar));
  return Comm::PremulSum{tutti::Reduction::premul_sum(type, scalar), nullptr};
}

}  // namespace

extern "C" {

ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  return answer("ncclMemAlloc", [&] {
    TUTTI_TRY(check_pointer(ptr, "ptr"));
    const auto memory = allocate_memory(size);
    TUTTI_TRY(memory);
    *ptr = *memory;
    return Status();
  });
}

ncclResult_t pncclMemFree(void* ptr) {
  return answer("ncclMemFree", [&] { return free_memory(ptr); });
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return answer("ncclCommRegister", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    TUTTI_TRY(check_pointer(handle, "handle"));
    const auto made = register_buffer(*found, buff, size);
    TUTTI_TRY(made);
    *handle = *made;
    return Status();
  });
}

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
  return answer("ncclCommDeregister", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    return deregister_buffer(**found, handle);
  });
}

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                     int winFlags) {
  return answer("ncclCommWindowRegister", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    TUTTI_TRY(check_pointer(win, "win"));
    const auto made = register_window(*found, buff, size, winFlags);
    TUTTI_TRY(made);
    *win = *made;
    return Status();
  });
}

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return answer("ncclCommWindowDeregister", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    return deregister_window(**found, win);
  });
}

ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
  return answer("ncclWinGetUserPtr", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    TUTTI_TRY(check_pointer(outUserPtr, "outUserPtr"));
    const auto memory = window_memory(**found, win);
    TUTTI_TRY(memory);
    *outUserPtr = *memory;
    return Status();
  });
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm) {
  return answer("ncclRedOpCreatePreMulSum", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    TUTTI_TRY(check_pointer(op, "op"));
    TUTTI_TRY(check_pointer(scalar, "scalar"));
    const auto type = data_type_of(datatype);
    TUTTI_TRY(type);
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
      return Status(StatusCode::invalid_argument,
                    fmt::format("{} is no ncclScalarResidence_t", static_cast<int>(residence)));
    const auto made = premul_sum_of(*type, scalar, residence == ncclScalarHostImmediate);
    TUTTI_TRY(made);
    *op = static_cast<ncclRedOp_t>((*found)->add_premul_sum(*made, ncclNumOps));
    return Status();
  });
}

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return answer("ncclRedOpDestroy", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    return (*found)->remove_premul_sum(static_cast<int>(op));
  });
}

}  // extern "C"

TUTTI_ALSO_AS_NCCL(MemAlloc);
TUTTI_ALSO_AS_NCCL(MemFree);
TUTTI_ALSO_AS_NCCL(CommRegister);
TUTTI_ALSO_AS_NCCL(CommDeregister);
TUTTI_ALSO_AS_NCCL(CommWindowRegister);
TUTTI_ALSO_AS_NCCL(CommWindowDeregister);
TUTTI_ALSO_AS_NCCL(WinGetUserPtr);
TUTTI_ALSO_AS_NCCL(RedOpCreatePreMulSum);
TUTTI_ALSO_AS_NCCL(RedOpDestroy);
