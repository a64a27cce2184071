// crc32c.cc: see crc32c.hpp.
#include "base/crc32c.hpp"

#include <isa-l/crc.h>

#include <algorithm>

namespace tutti::base {
namespace {

// isa-l counts in int.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  while (!bytes.empty()) {
    const std::size_t piece = std::min(bytes.size(), kPieceBytes);
    // isa-l only reads what it takes as a pointer to something that may change.
    auto* from = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    crc = crc32_iscsi(from, static_cast<int>(piece), crc);
    bytes = bytes.subspan(piece);
  }
  return ~crc;
}

}  // namespace tutti::base
