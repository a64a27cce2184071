// collectives.cc: the functions of nccl.h that move data.
#include <optional>
#include <span>

#include <fmt/format.h>

#include "nccl/api/api.hpp"

namespace tutti::nccl {
namespace {

struct Asked {
  CallKind kind;
  const void* input;
  void* output;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int peer = 0;
};

Result<Comm::PremulSum> reduction_of(const Comm& comm, ncclRedOp_t op) {
  if (static_cast<int>(op) >= ncclNumOps) return comm.premul_sum(static_cast<int>(op));
  const Result<ReduceOp> known = reduce_op_of(op);
  TUTTI_TRY(known);
  return Comm::PremulSum{*known};
}

Result<Call> checked_call(const Comm& comm, const Asked& asked) {
  TUTTI_TRY(comm.usable());
  const auto type = data_type_of(asked.type);
  TUTTI_TRY(type);
  const auto op = reduction_of(comm, asked.op);
  TUTTI_TRY(op);
  const Call call{asked.kind, asked.input, asked.output, asked.count,
                  *type,      op->op,      asked.peer,   op->factor_at};
  TUTTI_TRY(check(call, comm.rank(), comm.size()));
  return call;
}

Status enqueue(Group& group, const Asked& asked, ncclComm_t handle, cudaStream_t stream) {
  const auto comm = find_comm(handle);
  TUTTI_TRY(comm);
  auto call = checked_call(**comm, asked);
  TUTTI_TRY(call);
  return group.add(*comm, stream, *std::move(call));
}

// The short way of a call that can only be one in host memory, and of no group.
std::optional<ncclResult_t> call_at_once(const Asked& asked, ncclComm_t handle,
                                         cudaStream_t stream) {
  if (stream != nullptr || Group::of_this_thread().open()) return std::nullopt;
  const auto comm = find_comm(handle);
  if (!comm.ok() || !(*comm)->device_side().is_none()) return std::nullopt;
  return answer(to_string(asked.kind), [&] {
    const auto call = checked_call(**comm, asked);
    TUTTI_TRY(call);
    const std::lock_guard lock((*comm)->in_use());
    return (*comm)->run(std::span(&*call, 1));
  });
}

ncclResult_t call(const Asked& asked, ncclComm_t comm, cudaStream_t stream) {
  if (const auto result = call_at_once(asked, comm, stream)) return *result;
  return answer_in_group(to_string(asked.kind),
                         [&](Group& group) { return enqueue(group, asked, comm, stream); });
}

// What a caller of the 2.31 forms wants for one call. GPU's business is passed over; an algorithm
// that must be had cannot be promised.
Status check_wishes(const ncclCollConfig_t* config) {
  if (config == nullptr) return Status();
  if (config->size < offsetof(ncclCollConfig_t, ext) || config->magic != NCCL_API_MAGIC)
    return Status(StatusCode::invalid_argument,
                  "this is no ncclCollConfig_t; begin with NCCL_COLLCONFIG_INITIALIZER");
  if (config->size < offsetof(ncclCollConfig_t, CTAPolicy) || config->algSelection == nullptr)
    return Status();
  if (config->forceAlgSelection != 1) return Status();
  return Status(StatusCode::unsupported,
                fmt::format("algSelection={} cannot be forced for one call; set NCCL_ALGO or "
                            "TUTTI_ALGORITHM for all, or forceAlgSelection=0",
                            config->algSelection));
}

ncclResult_t call_with(const ncclCollConfig_t* config, const Asked& asked, ncclComm_t comm,
                       cudaStream_t stream) {
  return answer_in_group(to_string(asked.kind), [&](Group& group) {
    TUTTI_TRY(check_wishes(config));
    return enqueue(group, asked, comm, stream);
  });
}

constexpr const char* kNoOneSided =
    "one-sided messages are not done; use ncclSend and ncclRecv in a group";

}  // namespace
}  // namespace tutti::nccl

using tutti::nccl::answer;
using tutti::nccl::call;
using tutti::nccl::call_with;
using tutti::nccl::CallKind;
using tutti::nccl::kNoOneSided;
using tutti::nccl::no_such_thing;

extern "C" {

ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                            ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                            cudaStream_t stream) {
  return call({CallKind::all_reduce, sendbuff, recvbuff, count, datatype, op}, comm, stream);
}

ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                            ncclDataType_t datatype, int root, ncclComm_t comm,
                            cudaStream_t stream) {
  return call({CallKind::broadcast, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm,
              stream);
}

ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return call({CallKind::broadcast, buff, buff, count, datatype, ncclSum, root}, comm, stream);
}

ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  return call({CallKind::reduce, sendbuff, recvbuff, count, datatype, op, root}, comm, stream);
}

ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return call({CallKind::all_gather, sendbuff, recvbuff, sendcount, datatype}, comm, stream);
}

ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream) {
  return call({CallKind::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op}, comm,
              stream);
}

ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return call({CallKind::all_to_all, sendbuff, recvbuff, count, datatype}, comm, stream);
}

ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return call({CallKind::gather, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm, stream);
}

ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return call({CallKind::scatter, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm,
              stream);
}

ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream) {
  return call({CallKind::send, sendbuff, nullptr, count, datatype, ncclSum, peer}, comm, stream);
}

ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream) {
  return call({CallKind::recv, nullptr, recvbuff, count, datatype, ncclSum, peer}, comm, stream);
}

ncclResult_t pncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count,
                                  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream, const ncclCollConfig_t* config) {
  return call_with(config, {CallKind::all_reduce, sendbuff, recvbuff, count, datatype, op}, comm,
                   stream);
}

ncclResult_t pncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count,
                                  ncclDataType_t datatype, int root, ncclComm_t comm,
                                  cudaStream_t stream, const ncclCollConfig_t* config) {
  return call_with(config,
                   {CallKind::broadcast, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm,
                   stream);
}

ncclResult_t pncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count,
                               ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                               cudaStream_t stream, const ncclCollConfig_t* config) {
  return call_with(config, {CallKind::reduce, sendbuff, recvbuff, count, datatype, op, root}, comm,
                   stream);
}

ncclResult_t pncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                  const ncclCollConfig_t* config) {
  return call_with(config, {CallKind::all_gather, sendbuff, recvbuff, sendcount, datatype}, comm,
                   stream);
}

ncclResult_t pncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                      ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream, const ncclCollConfig_t* config) {
  return call_with(config, {CallKind::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op},
                   comm, stream);
}

ncclResult_t pncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  return call_with(config, {CallKind::all_to_all, sendbuff, recvbuff, count, datatype}, comm,
                   stream);
}

ncclResult_t pncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count,
                               ncclDataType_t datatype, int root, ncclComm_t comm,
                               cudaStream_t stream, const ncclCollConfig_t* config) {
  return call_with(config, {CallKind::gather, sendbuff, recvbuff, count, datatype, ncclSum, root},
                   comm, stream);
}

ncclResult_t pncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count,
                                ncclDataType_t datatype, int root, ncclComm_t comm,
                                cudaStream_t stream, const ncclCollConfig_t* config) {
  return call_with(config, {CallKind::scatter, sendbuff, recvbuff, count, datatype, ncclSum, root},
                   comm, stream);
}

ncclResult_t pncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int,
                            int, unsigned int, ncclComm_t, cudaStream_t) {
  return answer("ncclPutSignal", [] { return no_such_thing(kNoOneSided); });
}

ncclResult_t pncclSignal(int, int, int, unsigned int, ncclComm_t, cudaStream_t) {
  return answer("ncclSignal", [] { return no_such_thing(kNoOneSided); });
}

ncclResult_t pncclWaitSignal(int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t) {
  return answer("ncclWaitSignal", [] { return no_such_thing(kNoOneSided); });
}

}  // extern "C"

TUTTI_ALSO_AS_NCCL(AllReduce);
TUTTI_ALSO_AS_NCCL(Broadcast);
TUTTI_ALSO_AS_NCCL(Bcast);
TUTTI_ALSO_AS_NCCL(Reduce);
TUTTI_ALSO_AS_NCCL(AllGather);
TUTTI_ALSO_AS_NCCL(ReduceScatter);
TUTTI_ALSO_AS_NCCL(AlltoAll);
TUTTI_ALSO_AS_NCCL(Gather);
TUTTI_ALSO_AS_NCCL(Scatter);
TUTTI_ALSO_AS_NCCL(Send);
TUTTI_ALSO_AS_NCCL(Recv);
TUTTI_ALSO_AS_NCCL(AllReduceConfig);
TUTTI_ALSO_AS_NCCL(BroadcastConfig);
TUTTI_ALSO_AS_NCCL(ReduceConfig);
TUTTI_ALSO_AS_NCCL(AllGatherConfig);
TUTTI_ALSO_AS_NCCL(ReduceScatterConfig);
TUTTI_ALSO_AS_NCCL(AlltoAllConfig);
TUTTI_ALSO_AS_NCCL(GatherConfig);
TUTTI_ALSO_AS_NCCL(ScatterConfig);
TUTTI_ALSO_AS_NCCL(PutSignal);
TUTTI_ALSO_AS_NCCL(Signal);
TUTTI_ALSO_AS_NCCL(WaitSignal);
