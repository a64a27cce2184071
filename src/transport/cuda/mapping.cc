// mapping.cc: see mapping.hpp.
#include "transport/cuda/mapping.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/try.hpp"
#include "transport/cuda/loader.hpp"

namespace tutti::transport::cuda {
namespace {

void load_all(Loader& load, MappingFunctions& f) {
  load(f.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  load(f.cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  load(f.cuMemGetAddressRange_v2, "cuMemGetAddressRange_v2");
  load(f.cuMemAddressReserve, "cuMemAddressReserve");
  load(f.cuMemAddressFree, "cuMemAddressFree");
  load(f.cuMemCreate, "cuMemCreate");
  load(f.cuMemRelease, "cuMemRelease");
  load(f.cuMemMap, "cuMemMap");
  load(f.cuMemUnmap, "cuMemUnmap");
  load(f.cuMemSetAccess, "cuMemSetAccess");
  load(f.cuMemGetAccess, "cuMemGetAccess");
  load(f.cuMemExportToShareableHandle, "cuMemExportToShareableHandle");
  load(f.cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle");
  load(f.cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity");
  load(f.cuMemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle");
  load(f.cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle");
}

}  // namespace

// The library stays open, as driver.cc has it.
Result<MappingFunctions> find_mapping_functions(const char* library) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const error = dlerror();
    return Status(StatusCode::unsupported, fmt::format("no CUDA driver: {}: {}", library,
                                                       error != nullptr ? error : "not opened"));
  }
  MappingFunctions functions = {};
  Loader load(opened);
  load_all(load, functions);
  if (load.missing().empty()) return functions;
  return Status(StatusCode::unsupported,
                fmt::format("{} maps no memory by parts: it has no {}", library, load.missing()));
}

int MappingDriver::attribute(int which, Device device) const {
  int value = 0;
  return functions->cuDeviceGetAttribute(&value, which, device) == kSuccess ? value : 0;
}

// ---- Objects ----

Result<OwnObject> OwnObject::create(const MappingDriver& driver, std::size_t bytes,
                                    const ObjectProperties& properties) {
  OwnObject made;
  TUTTI_TRY(driver.check(driver.functions->cuMemCreate(&made.object_, bytes, &properties, 0),
                         "cuMemCreate"));
  made.driver_ = driver;
  return made;
}

Result<OwnObject> OwnObject::mapped_at(const MappingDriver& driver, const void* at) {
  OwnObject made;
  TUTTI_TRY(driver.check(
      driver.functions->cuMemRetainAllocationHandle(&made.object_, const_cast<void*>(at)),
      "cuMemRetainAllocationHandle"));
  made.driver_ = driver;
  return made;
}

Result<OwnObject> OwnObject::import(const MappingDriver& driver, void* key, int type) {
  OwnObject made;
  TUTTI_TRY(driver.check(driver.functions->cuMemImportFromShareableHandle(&made.object_, key, type),
                         "cuMemImportFromShareableHandle"));
  made.driver_ = driver;
  return made;
}

OwnObject::~OwnObject() {
  if (driver_.functions != nullptr) driver_.functions->cuMemRelease(object_);
}

Result<ObjectProperties> OwnObject::properties() const {
  ObjectProperties found;
  TUTTI_TRY(
      driver_.check(driver_.functions->cuMemGetAllocationPropertiesFromHandle(&found, object_),
                    "cuMemGetAllocationPropertiesFromHandle"));
  return found;
}

// ---- Addresses ----

Result<MappedRange> MappedRange::reserve(const MappingDriver& driver, std::size_t bytes) {
  MappedRange made;
  TUTTI_TRY(driver.check(driver.functions->cuMemAddressReserve(&made.begin_, bytes, 0, 0, 0),
                         "cuMemAddressReserve"));
  made.driver_ = driver;
  made.bytes_ = bytes;
  return made;
}

// What was mapped at once can only be unmapped at once.
MappedRange::~MappedRange() {
  if (driver_.functions == nullptr) return;
  DevicePointer at = begin_;
  for (const std::size_t bytes : mapped_) {
    driver_.functions->cuMemUnmap(at, bytes);
    at += bytes;
  }
  driver_.functions->cuMemAddressFree(begin_, bytes_);
}

void MappedRange::swap(MappedRange& other) {
  std::swap(driver_, other.driver_);
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(used_, other.used_);
}

std::byte* MappedRange::begin() const {
  return reinterpret_cast<std::byte*>(begin_);  // NOLINT(performance-no-int-to-ptr)
}

Status MappedRange::append(const OwnObject& object, std::size_t bytes) {
  if (bytes == 0 || bytes > bytes_ - used_)
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} bytes do not fit behind {} of {}", bytes, used_, bytes_));
  TUTTI_TRY(driver_.check(driver_.functions->cuMemMap(begin_ + used_, bytes, 0, object.get(), 0),
                          "cuMemMap"));
  mapped_.push_back(bytes);
  used_ += bytes;
  return Status();
}

Status MappedRange::open_to(std::span<const int> ordinals) const {
  std::vector<MemoryAccess> access;
  for (const int ordinal : ordinals) access.push_back({{kLocationDevice, ordinal}, kAccessBoth});
  return driver_.check(
      driver_.functions->cuMemSetAccess(begin_, bytes_, access.data(), access.size()),
      "cuMemSetAccess");
}

}  // namespace tutti::transport::cuda
