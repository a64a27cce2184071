// call.cc: see call.hpp.
#include "nccl/call.hpp"

#include <limits>

#include <fmt/format.h>

#include "base/try.hpp"
#include "runtime/special_reduction.hpp"

namespace tutti::nccl {
namespace {

bool rooted(CallKind kind) {
  return kind == CallKind::broadcast || kind == CallKind::reduce || kind == CallKind::gather ||
         kind == CallKind::scatter;
}

bool point_to_point(CallKind kind) { return kind == CallKind::send || kind == CallKind::recv; }

Status refuse(const Call& call, Rank rank, const std::string& reason) {
  return Status(StatusCode::invalid_argument,
                fmt::format("rank {}: {}: {}", rank, to_string(call.kind), reason));
}

// Makes the call, or puts it into the group that the communicator is collecting.
Status make(Communicator& communicator, const Call& call) {
  const auto& [kind, input, output, count, type, known_op, peer, factor_at] = call;
  const Reduction op = factor_at == nullptr ? known_op : Reduction::premul_sum(type, factor_at);
  switch (kind) {
    case CallKind::all_reduce:
      return communicator.all_reduce(input, output, count, type, op);
    case CallKind::broadcast:
      return communicator.broadcast(input, output, count, type, peer);
    case CallKind::reduce:
      return communicator.reduce(input, output, count, type, op, peer);
    case CallKind::all_gather:
      return communicator.all_gather(input, output, count, type);
    case CallKind::reduce_scatter:
      return communicator.reduce_scatter(input, output, count, type, op);
    case CallKind::all_to_all:
      return communicator.all_to_all(input, output, count, type);
    case CallKind::gather:
      return communicator.gather(input, output, count, type, peer);
    case CallKind::scatter:
      return communicator.scatter(input, output, count, type, peer);
    case CallKind::send:
      return communicator.send(input, count, type, peer);
    case CallKind::recv:
      return communicator.recv(output, count, type, peer);
  }
  return Status(StatusCode::internal, "there is no such call");
}

}  // namespace

std::optional<Collective> collective_of(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce:
      return Collective::all_reduce;
    case CallKind::broadcast:
      return Collective::broadcast;
    case CallKind::reduce:
      return Collective::reduce;
    case CallKind::all_gather:
      return Collective::all_gather;
    case CallKind::reduce_scatter:
      return Collective::reduce_scatter;
    case CallKind::all_to_all:
      return Collective::all_to_all;
    case CallKind::gather:
      return Collective::gather;
    case CallKind::scatter:
      return Collective::scatter;
    case CallKind::send:
    case CallKind::recv:
      break;
  }
  return std::nullopt;
}

const char* to_string(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce:
      return "ncclAllReduce";
    case CallKind::broadcast:
      return "ncclBroadcast";
    case CallKind::reduce:
      return "ncclReduce";
    case CallKind::all_gather:
      return "ncclAllGather";
    case CallKind::reduce_scatter:
      return "ncclReduceScatter";
    case CallKind::all_to_all:
      return "ncclAlltoAll";
    case CallKind::gather:
      return "ncclGather";
    case CallKind::scatter:
      return "ncclScatter";
    case CallKind::send:
      return "ncclSend";
    case CallKind::recv:
      return "ncclRecv";
  }
  return "an unknown call";
}

std::size_t factor_bytes_of(const Call& call) {
  return call.factor_at == nullptr ? 0 : size_of(call.type);
}

Footprint footprint_of(const Call& call, Rank rank, int size) {
  const std::size_t block = call.count * size_of(call.type);
  const std::size_t all = block * static_cast<std::size_t>(size);
  const bool is_root = rank == call.peer;
  switch (call.kind) {
    case CallKind::all_reduce:
      return {block, block};
    case CallKind::broadcast:
      return {is_root ? block : 0, block};
    case CallKind::reduce:
      return {block, is_root ? block : 0};
    case CallKind::all_gather:
      return {block, all};
    case CallKind::reduce_scatter:
      return {all, block};
    case CallKind::all_to_all:
      return {all, all};
    case CallKind::gather:
      return {block, is_root ? all : 0};
    case CallKind::scatter:
      return {is_root ? all : 0, block};
    case CallKind::send:
      return {block, 0};
    case CallKind::recv:
      return {0, block};
  }
  return {};
}

Status check(const Call& call, Rank rank, int size) {
  const auto limit = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  if (call.count > limit / size_of(call.type) / static_cast<std::size_t>(size))
    return refuse(call, rank, fmt::format("count {} is more than memory can hold", call.count));
  if ((rooted(call.kind) || point_to_point(call.kind)) && (call.peer < 0 || call.peer >= size))
    return refuse(call, rank,
                  fmt::format("{} {} is not one of the {} ranks",
                              rooted(call.kind) ? "root" : "peer", call.peer, size));
  const Footprint bytes = footprint_of(call, rank, size);
  if (bytes.input_bytes > 0 && call.input == nullptr)
    return refuse(call, rank, "the send buffer is null");
  if (bytes.output_bytes > 0 && call.output == nullptr)
    return refuse(call, rank, "the receive buffer is null");
  if (const auto& special = call.op.special(); special != nullptr)
    if (const std::string why = runtime::refusal(*special, call.count, call.type); !why.empty())
      return refuse(call, rank, why);
  return Status();
}

Result<std::vector<Work>> start(Communicator& communicator, std::span<const Call> calls) {
  TUTTI_TRY(communicator.group_begin());
  Status kept;
  for (const Call& call : calls)
    if (kept.ok()) kept = make(communicator, call);
  // Also after a refusal, so that the communicator is not left inside a group.
  Result<std::vector<Work>> works = communicator.group_end_async();
  TUTTI_TRY(kept);
  return works;
}

Status run(Communicator& communicator, std::span<const Call> calls) {
  // A collective of its own is quickest without anything that outlives it. A transfer is not: its
  // other end may be in a group, and both ends are to be of one kind.
  if (calls.size() == 1 && !point_to_point(calls.front().kind))
    return make(communicator, calls.front());
  Result<std::vector<Work>> works = start(communicator, calls);
  TUTTI_TRY(works);
  Status first;
  for (Work& work : *works)
    if (const Status status = work.wait(); first.ok()) first = status;
  return first;
}

}  // namespace tutti::nccl
