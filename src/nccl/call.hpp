// call.hpp: one collective, send or receive as a caller of the NCCL interface made it, kept as data
// until its group ends or its stream comes to it.
//
// Knows the public Communicator. Does not know handles, groups, streams or devices.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti::nccl {

enum class CallKind {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,
  recv,
};

// None: a send or recv.
std::optional<Collective> collective_of(CallKind kind);

// The name that its caller used, for texts: "ncclAllReduce".
const char* to_string(CallKind kind);

struct Call {
  CallKind kind = CallKind::all_reduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // as NCCL counts: of the larger buffer's block, in elements
  DataType type = DataType::float32;
  Reduction op = ReduceOp::sum;
  Rank peer = 0;  // the root, or the other end of a send or recv
  // Of a sum with a factor: where that lies when the call is made. Null: `op` has it.
  const void* factor_at = nullptr;
};

// The memory that a rank's part of a call reads and writes. Units: bytes; 0: not touched at all.
struct Footprint {
  std::size_t input_bytes = 0;
  std::size_t output_bytes = 0;
};

// Requires  count * size() of the call fits into std::size_t (checked when the call was made).
Footprint footprint_of(const Call& call, Rank rank, int size);

// Of what factor_at points to. Units: bytes; 0: it is null.
std::size_t factor_bytes_of(const Call& call);

// Ok, or why this call cannot be right whatever the other ranks do: a root that does not exist, no
// memory where some is needed, a size that overflows, a factor of another type.
// Errors  invalid_argument.
Status check(const Call& call, Rank rank, int size);

// Starts the calls as one group; the factors that they point to are read now.
// Errors  of the first that could not be started.
Result<std::vector<Work>> start(Communicator& communicator, std::span<const Call> calls);

// Makes the calls as one group and waits for them. Blocking.
Status run(Communicator& communicator, std::span<const Call> calls);

}  // namespace tutti::nccl
