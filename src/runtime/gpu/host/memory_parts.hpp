// memory_parts.hpp: memory of a device that was made and mapped part by part (as cuMemCreate and
// cuMemMap do), as its owner hands it to other processes and as they map it.
//
// Such memory has no handle of the whole: each part has a key of its own. Knows neither CUDA nor
// how keys travel.
#pragma once

#include <array>
#include <cstddef>

#include "base/descriptor.hpp"
#include "tutti/status.hpp"

namespace tutti::runtime::gpu {

// Bytes that mean something to the driver.
using MemoryHandle = std::array<std::byte, 64>;

// What another process gets a part by.
struct PartKey {
  base::Descriptor descriptor;
  MemoryHandle handle = {};  // instead, where there is no descriptor
};

// Parts that lie side by side, of the own device's memory. The memory stays for as long as this
// does, whatever its owner does with the addresses.
//
// Threading  one thread at a time.
class SharedParts {
 public:
  SharedParts() = default;
  SharedParts(const SharedParts&) = delete;
  SharedParts& operator=(const SharedParts&) = delete;
  virtual ~SharedParts() = default;

  virtual std::size_t count() const = 0;
  virtual std::size_t bytes(std::size_t part) const = 0;
  // Errors  system_error, with what the device says.
  virtual Result<PartKey> key(std::size_t part) const = 0;
};

// Another process's parts, as they are mapped here, side by side again. At its end nothing of them
// is left.
//
// Threading  one thread at a time.
class ForeignParts {
 public:
  ForeignParts() = default;
  ForeignParts(const ForeignParts&) = delete;
  ForeignParts& operator=(const ForeignParts&) = delete;
  virtual ~ForeignParts() = default;

  virtual std::byte* begin() const = 0;
  // The next one. Errors  unsupported: the driver does not take it.
  virtual Status add(const PartKey& key, std::size_t bytes) = 0;
  // From here on kernels of this device can load and store them. Requires  all are there.
  // Errors  unsupported: they cannot.
  virtual Status open() = 0;
};

}  // namespace tutti::runtime::gpu
