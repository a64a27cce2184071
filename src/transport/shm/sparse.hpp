// sparse.hpp: a peer's file that is as long as an address space and nearly empty (remap.hpp), as
// far as we use it: mapped piece by piece.
//
// Knows a file; whose it is, and what pieces are asked for, is the peer's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/shm/file.hpp"

namespace tutti::transport::shm {

class SparseFile {
 public:
  SparseFile(Descriptor file, std::uint64_t bytes) : file_(std::move(file)), bytes_(bytes) {}

  // Where that part of the file lies here; null when it is not all within the file, or the system
  // refuses. Lifetime: until kPiecesMost - 1 other parts were asked for.
  std::byte* at(std::uint64_t offset, std::size_t bytes);

  // Parts that were, and are not mapped any more.
  std::uint64_t unmapped() const { return unmapped_; }

  static constexpr std::size_t kPiecesMost = 256;

 private:
  struct Piece {
    std::uint64_t offset = 0;
    Mapping memory;
    std::uint64_t used = 0;

    bool holds(std::uint64_t from, std::size_t bytes) const {
      return from >= offset && from - offset <= memory.bytes() &&
             bytes <= memory.bytes() - (from - offset);
    }
  };

  Piece* map(std::uint64_t offset, std::size_t bytes);

  Descriptor file_;
  std::uint64_t bytes_;
  std::vector<Piece> pieces_;
  std::uint64_t uses_ = 0;
  std::uint64_t unmapped_ = 0;
};

}  // namespace tutti::transport::shm
