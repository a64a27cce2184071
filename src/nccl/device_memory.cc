// device_memory.cc: see device_memory.hpp.
#include "nccl/device_memory.hpp"

#include <atomic>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/process.hpp"

namespace tutti::nccl {
namespace {

namespace cuda = transport::cuda;

Result<cuda::MappingDriver> mapping_driver(const cuda::Driver& driver, int ordinal) {
  static const auto found = cuda::find_mapping_functions();
  TUTTI_TRY(found);
  const cuda::MappingDriver mapping{&driver, &*found};
  if (mapping.attribute(cuda::kDeviceMapsMemory, ordinal) == 0)
    return Status(StatusCode::unsupported,
                  fmt::format("device {} maps no memory part by part", ordinal));
  return mapping;
}

cuda::ObjectProperties properties_for(const cuda::MappingDriver& driver, int ordinal) {
  cuda::ObjectProperties wanted;
  wanted.handle_types = cuda::kByDescriptor;
  if (driver.attribute(cuda::kDeviceHasFabric, ordinal) != 0)
    wanted.handle_types |= cuda::kByFabric;
  wanted.location.id = ordinal;
  wanted.for_cards = driver.attribute(cuda::kDeviceMapsForCards, ordinal) != 0 ? 1 : 0;
  return wanted;
}

// The device and all that reach it.
Result<std::vector<int>> devices_for(const cuda::MappingDriver& driver, int ordinal) {
  std::vector<int> devices{ordinal};
  const auto count = driver.driver->device_count();
  TUTTI_TRY(count);
  for (int other = 0; other < *count; ++other) {
    int can = 0;
    if (other != ordinal)
      TUTTI_TRY(driver.check(driver.functions->cuDeviceCanAccessPeer(&can, other, ordinal),
                             "cuDeviceCanAccessPeer"));
    if (can != 0) devices.push_back(other);
  }
  return devices;
}

// A device that has a fabric may be where its service does not run, or does not let the process in.
Result<cuda::OwnObject> object_of(const cuda::MappingDriver& driver, std::size_t bytes,
                                  cuda::ObjectProperties wanted) {
  auto object = cuda::OwnObject::create(driver, bytes, wanted);
  if (object.ok() || (wanted.handle_types & cuda::kByFabric) == 0) return object;
  wanted.handle_types = cuda::kByDescriptor;
  return cuda::OwnObject::create(driver, bytes, wanted);
}

Result<cuda::MappedRange> mapped_memory(const cuda::Driver& driver, int ordinal,
                                        std::size_t bytes) {
  const auto found = mapping_driver(driver, ordinal);
  TUTTI_TRY(found);
  const cuda::MappingDriver& mapping = *found;
  const cuda::ObjectProperties wanted = properties_for(mapping, ordinal);
  std::size_t granule = 0;
  TUTTI_TRY(mapping.check(mapping.functions->cuMemGetAllocationGranularity(
                              &granule, &wanted, cuda::kGranularityRecommended),
                          "cuMemGetAllocationGranularity"));
  const auto devices = devices_for(mapping, ordinal);
  TUTTI_TRY(devices);
  const std::size_t whole = (bytes + granule - 1) / granule * granule;
  const auto object = object_of(mapping, whole, wanted);
  TUTTI_TRY(object);
  auto range = cuda::MappedRange::reserve(mapping, whole);
  TUTTI_TRY(range);
  TUTTI_TRY(range->append(*object, whole));
  TUTTI_TRY(range->open_to(*devices));
  return range;
}

}  // namespace

Result<DeviceMemory> DeviceMemory::make(const cuda::Driver& driver, int ordinal,
                                        cuda::Context context, std::size_t bytes) {
  DeviceMemory made;
  made.driver_ = &driver;
  made.context_ = context;
  auto range = mapped_memory(driver, ordinal, bytes);
  if (range.ok()) {
    made.range_ = *std::move(range);
    made.data_ = made.range_.begin();
    return made;
  }
  static std::atomic_flag told;
  if (!told.test_and_set())
    log().info(
        fmt::format("ncclMemAlloc gives memory of cuMemAlloc: {}", range.status().message()));
  const auto memory = driver.allocate(bytes);
  TUTTI_TRY(memory);
  made.data_ = *memory;
  return made;
}

Status DeviceMemory::free() {
  const auto scope = cuda::ContextScope::enter(*driver_, context_);
  TUTTI_TRY(scope);
  if (range_.bytes() == 0) return driver_->deallocate(data_);
  range_ = cuda::MappedRange();
  return Status();
}

}  // namespace tutti::nccl
