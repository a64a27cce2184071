// cuda_parts.cc: see cuda_parts.hpp.
#include "runtime/gpu/host/cuda_parts.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "runtime/gpu/host/regions.hpp"

namespace tutti::runtime::gpu {
namespace {

namespace cuda = transport::cuda;

Status refused(std::string why) { return Status(StatusCode::unsupported, std::move(why)); }

// What was mapped at once.
struct Mapping {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;

  std::byte* end() const { return begin + bytes; }
};

Result<Mapping> mapping_of(const cuda::MappingDriver& driver, const std::byte* memory) {
  cuda::DevicePointer begin = 0;
  Mapping found;
  TUTTI_TRY(driver.check(driver.functions->cuMemGetAddressRange_v2(
                             &begin, &found.bytes, reinterpret_cast<cuda::DevicePointer>(memory)),
                         "cuMemGetAddressRange"));
  found.begin = reinterpret_cast<std::byte*>(begin);  // NOLINT(*-int-to-ptr)
  if (memory < found.begin || memory >= found.end())
    return refused("the driver does not say where this memory was mapped");
  return found;
}

// Calls `look` for all mappings that these bytes touch, in their order.
template <typename Look>
Status for_mappings(const cuda::MappingDriver& driver, const std::byte* memory, std::size_t bytes,
                    Look look) {
  const std::byte* const end = memory + std::max<std::size_t>(bytes, 1);
  for (const std::byte* at = memory; at < end;) {
    const auto mapping = mapping_of(driver, at);
    TUTTI_TRY(mapping);
    TUTTI_TRY(look(*mapping));
    at = mapping->end();
  }
  return Status();
}

// ---- The owner's side ----

struct OwnPart {
  cuda::OwnObject object;
  std::size_t bytes = 0;
  int handle_types = 0;
};

class CudaSharedParts final : public SharedParts {
 public:
  CudaSharedParts(const cuda::MappingDriver& driver, std::vector<OwnPart> parts)
      : driver_(driver), parts_(std::move(parts)) {}
  ~CudaSharedParts() override {
    const cuda::RelaxedCapture relaxed(*driver_.driver);
    parts_.clear();
  }

  std::size_t count() const override { return parts_.size(); }
  std::size_t bytes(std::size_t part) const override { return parts_[part].bytes; }
  // A descriptor needs nothing but a socket; a fabric has a service, which may forbid it.
  Result<PartKey> key(std::size_t part) const override {
    const cuda::RelaxedCapture relaxed(*driver_.driver);
    const OwnPart& own = parts_[part];
    if ((own.handle_types & cuda::kByDescriptor) == 0) return by_fabric(own);
    auto key = by_descriptor(own);
    if (key.ok() || (own.handle_types & cuda::kByFabric) == 0) return key;
    return by_fabric(own);
  }

 private:
  Result<PartKey> by_descriptor(const OwnPart& own) const {
    int number = -1;
    TUTTI_TRY(driver_.check(driver_.functions->cuMemExportToShareableHandle(
                                &number, own.object.get(), cuda::kByDescriptor, 0),
                            "cuMemExportToShareableHandle"));
    PartKey key;
    key.descriptor = base::Descriptor(number);
    ::fcntl(number, F_SETFD, FD_CLOEXEC);
    return key;
  }
  Result<PartKey> by_fabric(const OwnPart& own) const {
    cuda::FabricHandle handle = {};
    TUTTI_TRY(driver_.check(driver_.functions->cuMemExportToShareableHandle(
                                &handle, own.object.get(), cuda::kByFabric, 0),
                            "cuMemExportToShareableHandle (fabric)"));
    PartKey key;
    static_assert(sizeof handle == sizeof key.handle);
    std::memcpy(key.handle.data(), &handle, sizeof handle);
    return key;
  }

  const cuda::MappingDriver driver_;
  std::vector<OwnPart> parts_;
};

Result<OwnPart> own_part_of(const cuda::MappingDriver& driver, int ordinal,
                            const Mapping& mapping) {
  auto object = cuda::OwnObject::mapped_at(driver, mapping.begin);
  if (!object.ok())
    return refused(
        "other processes can have memory of cudaMalloc, cuMemCreate and ncclMemAlloc only");
  const auto properties = object->properties();
  TUTTI_TRY(properties);
  if (properties->location != cuda::MemoryLocation{cuda::kLocationDevice, ordinal})
    return refused("other processes can have memory of the rank's own device only");
  const int types = properties->handle_types & (cuda::kByDescriptor | cuda::kByFabric);
  if (types == 0)
    return refused(
        "other processes can have memory of cuMemCreate only where it was made with a handle type "
        "(CUmemAllocationProp::requestedHandleTypes) of descriptors or of a fabric");
  return OwnPart{*std::move(object), mapping.bytes, types};
}

// Of these objects in this order; while they are held, no others are called the same.
std::uint64_t mixed_id(std::uint64_t id, cuda::MemoryObject object) {
  id = (id ^ object) * 0x9E3779B97F4A7C15U;
  return id ^ id >> 29;
}

// ---- A peer's side ----

class CudaForeignParts final : public ForeignParts {
 public:
  CudaForeignParts(const cuda::MappingDriver& driver, int ordinal, std::string device_name,
                   cuda::MappedRange range)
      : driver_(driver),
        ordinal_(ordinal),
        device_name_(std::move(device_name)),
        range_(std::move(range)) {}
  ~CudaForeignParts() override {
    const cuda::RelaxedCapture relaxed(*driver_.driver);
    range_ = cuda::MappedRange();
  }

  std::byte* begin() const override { return range_.begin(); }

  Status add(const PartKey& key, std::size_t bytes) override {
    const cuda::RelaxedCapture relaxed(*driver_.driver);
    const auto object = import(key);
    if (!object.ok()) return cannot(object.status());
    const Status mapped = range_.append(*object, bytes);
    return mapped.ok() ? mapped : cannot(mapped);
  }
  Status open() override {
    const cuda::RelaxedCapture relaxed(*driver_.driver);
    const std::array<int, 1> own{ordinal_};
    const Status opened = range_.open_to(own);
    return opened.ok() ? opened : cannot(opened);
  }

 private:
  Result<cuda::OwnObject> import(const PartKey& key) const {
    if (key.descriptor.open()) {
      void* const number = reinterpret_cast<void*>(  // NOLINT(*-int-to-ptr)
          static_cast<std::intptr_t>(key.descriptor.number()));
      return cuda::OwnObject::import(driver_, number, cuda::kByDescriptor);
    }
    cuda::FabricHandle handle = {};
    std::memcpy(&handle, key.handle.data(), sizeof handle);
    return cuda::OwnObject::import(driver_, &handle, cuda::kByFabric);
  }
  Status cannot(const Status& why) const {
    return refused(fmt::format("{} cannot share the memory of another process's device: {}",
                               device_name_, why.message()));
  }

  const cuda::MappingDriver driver_;
  const int ordinal_;
  const std::string device_name_;
  cuda::MappedRange range_;
};

}  // namespace

Result<SharedMemory> share_cuda_parts(const cuda::MappingDriver& driver, int ordinal,
                                      const std::byte* memory, std::size_t bytes) {
  SharedMemory shared;
  std::vector<OwnPart> parts;
  Allocation& all = shared.allocation;
  const auto take = [&](const Mapping& mapping) {
    if (parts.size() == kRegionPartsMax) return refused("it has too many parts");
    auto part = own_part_of(driver, ordinal, mapping);
    TUTTI_TRY(part);
    if (parts.empty()) all.begin = mapping.begin;
    all.bytes += mapping.bytes;
    all.id = mixed_id(all.id, part->object.get());
    parts.push_back(*std::move(part));
    return Status();
  };
  TUTTI_TRY(for_mappings(driver, memory, bytes, take));
  shared.parts = std::make_shared<CudaSharedParts>(driver, std::move(parts));
  return shared;
}

Result<std::unique_ptr<ForeignParts>> reserve_cuda_parts(const cuda::MappingDriver& driver,
                                                         int ordinal,
                                                         const std::string& device_name,
                                                         std::size_t bytes) {
  auto range = cuda::MappedRange::reserve(driver, bytes);
  if (!range.ok()) return refused(range.status().message());
  return std::unique_ptr<ForeignParts>(
      std::make_unique<CudaForeignParts>(driver, ordinal, device_name, *std::move(range)));
}

bool are_parts_open_to(const cuda::MappingDriver& driver, const std::byte* memory,
                       std::size_t bytes, const std::set<int>& ordinals) {
  const auto look = [&](const Mapping& mapping) {
    TUTTI_TRY(cuda::OwnObject::mapped_at(driver, mapping.begin).status());
    for (const int ordinal : ordinals) {
      const cuda::MemoryLocation location{cuda::kLocationDevice, ordinal};
      unsigned long long flags = 0;
      TUTTI_TRY(
          driver.check(driver.functions->cuMemGetAccess(
                           &flags, &location, reinterpret_cast<cuda::DevicePointer>(mapping.begin)),
                       "cuMemGetAccess"));
      if (flags != cuda::kAccessBoth) return refused("it is closed to a device");
    }
    return Status();
  };
  return for_mappings(driver, memory, bytes, look).ok();
}

}  // namespace tutti::runtime::gpu
