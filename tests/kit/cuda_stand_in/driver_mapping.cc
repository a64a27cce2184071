// driver_mapping.cc: the stand-in's libcuda.so.1 (a test kit that is NOT CUDA): memory that is made
// without addresses, mapped, and handed to other processes.
//
// It is as strict as CUDA's words are: what was not asked for when an object was made cannot be
// exported, sizes are whole granules, and what is mapped is open to nobody at first.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

#include "kit/cuda_stand_in/calls.hpp"
#include "kit/cuda_stand_in/memory.hpp"
#include "kit/cuda_stand_in/stand_in.hpp"
#include "transport/cuda/mapping.hpp"

extern "C" {
int cuDeviceCanAccessPeer(int* can, int device, int peer);
int cuDeviceGetAttribute(int* value, int attribute, int device);
}

namespace {

using namespace stand_in;

constexpr Code kNoSuchDevice = 101;
constexpr std::size_t kGranule = 64 << 10;

// A handle for other processes of this machine, wherever they are.
struct FabricName {
  char tag[16] = "CUDA stand-in";
  int process = 0;
  int file = -1;
};
static_assert(std::is_trivially_copyable_v<FabricName> &&
              sizeof(FabricName) <= sizeof(FabricHandle));

// What makes or changes mappings may disturb a capture. Unlike other calls of the kind these need
// no context.
Code refused_to_change(const char* function) {
  if (const Code code = refused(function); code != kSuccess) return code;
  return Streams::instance().unsafe_call(capture_mode());
}

bool has_fabric(int ordinal) {
  int value = 0;
  return cuDeviceGetAttribute(&value, kDeviceHasFabric, ordinal) == kSuccess && value != 0;
}

bool is_whole(std::size_t bytes) { return bytes > 0 && bytes % kGranule == 0; }

Code check_properties(const ObjectProperties& properties) {
  if (properties.type != kObjectPinned || properties.location.type != kLocationDevice)
    return kInvalidValue;
  if (!is_device(properties.location.id)) return kNoSuchDevice;
  if ((properties.handle_types & ~(kByDescriptor | kByFabric)) != 0) return kInvalidValue;
  if ((properties.handle_types & kByFabric) != 0 && !has_fabric(properties.location.id))
    return kNotSupported;
  return kSuccess;
}

bool may_reach(int ordinal, int owner) {
  int can = ordinal == owner;
  if (can == 0) cuDeviceCanAccessPeer(&can, ordinal, owner);
  return can != 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Code cuMemGetAllocationGranularity(std::size_t* bytes, const ObjectProperties* properties, int) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  *bytes = kGranule;
  return check_properties(*properties);
}

Code cuMemAddressReserve(DevicePointer* begin, std::size_t bytes, std::size_t, DevicePointer,
                         unsigned long long flags) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (!is_whole(bytes) || flags != 0) return kInvalidValue;
  *begin = Memory::instance().reserve(bytes);
  return *begin != 0 ? kSuccess : kOutOfMemory;
}

Code cuMemAddressFree(DevicePointer begin, std::size_t bytes) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Memory::instance().unreserve(begin, bytes) ? kSuccess : kInvalidValue;
}

Code cuMemCreate(MemoryObject* object, std::size_t bytes, const ObjectProperties* properties,
                 unsigned long long flags) {
  if (const Code code = refused_to_change(__func__); code != kSuccess) return code;
  if (!is_whole(bytes) || flags != 0) return kInvalidValue;
  if (const Code code = check_properties(*properties); code != kSuccess) return code;
  *object =
      Memory::instance().create_object(properties->location.id, bytes, properties->handle_types);
  return *object != 0 ? kSuccess : kOutOfMemory;
}

Code cuMemRelease(MemoryObject object) {
  if (const Code code = refused_to_change(__func__); code != kSuccess) return code;
  return Memory::instance().release_object(object) ? kSuccess : kInvalidValue;
}

Code cuMemMap(DevicePointer where, std::size_t bytes, std::size_t offset, MemoryObject object,
              unsigned long long flags) {
  if (const Code code = refused_to_change(__func__); code != kSuccess) return code;
  if (!is_whole(bytes) || offset != 0 || flags != 0) return kInvalidValue;
  return Memory::instance().map(where, bytes, object) ? kSuccess : kInvalidValue;
}

Code cuMemUnmap(DevicePointer where, std::size_t bytes) {
  if (const Code code = refused_to_change(__func__); code != kSuccess) return code;
  return Memory::instance().unmap(where, bytes) ? kSuccess : kInvalidValue;
}

Code cuMemSetAccess(DevicePointer where, std::size_t bytes, const MemoryAccess* access,
                    std::size_t count) {
  if (const Code code = refused_to_change(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find(where);
  if (!found || found->object == 0 || count == 0) return kInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    if (access[i].location.type != kLocationDevice) return kInvalidValue;
    const int ordinal = access[i].location.id;
    if (!is_device(ordinal) || !may_reach(ordinal, found->ordinal)) return kNoSuchDevice;
    if (!Memory::instance().set_access(where, bytes, ordinal, access[i].flags == kAccessBoth))
      return kInvalidValue;
  }
  return kSuccess;
}

Code cuMemGetAccess(unsigned long long* flags, const MemoryLocation* location,
                    DevicePointer where) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find(where);
  if (!found || found->object == 0 || !is_device(location->id)) return kInvalidValue;
  *flags = (found->open_to >> static_cast<unsigned>(location->id) & 1U) != 0 ? kAccessBoth : 0;
  return kSuccess;
}

Code cuMemRetainAllocationHandle(MemoryObject* object, void* where) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find(reinterpret_cast<std::uintptr_t>(where));
  if (!found || found->object == 0) return kInvalidValue;
  *object = found->object;
  return Memory::instance().retain_object(*object) ? kSuccess : kInvalidValue;
}

Code cuMemGetAllocationPropertiesFromHandle(ObjectProperties* properties, MemoryObject object) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find_object(object);
  if (!found) return kInvalidValue;
  *properties = {};
  properties->handle_types = found->handle_types;
  properties->location.id = found->ordinal;
  return kSuccess;
}

Code cuMemExportToShareableHandle(void* key, MemoryObject object, int type,
                                  unsigned long long flags) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find_object(object);
  if (!found || flags != 0 || (found->handle_types & type) == 0) return kInvalidValue;
  if (type == kByDescriptor) {
    const int number = fcntl(found->file, F_DUPFD_CLOEXEC, 0);
    std::memcpy(key, &number, sizeof number);
    return number >= 0 ? kSuccess : kOutOfMemory;
  }
  FabricName name;
  name.process = static_cast<int>(getpid());
  name.file = found->file;
  std::memset(key, 0, sizeof(FabricHandle));
  std::memcpy(key, &name, sizeof name);
  return kSuccess;
}

Code cuMemImportFromShareableHandle(MemoryObject* object, void* key, int type) {
  if (const Code code = refused_to_change(__func__); code != kSuccess) return code;
  if (type == kByDescriptor) {
    *object =
        Memory::instance().import_object(static_cast<int>(reinterpret_cast<std::intptr_t>(key)));
    return *object != 0 ? kSuccess : kInvalidValue;
  }
  FabricName name;
  std::memcpy(static_cast<void*>(&name), key, sizeof name);
  if (type != kByFabric || std::memcmp(name.tag, FabricName().tag, sizeof name.tag) != 0)
    return kInvalidValue;
  if (!has_fabric(0)) return kNotPermitted;
  const std::string path =
      "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  *object = file >= 0 ? Memory::instance().import_object(file) : 0;
  if (file >= 0) close(file);
  return *object != 0 ? kSuccess : kInvalidValue;
}

}  // extern "C"
#pragma GCC visibility pop
