// mapping.hpp: the part of the CUDA driver's interface that makes memory and addresses apart from
// each other (cuMemCreate, cuMemMap and their like), and owners for what it hands out. Memory made
// so can be mapped by other processes part by part, which CUDA IPC cannot do with it.
//
// Drivers may lack it, and devices too. Knows neither ranks nor how a key gets to another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "transport/cuda/driver.hpp"

namespace tutti::transport::cuda {

using MemoryObject = unsigned long long;  // a device's memory, mapped or not

inline constexpr Code kNotPermitted = 800;

inline constexpr int kDeviceMapsMemory = 102;
inline constexpr int kDeviceMapsForCards = 110;  // network cards may reach what is mapped
inline constexpr int kDeviceHasFabric = 128;

// How other processes may get it: bits.
inline constexpr int kByDescriptor = 1;
inline constexpr int kByFabric = 8;

inline constexpr int kObjectPinned = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAccessBoth = 3;  // to load and to store
inline constexpr int kGranularityRecommended = 1;

struct MemoryLocation {
  int type = kLocationDevice;
  int id = 0;

  friend bool operator==(const MemoryLocation&, const MemoryLocation&) = default;
};

struct ObjectProperties {
  int type = kObjectPinned;
  int handle_types = 0;
  MemoryLocation location;
  void* of_windows = nullptr;
  unsigned char compression = 0;
  unsigned char for_cards = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};

struct MemoryAccess {
  MemoryLocation location;
  int flags = kAccessBoth;
};

// What a process of any host of the fabric imports an object by.
struct FabricHandle {
  unsigned char bytes[64];
};

// By the names under which the library has them.
struct MappingFunctions {
  Code (*cuDeviceGetAttribute)(int* value, int attribute, Device device);
  Code (*cuDeviceCanAccessPeer)(int* can, Device device, Device peer);
  Code (*cuMemGetAddressRange_v2)(DevicePointer* begin, std::size_t* bytes, DevicePointer memory);
  Code (*cuMemAddressReserve)(DevicePointer* begin, std::size_t bytes, std::size_t alignment,
                              DevicePointer wish, unsigned long long flags);
  Code (*cuMemAddressFree)(DevicePointer begin, std::size_t bytes);
  Code (*cuMemCreate)(MemoryObject* object, std::size_t bytes, const ObjectProperties* properties,
                      unsigned long long flags);
  Code (*cuMemRelease)(MemoryObject object);
  Code (*cuMemMap)(DevicePointer at, std::size_t bytes, std::size_t offset, MemoryObject object,
                   unsigned long long flags);
  Code (*cuMemUnmap)(DevicePointer at, std::size_t bytes);
  Code (*cuMemSetAccess)(DevicePointer at, std::size_t bytes, const MemoryAccess* access,
                         std::size_t count);
  Code (*cuMemGetAccess)(unsigned long long* flags, const MemoryLocation* location,
                         DevicePointer at);
  Code (*cuMemExportToShareableHandle)(void* key, MemoryObject object, int type,
                                       unsigned long long flags);
  Code (*cuMemImportFromShareableHandle)(MemoryObject* object, void* key, int type);
  Code (*cuMemGetAllocationGranularity)(std::size_t* bytes, const ObjectProperties* properties,
                                        int option);
  Code (*cuMemGetAllocationPropertiesFromHandle)(ObjectProperties* properties, MemoryObject object);
  Code (*cuMemRetainAllocationHandle)(MemoryObject* object, void* at);
};

// Those of a driver that has been found (driver.hpp) in a library of this name.
// Errors  unsupported, with the name of the first one that is missing.
Result<MappingFunctions> find_mapping_functions(const char* library = "libcuda.so.1");

// A driver that has them.
struct MappingDriver {
  const Driver* driver = nullptr;
  const MappingFunctions* functions = nullptr;

  Status check(Code code, const char* what) const { return driver->check(code, what); }
  // Of a device; 0 where the driver does not know it.
  int attribute(int which, Device device) const;
};

// One reference to an object. Movable. Lifetime  the driver's functions outlive it.
class OwnObject {
 public:
  OwnObject() = default;
  static Result<OwnObject> create(const MappingDriver& driver, std::size_t bytes,
                                  const ObjectProperties& properties);
  // What is mapped at this address. Errors  system_error: nothing of the kind is.
  static Result<OwnObject> mapped_at(const MappingDriver& driver, const void* at);
  // Another process's. `key` is a number of a descriptor, cast, or a FabricHandle's address.
  static Result<OwnObject> import(const MappingDriver& driver, void* key, int type);
  OwnObject(OwnObject&& other) noexcept { swap(other); }
  OwnObject& operator=(OwnObject&& other) noexcept {
    OwnObject old(std::move(*this));
    swap(other);
    return *this;
  }
  ~OwnObject();

  MemoryObject get() const { return object_; }
  Result<ObjectProperties> properties() const;

 private:
  void swap(OwnObject& other) {
    std::swap(driver_, other.driver_);
    std::swap(object_, other.object_);
  }

  MappingDriver driver_;
  MemoryObject object_ = 0;
};

// Addresses, with objects mapped into them from their beginning on. Movable.
//
// Lifetime  until nothing uses the memory. To let go of it may wait for all of a device's work.
class MappedRange {
 public:
  MappedRange() = default;
  static Result<MappedRange> reserve(const MappingDriver& driver, std::size_t bytes);
  MappedRange(MappedRange&& other) noexcept { swap(other); }
  MappedRange& operator=(MappedRange&& other) noexcept {
    MappedRange old(std::move(*this));
    swap(other);
    return *this;
  }
  ~MappedRange();

  std::byte* begin() const;
  std::size_t bytes() const { return bytes_; }
  // The first bytes of the object behind what is mapped already; the mapping keeps the object.
  // Errors  invalid_argument: there is no room for them.
  Status append(const OwnObject& object, std::size_t bytes);
  // These devices may load and store all of it. Requires  it is mapped to its end.
  Status open_to(std::span<const int> ordinals) const;

 private:
  void swap(MappedRange& other);

  MappingDriver driver_;
  DevicePointer begin_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::size_t> mapped_;  // bytes of each
  std::size_t used_ = 0;
};

}  // namespace tutti::transport::cuda
