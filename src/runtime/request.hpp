// request.hpp: what a user asks a communicator for, and whether it can be done at all.
//
// Most calls of a loop differ in nothing but their buffers, so what only depends on the rest is
// looked at once, and remembered.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/blocks.hpp"
#include "tutti/reduction.hpp"
#include "tutti/schedule.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime {

// One call, before planning.
struct Request {
  Collective collective = Collective::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  const Reduction::Special* special = nullptr;  // of a reduction that is more than `op`
  Rank root = 0;
  Rank to = -1;  // of send_recv; -1: nobody
  Rank from = -1;
  // Of a call whose blocks differ in size, instead of the buffers: copied by whoever keeps it.
  // Then `count` is what all ranks know of the sizes, and `counts_hash` stands for the rest.
  const Blocks* blocks = nullptr;
  std::uint64_t counts_hash = 0;
};

// What a rank's buffers are in all calls of one shape: a collective whose blocks are equally long.
class RequestShape {
 public:
  RequestShape() = default;  // of no call

  // Errors  invalid_argument: no call is so large, or has such a root or peer.
  static Result<RequestShape> of(const Request& request, Rank rank, int size);

  bool fits(const Request& r) const {
    return known_ && r.count == count_ && r.type == type_ && r.root == root_ && r.to == to_ &&
           r.from == from_ && r.collective == collective_;
  }

  // Requires  fits(request).
  // Errors    invalid_argument: a buffer is missing, or both overlap and not exactly in place.
  Status check_buffers(const Request& request) const;

 private:
  bool in_place(std::uintptr_t input, std::uintptr_t output) const;
  Status refuse(const char* reason) const;

  bool known_ = false;
  Collective collective_ = Collective::barrier;
  std::size_t count_ = 0;
  DataType type_ = DataType::float32;
  Rank rank_ = 0;
  Rank root_ = 0;
  Rank to_ = -1;
  Rank from_ = -1;
  // Units: bytes; 0 of a buffer that this rank does not use.
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
};

}  // namespace tutti::runtime
