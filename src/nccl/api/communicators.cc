// communicators.cc: the functions of nccl.h that make, ask and end communicators, and groups.
#include <algorithm>
#include <cstddef>
#include <span>

#include <fmt/format.h>

#include "nccl/api/api.hpp"
#include "nccl/init_config.hpp"
#include "nccl/making.hpp"
#include "nccl/process.hpp"
#include "nccl/unique_id.hpp"

namespace tutti::nccl {
namespace {

constexpr unsigned int kSimInfoMagic = 0x74685283;

// The job of the caller's rank, put into the group.
ncclResult_t init_rank(const char* function, ncclComm_t* place, int size, const ncclUniqueId* id,
                       int rank, const ncclConfig_t* config) {
  return answer_in_group(function, [&](Group& group) {
    TUTTI_TRY(check_pointer(place, "comm"));
    *place = nullptr;
    TUTTI_TRY(check_pointer(id, "commId"));
    introduce(rank);
    const auto wishes = read_config(config);
    TUTTI_TRY(wishes);
    const auto known = UniqueId::read(id->internal);
    TUTTI_TRY(known);
    auto job = join_job(*known, size, rank, *wishes);
    TUTTI_TRY(job);
    job->place = place;
    group.add(*std::move(job));
    return Status();
  });
}

// Of a child: what it does not say is the parent's.
Result<InitConfig> child_config(const Comm& parent, const ncclConfig_t* config) {
  if (config != nullptr) return read_config(config);
  InitConfig made;
  made.blocking = parent.blocking();
  made.name = parent.identity().name;
  made.copy_engines = parent.identity().copy_engines;
  return made;
}

// What is asked of a communicator whether it is ready or not.
template <typename Body>
ncclResult_t ask(const char* function, ncclComm_t handle, const void* answer_place,
                 const Body& body) {
  return answer(function, [&] {
    const auto comm = find_comm(handle);
    TUTTI_TRY(comm);
    TUTTI_TRY(check_pointer(answer_place, "the place for the answer"));
    body(**comm);
    return Status();
  });
}

Status give_back(ncclComm_t handle, bool aborts) {
  const auto comm = take_comm(handle);
  TUTTI_TRY(comm);
  // One that is not made yet would wait for ranks that may never come.
  if (aborts || (*comm)->phase() != Comm::Phase::ready) {
    (*comm)->abort();
    (*comm)->device_side().abandon();
    return Status();
  }
  // What it had failed with was told by the call that failed.
  if (const Status closed = (*comm)->close(); !closed.ok()) log().info(closed.to_string());
  return Status();
}

}  // namespace
}  // namespace tutti::nccl

using tutti::Status;
using tutti::StatusCode;
using namespace tutti::nccl;

extern "C" {

ncclResult_t pncclGetVersion(int* version) {
  return answer("ncclGetVersion", [&] {
    TUTTI_TRY(check_pointer(version, "version"));
    *version = NCCL_VERSION_CODE;
    return Status();
  });
}

const char* pncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "the CUDA driver refused (more: NCCL_DEBUG=WARN, ncclGetLastError)";
    case ncclSystemError:
      return "the operating system refused (more: NCCL_DEBUG=WARN, ncclGetLastError)";
    case ncclInternalError:
      return "a bug in the library (more: NCCL_DEBUG=WARN, ncclGetLastError)";
    case ncclInvalidArgument:
      return "an argument that cannot be (more: NCCL_DEBUG=WARN, ncclGetLastError)";
    case ncclInvalidUsage:
      return "a call that cannot be made here, or now (more: NCCL_DEBUG=WARN, ncclGetLastError)";
    case ncclRemoteError:
      return "another rank failed, or is not there (more: NCCL_DEBUG=WARN, ncclGetLastError)";
    case ncclInProgress:
      return "still in progress";
    case ncclTimeout:
      return "a deadline has passed (more: NCCL_DEBUG=WARN, ncclGetLastError)";
    default:
      return "no result that this library knows";
  }
}

const char* pncclGetLastError(ncclComm_t) { return last_error(); }

void pncclResetDebugInit(void) {}

__attribute__((visibility("default"))) void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void) {}

ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
  return answer("ncclGetUniqueId", [&] {
    TUTTI_TRY(check_pointer(uniqueId, "uniqueId"));
    const auto id = make_unique_id(settings().interfaces);
    TUTTI_TRY(id);
    id->write(uniqueId->internal);
    return Status();
  });
}

ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return init_rank("ncclCommInitRank", comm, nranks, &commId, rank, nullptr);
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t* config) {
  return init_rank("ncclCommInitRankConfig", comm, nranks, &commId, rank, config);
}

ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId* commIds, ncclConfig_t* config) {
  if (nId < 1)
    return answer("ncclCommInitRankScalable", [&] {
      return Status(StatusCode::invalid_argument, fmt::format("{} ids are none", nId));
    });
  return init_rank("ncclCommInitRankScalable", newcomm, nranks, commIds, myrank, config);
}

ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return answer("ncclCommInitAll", [&] {
    TUTTI_TRY(check_pointer(comm, "comm"));
    if (ndev < 1)
      return Status(StatusCode::invalid_argument, fmt::format("{} devices are none", ndev));
    introduce(0);
    std::vector<int> devices(static_cast<std::size_t>(ndev));
    for (int i = 0; i < ndev; ++i)
      devices[static_cast<std::size_t>(i)] = devlist != nullptr ? devlist[i] : i;
    const auto comms = make_all(devices);
    TUTTI_TRY(comms);
    for (std::size_t i = 0; i < comms->size(); ++i) comm[i] = give_handle((*comms)[i]);
    return Status();
  });
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                            ncclConfig_t* config) {
  return answer_in_group("ncclCommSplit", [&](Group& group) {
    TUTTI_TRY(check_pointer(newcomm, "newcomm"));
    *newcomm = nullptr;
    const auto parent = find_comm(comm);
    TUTTI_TRY(parent);
    TUTTI_TRY((*parent)->usable());
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
      return Status(StatusCode::invalid_argument,
                    fmt::format("color {} is negative and not NCCL_SPLIT_NOCOLOR", color));
    const auto wishes = child_config(**parent, config);
    TUTTI_TRY(wishes);
    Job job = split_job(*parent, color, key, *wishes);
    job.place = newcomm;
    group.add(std::move(job));
    return Status();
  });
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                             ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return answer_in_group("ncclCommShrink", [&](Group& group) {
    TUTTI_TRY(check_pointer(newcomm, "newcomm"));
    *newcomm = nullptr;
    const auto parent = find_comm(comm);
    TUTTI_TRY(parent);
    TUTTI_TRY(check_pointer(excludeRanksList, "excludeRanksList"));
    if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
      return Status(StatusCode::invalid_argument,
                    fmt::format("{} is no flag of ncclCommShrink", shrinkFlags));
    const auto wishes = child_config(**parent, config);
    TUTTI_TRY(wishes);
    const auto count = static_cast<std::size_t>(std::max(excludeRanksCount, 0));
    auto job = shrink_job(*parent, std::span<const int>(excludeRanksList, count),
                          shrinkFlags == NCCL_SHRINK_ABORT, *wishes);
    TUTTI_TRY(job);
    job->place = newcomm;
    group.add(*std::move(job));
    return Status();
  });
}

ncclResult_t pncclCommGetUniqueId(ncclComm_t, ncclUniqueId*) {
  return answer("ncclCommGetUniqueId", [] {
    return no_such_thing("communicators do not grow; make a larger one with ncclCommInitRank");
  });
}

ncclResult_t pncclCommGrow(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*) {
  return answer("ncclCommGrow", [] {
    return no_such_thing("communicators do not grow; make a larger one with ncclCommInitRank");
  });
}

// To end what is none is nothing, as in NCCL.
ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return answer("ncclCommFinalize", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    if ((*found)->phase() == Comm::Phase::closed)
      return Status(StatusCode::invalid_argument, "the communicator was finalized before");
    return (*found)->close();
  });
}

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return answer("ncclCommDestroy", [&] { return give_back(comm, false); });
}

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return answer("ncclCommAbort", [&] { return give_back(comm, true); });
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  if (comm == nullptr) return ncclSuccess;
  return answer("ncclCommRevoke", [&] {
    const auto found = find_comm(comm);
    TUTTI_TRY(found);
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
      return Status(StatusCode::invalid_argument,
                    fmt::format("{} is no flag of ncclCommRevoke", revokeFlags));
    TUTTI_TRY((*found)->usable());
    return (*found)->revoke();
  });
}

ncclResult_t pncclCommSuspend(ncclComm_t, int) {
  return answer("ncclCommSuspend", [] {
    return no_such_thing("a communicator has no GPU memory to give back; destroy it instead");
  });
}

ncclResult_t pncclCommResume(ncclComm_t) {
  return answer("ncclCommResume",
                [] { return no_such_thing("no communicator can have been suspended"); });
}

ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  if (stat < ncclStatGpuMemSuspend || stat > ncclStatGpuMemTotal)
    return answer("ncclCommMemStats", [&] {
      return Status(StatusCode::invalid_argument,
                    fmt::format("{} is no ncclCommMemStat_t", static_cast<int>(stat)));
    });
  return ask("ncclCommMemStats", comm, value, [&](const Comm& found) {
    const bool told = stat == ncclStatGpuMemPersist || stat == ncclStatGpuMemTotal;
    *value = told ? found.device_side().memory_bytes() : 0;
  });
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return ask("ncclCommGetAsyncError", comm, asyncError, [&](const Comm& found) {
    const bool making = found.phase() == Comm::Phase::making;
    *asyncError = making ? ncclInProgress : result_of(found.failure());
  });
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  return ask("ncclCommCount", comm, count, [&](const Comm& found) { *count = found.size(); });
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  return ask("ncclCommUserRank", comm, rank, [&](const Comm& found) { *rank = found.rank(); });
}

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  return ask("ncclCommCuDevice", comm, device,
             [&](const Comm& found) { *device = found.identity().device.ordinal; });
}

ncclResult_t pncclGroupStart(void) {
  return answer("ncclGroupStart", [] {
    Group::of_this_thread().begin();
    return Status();
  });
}

ncclResult_t pncclGroupEnd(void) {
  bool in_progress = false;
  const ncclResult_t result =
      answer("ncclGroupEnd", [&] { return Group::of_this_thread().end(in_progress); });
  return result == ncclSuccess && in_progress ? ncclInProgress : result;
}

ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return answer("ncclGroupSimulateEnd", [&] {
    const auto time_us = Group::of_this_thread().simulate();
    TUTTI_TRY(time_us);
    TUTTI_TRY(check_pointer(simInfo, "simInfo"));
    if (simInfo->size < sizeof(ncclSimInfo_t) || simInfo->magic != kSimInfoMagic)
      return Status(StatusCode::invalid_argument, "simInfo: begin with NCCL_SIM_INFO_INITIALIZER");
    simInfo->estimatedTime = static_cast<float>(*time_us);
    return Status();
  });
}

}  // extern "C"

TUTTI_ALSO_AS_NCCL(GetVersion);
TUTTI_ALSO_AS_NCCL(GetErrorString);
TUTTI_ALSO_AS_NCCL(GetLastError);
TUTTI_ALSO_AS_NCCL(ResetDebugInit);
TUTTI_ALSO_AS_NCCL(GetUniqueId);
TUTTI_ALSO_AS_NCCL(CommInitRank);
TUTTI_ALSO_AS_NCCL(CommInitRankConfig);
TUTTI_ALSO_AS_NCCL(CommInitRankScalable);
TUTTI_ALSO_AS_NCCL(CommInitAll);
TUTTI_ALSO_AS_NCCL(CommSplit);
TUTTI_ALSO_AS_NCCL(CommShrink);
TUTTI_ALSO_AS_NCCL(CommGetUniqueId);
TUTTI_ALSO_AS_NCCL(CommGrow);
TUTTI_ALSO_AS_NCCL(CommFinalize);
TUTTI_ALSO_AS_NCCL(CommDestroy);
TUTTI_ALSO_AS_NCCL(CommAbort);
TUTTI_ALSO_AS_NCCL(CommRevoke);
TUTTI_ALSO_AS_NCCL(CommSuspend);
TUTTI_ALSO_AS_NCCL(CommResume);
TUTTI_ALSO_AS_NCCL(CommMemStats);
TUTTI_ALSO_AS_NCCL(CommGetAsyncError);
TUTTI_ALSO_AS_NCCL(CommCount);
TUTTI_ALSO_AS_NCCL(CommUserRank);
TUTTI_ALSO_AS_NCCL(CommCuDevice);
TUTTI_ALSO_AS_NCCL(GroupStart);
TUTTI_ALSO_AS_NCCL(GroupEnd);
TUTTI_ALSO_AS_NCCL(GroupSimulateEnd);
