// The kernels: one for each element type that is reduced, one for programs that only move bytes,
// and one for what goes from one rank to another, which is bytes as well. The operation is decided
// at run time, once per chunk; the type is not, because what is done with elements is all that a
// pass consists of.
//
// Loaded as a module (kernel_image.hpp), so they have plain names. Launched with one block per
// channel, or as many as a launch of transfers says, all of them on the device at once.
#include "runtime/gpu/cuda_policy.cuh"
#include "runtime/gpu/exchange.hpp"
#include "runtime/gpu/interpret.hpp"
#include "runtime/gpu/kernel_image.hpp"

namespace tutti::runtime::gpu {

// What a block reads again and again and nobody changes is near it: each step follows some of these
// from one to the other, and a word from another rank takes what is cached away.
constexpr std::uint32_t kNearProgramBytes = 16 << 10;

// Words of the device into memory that the block shares. To be followed by a sync.
__device__ __forceinline__ void fetch(std::uint32_t* to, const void* from, std::uint32_t bytes) {
  for (std::uint32_t word = threadIdx.x; word < bytes / sizeof *to; word += blockDim.x)
    to[word] = static_cast<const std::uint32_t*>(from)[word];
}

template <class Format>
__device__ __forceinline__ void interpret(const DeviceWorld* world, const ProgramHeader* program,
                                          const DeviceCall* call) {
  __shared__ alignas(16) unsigned char memory[sizeof(BlockShared)];
  __shared__ alignas(16) std::uint32_t near_world[sizeof(DeviceWorld) / sizeof(std::uint32_t)];
  __shared__ alignas(16) std::uint32_t near_program[kNearProgramBytes / sizeof(std::uint32_t)];
  const bool fits = program->bytes <= sizeof near_program;
  fetch(near_world, world, sizeof near_world);
  if (fits) fetch(near_program, program, program->bytes);
  __syncthreads();
  CudaPolicy policy;
  Interpreter<CudaPolicy, Format> interpreter(
      policy, *reinterpret_cast<BlockShared*>(memory),
      *reinterpret_cast<const DeviceWorld*>(near_world),
      fits ? *reinterpret_cast<const ProgramHeader*>(near_program) : *program);
  interpreter.run(*call, blockIdx.x);
}

template <DataType kType>
__device__ __forceinline__ void interpret(const DeviceWorld* world, const ProgramHeader* program,
                                          const DeviceCall* call) {
  interpret<FormatOf<kType>>(world, program, call);
}

}  // namespace tutti::runtime::gpu

namespace gpu = tutti::runtime::gpu;
using tutti::DataType;

// Which leaves 128 registers to each.
constexpr int kThreadsMax = gpu::kKernelThreadsMax;

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_bytes(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                    const gpu::DeviceCall* call) {
  gpu::interpret<gpu::NoFormat>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_int8(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                   const gpu::DeviceCall* call) {
  gpu::interpret<DataType::int8>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_uint8(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                    const gpu::DeviceCall* call) {
  gpu::interpret<DataType::uint8>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_int32(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                    const gpu::DeviceCall* call) {
  gpu::interpret<DataType::int32>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_uint32(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                     const gpu::DeviceCall* call) {
  gpu::interpret<DataType::uint32>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_int64(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                    const gpu::DeviceCall* call) {
  gpu::interpret<DataType::int64>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_uint64(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                     const gpu::DeviceCall* call) {
  gpu::interpret<DataType::uint64>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_float16(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                      const gpu::DeviceCall* call) {
  gpu::interpret<DataType::float16>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_float32(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                      const gpu::DeviceCall* call) {
  gpu::interpret<DataType::float32>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_float64(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                      const gpu::DeviceCall* call) {
  gpu::interpret<DataType::float64>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_bfloat16(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                       const gpu::DeviceCall* call) {
  gpu::interpret<DataType::bfloat16>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_float8_e4m3(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                          const gpu::DeviceCall* call) {
  gpu::interpret<DataType::float8_e4m3>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_float8_e5m2(const gpu::DeviceWorld* world, const gpu::ProgramHeader* program,
                          const gpu::DeviceCall* call) {
  gpu::interpret<DataType::float8_e5m2>(world, program, call);
}

extern "C" __global__ void __launch_bounds__(kThreadsMax, 1)
    tutti_gpu_exchange(const gpu::DeviceWorld* world, const gpu::DeviceExchange* exchange) {
  __shared__ alignas(16) unsigned char memory[sizeof(gpu::ExchangeShared)];
  gpu::CudaPolicy policy;
  gpu::Exchange<gpu::CudaPolicy>(policy, *reinterpret_cast<gpu::ExchangeShared*>(memory), *world,
                                 *exchange, blockIdx.x)
      .run();
}
