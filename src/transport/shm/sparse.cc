// A piece reaches to where huge pages begin and end, which costs addresses only: the pages that are
// asked for are those that the owner has there.
#include "transport/shm/sparse.hpp"

#include <algorithm>

#include "transport/shm/pages.hpp"

namespace tutti::transport::shm {

std::byte* SparseFile::at(std::uint64_t offset, std::size_t bytes) {
  if (offset > bytes_ || bytes > bytes_ - offset || bytes == 0) return nullptr;
  auto found = std::find_if(pieces_.begin(), pieces_.end(),
                            [&](const Piece& piece) { return piece.holds(offset, bytes); });
  Piece* piece = found == pieces_.end() ? map(offset, bytes) : &*found;
  if (piece == nullptr) return nullptr;
  piece->used = ++uses_;
  return piece->memory.base() + (offset - piece->offset);
}

SparseFile::Piece* SparseFile::map(std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t begin = offset / kHugePageBytes * kHugePageBytes;
  const std::uint64_t whole = (offset + bytes + kHugePageBytes - 1) / kHugePageBytes;
  const std::uint64_t end = std::min(bytes_, whole * kHugePageBytes);
  Result<Mapping> memory = map_part(file_.number(), begin, end - begin, Pages::when_touched);
  if (!memory.ok()) return nullptr;
  const std::uint64_t first = offset / kPageBytes * kPageBytes;
  const std::uint64_t last = (offset + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  populate_quickly(memory->base() + (first - begin), last - first);
  if (pieces_.size() == kPiecesMost) {
    ++unmapped_;
    pieces_.erase(std::min_element(pieces_.begin(), pieces_.end(),
                                   [](const auto& a, const auto& b) { return a.used < b.used; }));
  }
  pieces_.push_back({begin, std::move(memory).value(), 0});
  return &pieces_.back();
}

}  // namespace tutti::transport::shm
