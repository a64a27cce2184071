// crc32c.hpp: the Castagnoli cyclic redundancy check, as iSCSI, ext4 and NVMe use it.
//
// The arithmetic is isa-l's, which picks the best form for the processor when the program runs.
// This header hides its C interface and its raw, uninverted register.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::base {

// The checksum of `bytes`; crc32c(b, crc32c(a)) is that of a and b together.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace tutti::base
