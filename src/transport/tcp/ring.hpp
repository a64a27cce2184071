// ring.hpp: a byte ring whose memory is mapped twice in a row, so that what is stored and what is
// free are each one piece, wherever they lie: frames are built, sent, received and read in place,
// and never wrap.
//
// Knows bytes only; one thread.
#pragma once

#include <cstddef>

#include "base/assert.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::tcp {

class Ring {
 public:
  Ring() = default;
  Ring(Ring&& other) noexcept;
  Ring& operator=(Ring&& other) noexcept;
  ~Ring();

  // A ring for at least `bytes` bytes. Errors  system_error.
  static Result<Ring> make(std::size_t bytes);

  bool made() const { return base_ != nullptr; }
  std::size_t capacity() const { return capacity_; }
  std::size_t stored() const { return stored_; }
  std::size_t room() const { return capacity_ - stored_; }

  // The stored bytes, stored() of them; and where the next ones go, room() of them.
  const std::byte* front() const { return base_ + begin_; }
  std::byte* back() { return base_ + begin_ + stored_; }

  void wrote(std::size_t bytes) {
    TUTTI_ASSERT(bytes <= room(), "more was written than there was room for");
    stored_ += bytes;
  }
  void read(std::size_t bytes) {
    TUTTI_ASSERT(bytes <= stored_, "more was read than was stored");
    begin_ += bytes;
    if (begin_ >= capacity_) begin_ -= capacity_;
    stored_ -= bytes;
  }

  // Takes back the latest bytes.
  void unwrite(std::size_t bytes) {
    TUTTI_ASSERT(bytes <= stored_, "more was taken back than was stored");
    stored_ -= bytes;
  }

  // Starts again at the beginning when empty: memory used just now is warm in the cache.
  void rewind() {
    if (stored_ == 0) begin_ = 0;
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t stored_ = 0;
};

}  // namespace tutti::transport::tcp
