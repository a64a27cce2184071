// driver_ipc.cc: part of the stand-in for CUDA, which is a test kit and NOT CUDA: memory of a
// device for other processes. A handle says whose memory it is, and under which number its owner
// has it.
#include <unistd.h>

#include <cstring>
#include <type_traits>

#include "kit/cuda_stand_in/calls.hpp"
#include "kit/cuda_stand_in/memory.hpp"
#include "transport/cuda/launch.hpp"

namespace {

using namespace stand_in;

constexpr Code kInvalidContext = 201;

struct Handle {
  int process = 0;
  int file = -1;
};
static_assert(std::is_trivially_copyable_v<Handle> && sizeof(Handle) <= sizeof(IpcHandle));

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Code cuIpcGetMemHandle(IpcHandle* handle, DevicePointer memory) {
  if (const Code code = refused("cuIpcGetMemHandle"); code != kSuccess) return code;
  const auto found = Memory::instance().find(memory);
  if (!found || found->kind != Kind::device || found->pooled || found->imported ||
      found->object != 0)
    return kInvalidValue;
  const Handle made{static_cast<int>(getpid()), found->file};
  *handle = {};
  std::memcpy(handle, &made, sizeof made);
  return kSuccess;
}

// As CUDA: not what the process has itself.
Code cuIpcOpenMemHandle_v2(DevicePointer* memory, IpcHandle handle, unsigned) {
  if (const Code code = refused("cuIpcOpenMemHandle_v2"); code != kSuccess) return code;
  const Context context = current_context();
  Handle asked;
  std::memcpy(static_cast<void*>(&asked), &handle, sizeof asked);
  if (context == nullptr || asked.process == getpid()) return kInvalidContext;
  *memory = Memory::instance().import_device(context, context->ordinal, asked.process, asked.file);
  return *memory != 0 ? kSuccess : kInvalidValue;
}

// As CUDA: when all is over that the device does for this process.
Code cuIpcCloseMemHandle(DevicePointer memory) {
  if (const Code code = refused("cuIpcCloseMemHandle"); code != kSuccess) return code;
  if (current_context() != nullptr)
    static_cast<void>(Streams::instance().synchronize(current_context()));
  const auto found = Memory::instance().find(memory);
  if (!found || !found->imported || found->begin != memory) return kInvalidValue;
  return Memory::instance().release(memory, Kind::device) ? kSuccess : kInvalidValue;
}

}  // extern "C"
#pragma GCC visibility pop
