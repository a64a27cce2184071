// kernels.hpp: part of the stand-in for CUDA, which is a test kit and NOT CUDA: Tutti's kernels on
// threads of the processor, and the room that they find on a device.
//
// A block has a few threads only, whatever it was launched with: the interpreter asks how many
// there are. Room is counted with those that it was launched with. A block that finds none waits
// until others leave, and the kernels launched after its own wait behind it, as on a device: so
// kernels that wait for each other and do not fit together hang here, too.
//
// Knows nothing of streams, modules or handles.
#pragma once

#include <cstddef>
#include <optional>

#include "runtime/gpu/device_exchange.hpp"
#include "runtime/gpu/device_program.hpp"
#include "runtime/gpu/device_world.hpp"
#include "tutti/types.hpp"

namespace stand_in {

// What a device has.
inline constexpr int kMultiprocessors = 16;
inline constexpr int kThreadsPerMultiprocessor = 1024;
inline constexpr int kBlocksPerMultiprocessor = 8;
inline constexpr int kThreadsPerBlock = 512;

// Blocks of so many threads that fit a multiprocessor at once.
int blocks_that_fit(int threads);

// A launch of a kernel, with copies of its arguments.
struct KernelLaunch {
  int ordinal = 0;                         // of the device
  std::optional<tutti::DataType> reduces;  // none: it only moves bytes
  unsigned blocks = 1;
  unsigned threads = 1;
  const tutti::runtime::gpu::DeviceWorld* world = nullptr;
  const tutti::runtime::gpu::ProgramHeader* program = nullptr;
  const tutti::runtime::gpu::DeviceCall* call = nullptr;
  const tutti::runtime::gpu::DeviceExchange* exchange = nullptr;  // instead of those two
};

// Runs it, unless the program ends. Blocking.
void run_kernel(const KernelLaunch& launch);

// Requires  that the program ends.
// Ensures   kernels that run leave soon: they are told what an abort would tell them.
void stop_kernels();

// Room for what is a small kernel on a device without looking like one, while it lives.
class SmallKernel {
 public:
  explicit SmallKernel(int ordinal);  // blocking
  SmallKernel(const SmallKernel&) = delete;
  SmallKernel& operator=(const SmallKernel&) = delete;
  ~SmallKernel();

 private:
  const int ordinal_;
};

std::size_t block_count();  // that are on a device now
std::size_t module_count();
std::size_t flush_count();

}  // namespace stand_in
