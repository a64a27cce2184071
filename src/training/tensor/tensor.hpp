// tensor.hpp: a typed, contiguous, row-major piece of an arena's memory. Copies share the memory,
// as those of a shared_ptr do; the last one gives it back.
//
// Knows nothing of arithmetic; that is ops/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "training/tensor/arena.hpp"
#include "training/tensor/check.hpp"
#include "training/tensor/shape.hpp"
#include "tutti/numeric.hpp"
#include "tutti/types.hpp"

namespace tutti::training {

class Tensor {
 public:
  Tensor() = default;  // of nothing: empty() is true

  // Uninitialised.
  Tensor(Arena& arena, MemoryKind kind, DataType type, const Shape& shape)
      : memory_(arena.allocate(kind, static_cast<std::size_t>(shape.count()) * size_of(type))),
        data_(memory_.get()),
        shape_(shape),
        type_(type) {}

  static Tensor zeros(Arena& arena, MemoryKind kind, DataType type, const Shape& shape) {
    Tensor made(arena, kind, type, shape);
    made.clear();
    return made;
  }

  bool empty() const { return data_ == nullptr; }
  const Shape& shape() const { return shape_; }
  DataType type() const { return type_; }
  std::int64_t count() const { return empty() ? 0 : shape_.count(); }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * size_of(type_); }

  // Of a matrix, or of anything seen as one: the last extent is columns, all before it rows.
  std::int64_t columns() const { return shape_.rank() == 0 ? 1 : shape_[shape_.rank() - 1]; }
  std::int64_t rows() const { return columns() == 0 ? 0 : count() / columns(); }

  std::byte* data() const { return data_; }

  // Requires  T is the element type.
  template <typename T>
  T* as() const {
    TRAINING_CHECK(data_type_of<T>() == type_, "a tensor read as another element type");
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  std::span<T> span() const {
    return {as<T>(), static_cast<std::size_t>(count())};
  }

  // The same memory with other extents. Requires  as many elements.
  Tensor reshaped(const Shape& shape) const {
    TRAINING_CHECK(shape.count() == shape_.count(), "a reshape keeps the number of elements");
    Tensor other = *this;
    other.shape_ = shape;
    return other;
  }

  // `count` elements from `begin`, as a vector; the same memory.
  Tensor elements(std::int64_t begin, std::int64_t count) const {
    TRAINING_CHECK(begin >= 0 && count >= 0 && begin + count <= shape_.count(), "a part outside");
    Tensor other = *this;
    other.data_ += static_cast<std::size_t>(begin) * size_of(type_);
    other.shape_ = Shape{count};
    return other;
  }

  // Rows [begin, begin + count) of the outermost extent; the same memory.
  Tensor part(std::int64_t begin, std::int64_t count) const {
    const std::int64_t each = shape_[0] == 0 ? 0 : shape_.count() / shape_[0];
    Tensor other = elements(begin * each, count * each);
    Shape shape = shape_;
    shape[0] = count;
    return other.reshaped(shape);
  }

  void clear() const { std::memset(data_, 0, bytes()); }  // to zeros

 private:
  std::shared_ptr<std::byte> memory_;
  std::byte* data_ = nullptr;
  Shape shape_;
  DataType type_ = DataType::float32;
};

}  // namespace tutti::training
