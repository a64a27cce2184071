// memory_kind.cc: see memory_kind.hpp.
#include "nccl/memory_kind.hpp"

#include "base/try.hpp"

namespace tutti::nccl {

Result<MemoryKind> memory_kind_of(const transport::cuda::Driver* driver, const void* memory) {
  if (driver == nullptr || memory == nullptr) return MemoryKind();
  const Result<transport::cuda::PointerPlace> place = driver->place_of(memory);
  TUTTI_TRY(place);
  if (!place->device) return MemoryKind();
  return MemoryKind{true, place->ordinal, place->context};
}

}  // namespace tutti::nccl
