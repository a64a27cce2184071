// Buffers that are measured: both kinds of memory behind one owner.
#include "perf/common/buffer.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tutti/communicator.hpp"

namespace tutti::perf {

constexpr std::size_t kPage = 4096;

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(kind_, other.kind_);
  return *this;
}

Buffer::~Buffer() {
  if (kind_ == BufferKind::shared) {
    deallocate(data_);
  } else {
    std::free(data_);
  }
}

Result<Buffer> Buffer::make(std::size_t bytes, BufferKind kind) {
  const std::size_t whole_pages = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  void* const memory =
      kind == BufferKind::shared ? allocate(whole_pages) : std::aligned_alloc(kPage, whole_pages);
  if (memory == nullptr)
    return Status(StatusCode::system_error, "no memory for a buffer of " +
                                                std::to_string(whole_pages) +
                                                " B; use a smaller -e or fewer ranks");
  std::memset(memory, 0, whole_pages);
  return Buffer(static_cast<std::byte*>(memory), whole_pages, kind);
}

}  // namespace tutti::perf
