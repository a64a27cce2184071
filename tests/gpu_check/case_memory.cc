// case_memory.cc: see case_memory.hpp.
#include "gpu_check/case_memory.hpp"

#include <array>

#include "base/try.hpp"

namespace tutti::gpu_check {
namespace {

namespace cuda = transport::cuda;

Result<cuda::MappingDriver> mapping_driver(int ordinal) {
  static const auto functions = cuda::find_mapping_functions();
  TUTTI_TRY(functions);
  const auto& found = cuda::find();
  if (found.driver == nullptr) return Status(StatusCode::unsupported, found.reason);
  const cuda::MappingDriver driver{found.driver, &*functions};
  if (driver.attribute(cuda::kDeviceMapsMemory, ordinal) == 0)
    return Status(StatusCode::unsupported, "the device has no virtual memory management");
  return driver;
}

Result<cuda::MappedRange> two_parts(int ordinal, std::size_t bytes) {
  const auto driver = mapping_driver(ordinal);
  TUTTI_TRY(driver);
  cuda::ObjectProperties wanted;
  wanted.handle_types = cuda::kByDescriptor;
  wanted.location.id = ordinal;
  std::size_t granule = 0;
  TUTTI_TRY(driver->check(driver->functions->cuMemGetAllocationGranularity(&granule, &wanted, 0),
                          "cuMemGetAllocationGranularity"));
  const std::size_t half = (bytes / 2 + granule) / granule * granule;
  auto range = cuda::MappedRange::reserve(*driver, 2 * half);
  TUTTI_TRY(range);
  for (int part = 0; part < 2; ++part) {
    const auto object = cuda::OwnObject::create(*driver, half, wanted);
    TUTTI_TRY(object);
    TUTTI_TRY(range->append(*object, half));
  }
  const std::array<int, 1> own{ordinal};
  TUTTI_TRY(range->open_to(own));
  return range;
}

}  // namespace

Result<CaseMemory> CaseMemory::make(runtime::gpu::Device& device, std::size_t bytes,
                                    bool in_parts) {
  CaseMemory made(device);
  if (in_parts) {
    auto range = two_parts(device.id(), bytes);
    TUTTI_TRY(range);
    made.range_ = *std::move(range);
    return made;
  }
  const auto memory = device.allocate(bytes);
  TUTTI_TRY(memory);
  made.memory_ = *memory;
  return made;
}

}  // namespace tutti::gpu_check
