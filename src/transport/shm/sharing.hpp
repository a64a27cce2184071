// sharing.hpp: what all endpoints of a transport know of the memory that they export, from call to
// call, so that each need not ask for itself.
//
// Does not know the memory.
#pragma once

#include <optional>

#include "transport/shm/remap.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::shm {

// What all endpoints of a transport know of the memory that they export.
class Sharing {
 public:
  explicit Sharing(bool in_place) : in_place_(in_place) {}

  // Whether memory that is in no region is made one.
  bool in_place() const { return in_place_; }

  // Asked for what was remapped, once in a call: its memory was the program's before it began.
  bool still_lies(const void* memory, std::size_t bytes, const MemoryReference& reference) const {
    if (!is_remapped(reference.region)) return true;
    note_use();
    if (remapped_of_break(memory, bytes)) return true;
    if (settled_) return *settled_;
    const bool settled = remap_settled();
    if (in_call_) settled_ = settled;
    return settled;
  }
  // Memory is looked for that may have been remapped, or will be.
  void note_use() const {
    if (in_call_) use_.begin();
  }
  void begin_call() {
    in_call_ = true;
    settled_.reset();
  }
  void end_call() {
    in_call_ = false;
    use_.end();
    settled_.reset();
  }

 private:
  bool in_place_;
  bool in_call_ = false;
  mutable std::optional<bool> settled_;
  mutable RemapUse use_;
};

}  // namespace tutti::transport::shm
