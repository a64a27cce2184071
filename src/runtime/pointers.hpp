// pointers.hpp: where the operands of a step lie, listed anew for every step of every call.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::runtime {

// So many pointers at most, as a step has operands: unlike a vector it never asks for room.
template <typename T>
class Pointers {
 public:
  void make_room(std::size_t count) {
    if (count > items_.size()) items_.resize(count);
  }
  void clear() { count_ = 0; }
  void add(T* pointer) { items_[count_++] = pointer; }
  T* front() const { return items_[0]; }
  std::span<T* const> all() const { return {items_.data(), count_}; }

 private:
  std::vector<T*> items_;
  std::size_t count_ = 0;
};

}  // namespace tutti::runtime
