// driver_kernels.cc: the stand-in's libcuda.so.1 (a test kit that is NOT CUDA): what devices can
// do, peers, modules, and launches of the kernels that it knows, which are Tutti's. An image is
// what a test takes for one, and nobody looks into it.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "kit/cuda_stand_in/calls.hpp"
#include "kit/cuda_stand_in/kernels.hpp"
#include "kit/cuda_stand_in/stand_in.hpp"
#include "runtime/gpu/kernel_image.hpp"
#include "transport/cuda/launch.hpp"
#include "transport/cuda/mapping.hpp"

struct CUfunc_st {
  CUmod_st* module = nullptr;
  std::optional<tutti::DataType> reduces;  // none: it only moves bytes
  bool exchanges = false;                  // the kernel of transfers
};

struct CUmod_st {
  CUctx_st* context = nullptr;
  std::map<std::string, CUfunc_st> functions;
};

namespace {

using namespace stand_in;

constexpr Code kInvalidHandle = 400;
constexpr Code kNoSuchDevice = 101;
constexpr Code kInvalidContext = 201;
constexpr int kRegisters = 90;  // of a thread, of every kernel

// What has been loaded, and which devices reach which.
struct Loaded {
  std::mutex mutex;
  std::map<Module, std::unique_ptr<CUmod_st>> modules;
  std::set<std::pair<Context, Context>> peers;

  // Requires  the lock.
  bool knows(Function function) const {
    for (const auto& [handle, module] : modules)
      for (const auto& [name, known] : module->functions)
        if (&known == function) return true;
    return false;
  }
};

Loaded& loaded() {
  static auto& all = *new Loaded;
  return all;
}

std::map<std::string, CUfunc_st> all_functions(Module module) {
  namespace gpu = tutti::runtime::gpu;
  std::map<std::string, CUfunc_st> functions;
  functions[gpu::byte_kernel_name()] = {module, std::nullopt};
  functions[gpu::exchange_kernel_name()] = {module, std::nullopt, true};
  for (const tutti::DataType type : tutti::kAllDataTypes)
    functions[gpu::kernel_name(type)] = {module, type};
  return functions;
}

// What network cards may do, by CUDA_STAND_IN_RDMA: nothing without it; "flush": what they write
// is to be flushed; "ordered": it is not; "unordered": it would have to be, and cannot.
enum class Rdma { none, flushed, ordered, unordered };

Rdma rdma() {
  const char* const text = std::getenv("CUDA_STAND_IN_RDMA");
  const std::string word = text == nullptr ? "" : text;
  return word == "flush"       ? Rdma::flushed
         : word == "ordered"   ? Rdma::ordered
         : word == "unordered" ? Rdma::unordered
                               : Rdma::none;
}

std::atomic<std::size_t>& flushes() {
  static std::atomic<std::size_t> all{0};
  return all;
}

bool is_set(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && std::atoi(text) != 0;
}

// As CUDA has it, a device is no peer of itself.
bool are_peers(Device device, Device peer) {
  return device != peer && !is_set("CUDA_STAND_IN_NO_PEERS");
}

// Our kernels use one dimension, and two or three arguments.
Code check_launch(Function function, const unsigned (&blocks)[3], const unsigned (&threads)[3],
                  Stream stream, void** arguments, void** extra) {
  const Loaded& all = loaded();
  if (!all.knows(function)) return kInvalidHandle;
  if (blocks[0] == 0 || threads[0] == 0 || blocks[1] != 1 || blocks[2] != 1 || threads[1] != 1 ||
      threads[2] != 1)
    return kInvalidValue;
  if (threads[0] > static_cast<unsigned>(kThreadsPerBlock)) return 701;
  if (arguments == nullptr || extra != nullptr) return kInvalidValue;
  const Context context = Streams::instance().context_of(stream);
  return context == function->module->context ? kSuccess : kInvalidHandle;
}

}  // namespace

std::size_t stand_in::flush_count() { return flushes(); }

std::size_t stand_in::module_count() {
  const std::lock_guard lock(loaded().mutex);
  return loaded().modules.size();
}

#pragma GCC visibility push(default)
extern "C" {

// Those that Tutti asks for, and no others.
Code cuDeviceGetAttribute(int* value, int attribute, Device device) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (!is_device(device)) return kNoSuchDevice;
  switch (attribute) {
    case kDeviceMajor:
      *value = 9;
      break;
    case kDeviceMultiprocessors:
      *value = kMultiprocessors;
      break;
    case kDeviceRdma:
      *value = rdma() != Rdma::none;
      break;
    case kDeviceRdmaFlushOptions:
      *value = rdma() == Rdma::flushed ? kRdmaFlushByHost : 0;
      break;
    case kDeviceMapsMemory:
      *value = !is_set("CUDA_STAND_IN_NO_MAPPING");
      break;
    case kDeviceMapsForCards:
      *value = rdma() != Rdma::none;
      break;
    case kDeviceHasFabric:
      *value = is_set("CUDA_STAND_IN_FABRIC");
      break;
    case kDeviceRdmaWritesOrdering:
      *value = rdma() == Rdma::ordered ? kRdmaOrderedForOwner : 0;
      break;
    default:
      *value = 0;
  }
  return kSuccess;
}

// Only its number is of use: nothing that is written here ever waits to be seen.
Code cuFlushGPUDirectRDMAWrites(int target, int scope) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (current_context() == nullptr) return kInvalidContext;
  if (target != kRdmaFlushCurrentContext || scope != kRdmaFlushToOwner) return kInvalidValue;
  if (rdma() != Rdma::flushed) return kNotSupported;
  ++flushes();
  return kSuccess;
}

Code cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (!is_device(device) || !is_device(peer)) return kNoSuchDevice;
  *can = are_peers(device, peer) ? 1 : 0;
  return kSuccess;
}

Code cuCtxEnablePeerAccess(Context peer, unsigned flags) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  if (flags != 0) return kInvalidValue;
  if (peer == nullptr || peer == current_context()) return 201;
  if (!are_peers(current_context()->ordinal, peer->ordinal)) return 217;
  const std::lock_guard lock(loaded().mutex);
  const bool is_new = loaded().peers.insert({current_context(), peer}).second;
  return is_new ? kSuccess : kPeerAccessAlreadyEnabled;
}

Code cuModuleLoadData(Module* module, const void* image) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  if (image == nullptr) return kInvalidValue;
  if (*static_cast<const char*>(image) == 0) return 200;
  auto made = std::make_unique<CUmod_st>();
  made->context = current_context();
  made->functions = all_functions(made.get());
  *module = made.get();
  const std::lock_guard lock(loaded().mutex);
  loaded().modules[*module] = std::move(made);
  return kSuccess;
}

Code cuModuleUnload(Module module) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  const std::lock_guard lock(loaded().mutex);
  return loaded().modules.erase(module) == 1 ? kSuccess : kInvalidHandle;
}

Code cuModuleGetFunction(Function* function, Module module, const char* name) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const std::lock_guard lock(loaded().mutex);
  const auto found = loaded().modules.find(module);
  if (found == loaded().modules.end()) return kInvalidHandle;
  const auto named = found->second->functions.find(name);
  if (named == found->second->functions.end()) return 500;
  *function = &named->second;
  return kSuccess;
}

Code cuFuncGetAttribute(int* value, int attribute, Function function) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const std::lock_guard lock(loaded().mutex);
  if (!loaded().knows(function)) return kInvalidHandle;
  *value = attribute == kFunctionRegisters ? kRegisters : 0;
  return kSuccess;
}

Code cuFuncLoad(Function function) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  const std::lock_guard lock(loaded().mutex);
  return loaded().knows(function) ? kSuccess : kInvalidHandle;
}

Code cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function function, int threads,
                                                 std::size_t) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const std::lock_guard lock(loaded().mutex);
  if (!loaded().knows(function)) return kInvalidHandle;
  if (threads < 1) return kInvalidValue;
  *blocks = blocks_that_fit(threads);
  return kSuccess;
}

Code cuLaunchKernel(Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                    unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned,
                    Stream stream, void** arguments, void** extra) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (current_context() == nullptr) return 201;
  const Stream resolved = resolve(stream);
  KernelLaunch launch;
  bool exchanges = false;
  {
    const std::lock_guard lock(loaded().mutex);
    if (const Code code =
            check_launch(function, {blocks_x, blocks_y, blocks_z},
                         {threads_x, threads_y, threads_z}, resolved, arguments, extra);
        code != kSuccess)
      return code;
    launch.ordinal = function->module->context->ordinal;
    launch.reduces = function->reduces;
    exchanges = function->exchanges;
  }
  launch.blocks = blocks_x;
  launch.threads = threads_x;
  std::memcpy(&launch.world, arguments[0], sizeof launch.world);
  if (exchanges) {
    std::memcpy(&launch.exchange, arguments[1], sizeof launch.exchange);
  } else {
    std::memcpy(&launch.program, arguments[1], sizeof launch.program);
    std::memcpy(&launch.call, arguments[2], sizeof launch.call);
  }
  return Streams::instance().enqueue(resolved, [launch] { run_kernel(launch); });
}

}  // extern "C"
#pragma GCC visibility pop
