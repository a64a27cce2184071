// lent_memory.hpp: memory that UCX reads and writes by itself, also a GPU's: registered with it
// once, and kept until it has done with it.
//
// UCX cannot be told to stop. So every operation is counted, and memory of which one has not ended,
// or has ended in an error, is neither unregistered nor given back: a network card, or a peer that
// is told of it, may still be at it.
//
// A peer is told of the registered piece that a frame lies in. So memory that different peers are
// to reach is lent in different pieces.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "transport/ucx/worker.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::ucx {

// One piece.
struct Lent {
  LentMemory memory;
  ucp_mem_h handle = nullptr;  // null: UCX registers it by itself, if it wants to
  bool is_registered = false;  // or has been tried
  std::size_t under_way = 0;   // operations
  bool is_doubtful = false;    // one of them has failed

  ucs_memory_type_t type() const {
    return memory.kind == MemoryKind::cuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  }
  // Tells UCX what memory an operation is of.
  void describe(ucp_request_param_t& parameters) const {
    parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.memory_type = type();
    if (handle == nullptr) return;
    parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    parameters.memh = handle;
  }
  void end(bool well) {
    under_way -= 1;
    is_doubtful = is_doubtful || !well;
  }
};

class LentRegions {
 public:
  LentRegions() = default;
  LentRegions(const LentRegions&) = delete;
  LentRegions& operator=(const LentRegions&) = delete;

  // Ok, or why not. Errors  unsupported.
  static Status can_add(const Context& context, MemoryKind kind);
  // Errors  those of can_add(); unsupported: UCX cannot register it.
  Result<std::uint32_t> add(const std::shared_ptr<Context>& context, const LentMemory& memory);
  bool empty() const { return regions_.empty(); }

  // Requires  a place within what was lent. That memory of the host is registered at its first use.
  Lent& at(const LentPlace& place);

  // Gives back what nobody uses, and keeps the rest for as long as the process lives.
  // Requires  UCX's worker has ended.
  void end();
  // Keeps all of it. In a child of fork(), whose memory it is not.
  void keep_all();

 private:
  Status enlist(Lent& lent) const;
  void keep(Lent&& lent);

  std::shared_ptr<Context> context_;
  std::deque<Lent> regions_;  // whose addresses stay; region n is at n - 1
};

}  // namespace tutti::transport::ucx
