// buffer.hpp: memory for what is measured, of the kind that is measured.
#pragma once

#include <cstddef>

#include "perf/common/options.hpp"
#include "tutti/status.hpp"

namespace tutti::perf {

// Page-aligned memory from tutti::allocate (shared) or from malloc's family (plain), all of its
// pages touched. Movable, one owner.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  // Errors: system_error when there is no memory left.
  static Result<Buffer> make(std::size_t bytes, BufferKind kind);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Buffer(std::byte* data, std::size_t size, BufferKind kind)
      : data_(data), size_(size), kind_(kind) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  BufferKind kind_ = BufferKind::plain;
};

}  // namespace tutti::perf
