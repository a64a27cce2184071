// cuda_device.cc: see cuda_device.hpp. Every call makes the device's context the thread's own for
// its time, so that callers need not care which one is current.
#include "runtime/gpu/host/cuda_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/try.hpp"
#include "runtime/gpu/host/cuda_network.hpp"
#include "runtime/gpu/host/cuda_sharing.hpp"
#include "runtime/gpu/kernel_image.hpp"
#include "transport/cuda/driver.hpp"
#include "transport/cuda/launch.hpp"

namespace tutti::runtime::gpu {
namespace {

namespace cuda = transport::cuda;

// One for each element type, after the one that only moves bytes and that of transfers.
constexpr std::size_t kTypedKernels = 2;
constexpr std::size_t kKernelCount = std::size(kAllDataTypes) + kTypedKernels;

std::size_t kernel_index(const Launch& launch) {
  if (launch.exchange != nullptr) return 1;
  return launch.reduces ? static_cast<std::size_t>(*launch.reduces) + kTypedKernels : 0;
}

const char* kernel_name_at(std::size_t index) {
  if (index >= kTypedKernels) return kernel_name(kAllDataTypes[index - kTypedKernels]);
  return index == 1 ? exchange_kernel_name() : byte_kernel_name();
}

constexpr std::size_t kStagingBytes = 1 << 20;
// Streams that surely do not wait for each other, unless the environment says otherwise.
constexpr int kConnections = 8;
constexpr int kConnectionsMax = 32;
constexpr const char* kConnectionsName = "CUDA_DEVICE_MAX_CONNECTIONS";

cuda::DevicePointer as_pointer(const void* memory) {
  return reinterpret_cast<cuda::DevicePointer>(memory);
}
cuda::Stream as_stream(StreamHandle stream) { return static_cast<cuda::Stream>(stream); }
cuda::Event as_event(EventHandle event) { return static_cast<cuda::Event>(event); }

class CudaDevice final : public Device {
 public:
  CudaDevice(const cuda::Driver& driver, const cuda::LaunchFunctions& launch, int ordinal)
      : driver_(driver), launch_(launch), ordinal_(ordinal), sharing_(driver, launch_, ordinal) {}
  ~CudaDevice() override;

  Status start(std::span<const std::byte> image);

  int id() const override { return ordinal_; }
  std::string name() const override { return name_; }

  Result<std::byte*> allocate(std::size_t bytes) override;
  void deallocate(std::byte* memory) override;
  Result<std::byte*> allocate_shared(std::size_t bytes) override;
  void deallocate_shared(std::byte* memory) override;
  Status copy_in(void* to, const void* from, std::size_t bytes) override;
  Status copy_out(void* to, const void* from, std::size_t bytes) override;
  Status zero(void* at, std::size_t bytes) override;
  Status reach(Device& peer) override;
  bool is_reachable(const void* memory, std::size_t bytes) const override;
  Result<SharedMemory> share_memory(const std::byte* memory, std::size_t bytes) override;
  Result<std::unique_ptr<ForeignParts>> reserve_parts(std::size_t bytes) override;
  Result<MemoryHandle> export_memory(const std::byte* memory) override;
  Result<std::byte*> import_memory(const MemoryHandle& handle) override;
  void forget_memory(std::byte* imported) override;
  NetworkAccess network_access() override;
  Status flush_network_writes() override;
  Status within(const std::function<Status()>& work) override;
  Status finish() override;

  Result<int> blocks_at_once(int threads) override;
  int streams_at_once() const override;
  Status launch(const Launch& launch, StreamHandle stream) override;

  Result<StreamHandle> make_stream() override;
  void destroy_stream(StreamHandle stream) override;
  Status synchronize(StreamHandle stream) override;
  Result<bool> reached(StreamHandle stream) override;
  Status copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) override;

  Result<EventHandle> make_event() override;
  void destroy_event(EventHandle event) override;
  Status record(EventHandle event, StreamHandle stream) override;
  Result<bool> reached_event(EventHandle event) override;
  Status wait_event(StreamHandle stream, EventHandle event) override;
  Result<double> elapsed_us(EventHandle from, EventHandle to) override;

  Result<std::uint64_t> capture_of(StreamHandle stream) override;
  Status begin_capture(StreamHandle stream) override;
  Result<GraphHandle> end_capture(StreamHandle stream) override;
  Status replay(GraphHandle graph, StreamHandle stream) override;
  void destroy_graph(GraphHandle graph) override;

 private:
  Result<cuda::ContextScope> enter() const { return cuda::ContextScope::enter(driver_, context_); }
  Status check(cuda::Code code, const char* what) const { return driver_.check(code, what); }
  Status load_kernels(std::span<const std::byte> image);
  Result<int> attribute(int which) const;
  Status upload(cuda::GraphInstance instance);
  Status stage(void* to, const void* from, std::size_t bytes, bool in);
  Status wait_for_staging();

  const cuda::Driver& driver_;
  const cuda::LaunchFunctions launch_;
  const int ordinal_;
  CudaSharing sharing_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
  std::string name_;
  cuda::Module module_ = nullptr;
  std::array<cuda::Function, kKernelCount> kernels_ = {};

  std::mutex mutex_;  // of what stands below
  cuda::Stream own_stream_ = nullptr;
  cuda::PinnedMemory staging_;
  bool staging_is_used_ = false;  // by what the own stream has to do
  std::vector<cuda::PinnedMemory> shared_;
};

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  {
    const auto scope = enter();
    if (scope.ok()) {
      const cuda::RelaxedCapture relaxed(driver_);
      if (own_stream_ != nullptr) driver_.functions().cuStreamDestroy_v2(own_stream_);
      if (module_ != nullptr) launch_.cuModuleUnload(module_);
      staging_ = cuda::PinnedMemory();
      shared_.clear();
    }
  }
  static_cast<void>(driver_.release_primary(device_));
}

Result<int> CudaDevice::attribute(int which) const {
  int value = 0;
  TUTTI_TRY(check(launch_.cuDeviceGetAttribute(&value, which, device_), "cuDeviceGetAttribute"));
  return value;
}

// Also while the program captures, at its first call on a device.
Status CudaDevice::start(std::span<const std::byte> image) {
  const auto count = driver_.device_count();
  TUTTI_TRY(count);
  if (ordinal_ < 0 || ordinal_ >= *count)
    return Status(StatusCode::unsupported,
                  fmt::format("there is no CUDA device {}: the driver shows {}, numbered from 0; "
                              "CUDA_VISIBLE_DEVICES may hide some",
                              ordinal_, *count));
  const auto device = driver_.device(ordinal_);
  TUTTI_TRY(device);
  device_ = *device;
  const auto name = driver_.device_name(device_);
  TUTTI_TRY(name);
  name_ = fmt::format("{} (device {})", *name, ordinal_);
  const auto context = driver_.retain_primary(device_);
  TUTTI_TRY(context);
  context_ = *context;
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  TUTTI_TRY(check(driver_.functions().cuStreamCreate(&own_stream_, cuda::kStreamNonBlocking),
                  "cuStreamCreate"));
  auto staging = cuda::PinnedMemory::allocate(driver_, kStagingBytes);
  TUTTI_TRY(staging);
  staging_ = *std::move(staging);
  sharing_.start(device_, name_);
  return load_kernels(image);
}

Status CudaDevice::load_kernels(std::span<const std::byte> image) {
  if (image.empty())
    return Status(StatusCode::unsupported,
                  "this build of Tutti has no kernels: there was no nvcc when it was built");
  const Status loaded = check(launch_.cuModuleLoadData(&module_, image.data()), "cuModuleLoadData");
  if (!loaded.ok()) {
    const auto major = attribute(cuda::kDeviceMajor);
    const auto minor = attribute(cuda::kDeviceMinor);
    return Status(
        StatusCode::unsupported,
        fmt::format("{}, of compute capability {}.{}, does not take the kernels of this "
                    "build: {}",
                    name_, major.ok() ? *major : 0, minor.ok() ? *minor : 0, loaded.message()));
  }
  for (std::size_t i = 0; i < kKernelCount; ++i) {
    const char* const name = kernel_name_at(i);
    TUTTI_TRY(check(launch_.cuModuleGetFunction(&kernels_[i], module_, name), name));
    int registers = 0;
    TUTTI_TRY(
        launch_.cuFuncLoad != nullptr
            ? check(launch_.cuFuncLoad(kernels_[i]), "cuFuncLoad")
            : check(launch_.cuFuncGetAttribute(&registers, cuda::kFunctionRegisters, kernels_[i]),
                    "cuFuncGetAttribute"));
  }
  return Status();
}

// ---- Memory ----

Result<std::byte*> CudaDevice::allocate(std::size_t bytes) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  const auto memory = driver_.allocate(std::max<std::size_t>(bytes, 1));
  if (!memory.ok())
    return memory.status().with_context(fmt::format("{} bytes of memory of {}", bytes, name_));
  return static_cast<std::byte*>(*memory);
}

void CudaDevice::deallocate(std::byte* memory) {
  const auto scope = enter();
  if (!scope.ok()) return;
  const cuda::RelaxedCapture relaxed(driver_);
  static_cast<void>(driver_.deallocate(memory));
}

Result<std::byte*> CudaDevice::allocate_shared(std::size_t bytes) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  auto memory = cuda::PinnedMemory::allocate(driver_, bytes);
  TUTTI_TRY(memory);
  std::memset(memory->data(), 0, bytes);
  const std::lock_guard lock(mutex_);
  shared_.push_back(*std::move(memory));
  return shared_.back().data();
}

void CudaDevice::deallocate_shared(std::byte* memory) {
  const auto scope = enter();
  if (!scope.ok()) return;
  const cuda::RelaxedCapture relaxed(driver_);
  cuda::PinnedMemory freed;  // without the lock: for that the driver may wait for kernels
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(shared_.begin(), shared_.end(),
                   [&](const cuda::PinnedMemory& shared) { return shared.data() == memory; });
  if (found == shared_.end()) return;
  freed = std::move(*found);
  shared_.erase(found);
}

// Nothing to wait for, unless a wait has failed: its copy may be under way still.
Status CudaDevice::wait_for_staging() {
  if (!staging_is_used_) return Status();
  TUTTI_TRY(driver_.synchronize(own_stream_));
  staging_is_used_ = false;
  return Status();
}

// Through page-locked memory on a stream of its own: a copy from other memory may wait for the
// device, and on it for a kernel that waits for what comes after this copy.
Status CudaDevice::stage(void* to, const void* from, std::size_t bytes, bool in) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  const std::lock_guard lock(mutex_);
  TUTTI_TRY(wait_for_staging());
  for (std::size_t at = 0; at < bytes; at += kStagingBytes) {
    const std::size_t part = std::min(kStagingBytes, bytes - at);
    auto* const target = static_cast<std::byte*>(to) + at;
    const auto* const source = static_cast<const std::byte*>(from) + at;
    if (in) std::memcpy(staging_.data(), source, part);
    staging_is_used_ = true;
    TUTTI_TRY(in ? driver_.copy_to_device(target, staging_.data(), part, own_stream_)
                 : driver_.copy_to_host(staging_.data(), source, part, own_stream_));
    TUTTI_TRY(wait_for_staging());
    if (!in) std::memcpy(target, staging_.data(), part);
  }
  return Status();
}

Status CudaDevice::copy_in(void* to, const void* from, std::size_t bytes) {
  return stage(to, from, bytes, true);
}

Status CudaDevice::copy_out(void* to, const void* from, std::size_t bytes) {
  return stage(to, from, bytes, false);
}

// By copies, too: what fills memory is a kernel, which waits where others leave it no room, and
// then nobody could tell those of an abort meanwhile.
Status CudaDevice::zero(void* at, std::size_t bytes) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  const std::lock_guard lock(mutex_);
  TUTTI_TRY(wait_for_staging());
  std::memset(staging_.data(), 0, std::min(kStagingBytes, bytes));
  for (std::size_t done = 0; done < bytes; done += kStagingBytes) {
    staging_is_used_ = true;
    TUTTI_TRY(driver_.copy_to_device(static_cast<std::byte*>(at) + done, staging_.data(),
                                     std::min(kStagingBytes, bytes - done), own_stream_));
    TUTTI_TRY(wait_for_staging());
  }
  return Status();
}

Status CudaDevice::reach(Device& peer) {
  if (peer.id() == ordinal_) return Status();
  auto* const other = dynamic_cast<CudaDevice*>(&peer);
  int can = 0;
  if (other != nullptr)
    TUTTI_TRY(check(launch_.cuDeviceCanAccessPeer(&can, device_, other->device_),
                    "cuDeviceCanAccessPeer"));
  if (can == 0)
    return Status(StatusCode::unsupported,
                  fmt::format("{} cannot load and store the memory of {}", name_, peer.name()));
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  const cuda::Code code = launch_.cuCtxEnablePeerAccess(other->context_, 0);
  if (code != cuda::kPeerAccessAlreadyEnabled) TUTTI_TRY(check(code, "cuCtxEnablePeerAccess"));
  other->sharing_.note_reached_by(ordinal_);
  return Status();
}

bool CudaDevice::is_reachable(const void* memory, std::size_t bytes) const {
  const auto scope = enter();
  const cuda::RelaxedCapture relaxed(driver_);
  return scope.ok() && sharing_.is_reachable(memory, bytes);
}

Result<SharedMemory> CudaDevice::share_memory(const std::byte* memory, std::size_t bytes) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  return sharing_.share_memory(memory, bytes);
}

Result<std::unique_ptr<ForeignParts>> CudaDevice::reserve_parts(std::size_t bytes) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  return sharing_.reserve_parts(bytes);
}

Result<MemoryHandle> CudaDevice::export_memory(const std::byte* memory) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  return sharing_.export_memory(memory);
}

Result<std::byte*> CudaDevice::import_memory(const MemoryHandle& handle) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  return sharing_.import_memory(handle);
}

void CudaDevice::forget_memory(std::byte* imported) {
  const auto scope = enter();
  if (!scope.ok()) return;
  const cuda::RelaxedCapture relaxed(driver_);
  sharing_.forget_memory(imported);
}

NetworkAccess CudaDevice::network_access() { return network_access_of(launch_, device_, name_); }

Status CudaDevice::flush_network_writes() {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::Code code = flush_network_writes_of(launch_, device_);
  return check(code, "cuFlushGPUDirectRDMAWrites");
}

Status CudaDevice::within(const std::function<Status()>& work) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  return work();
}

Status CudaDevice::finish() {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  return check(launch_.cuCtxSynchronize(), "cuCtxSynchronize");
}

// ---- Kernels ----

Result<int> CudaDevice::blocks_at_once(int threads) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const auto processors = attribute(cuda::kDeviceMultiprocessors);
  TUTTI_TRY(processors);
  int least = INT_MAX;
  for (const cuda::Function kernel : kernels_) {
    int blocks = 0;
    TUTTI_TRY(
        check(launch_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0),
              "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
    least = std::min(least, blocks);
  }
  return least * *processors;
}

// All but the own one, which tells kernels of calls and aborts and must not wait for them.
int CudaDevice::streams_at_once() const {
  const char* const text = std::getenv(kConnectionsName);
  const int wanted = text == nullptr ? 0 : std::atoi(text);
  return std::max(1, (wanted > 0 ? std::min(wanted, kConnectionsMax) : kConnections) - 1);
}

Status CudaDevice::launch(const Launch& launch, StreamHandle stream) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  Launch told = launch;
  std::array<void*, 3> arguments{&told.world, &told.program, &told.call};
  if (told.exchange != nullptr) arguments = {&told.world, &told.exchange, nullptr};
  return check(
      launch_.cuLaunchKernel(kernels_[kernel_index(launch)], launch.blocks, 1, 1, launch.threads, 1,
                             1, 0, as_stream(stream), arguments.data(), nullptr),
      "cuLaunchKernel");
}

// ---- Streams ----

Result<StreamHandle> CudaDevice::make_stream() {
  const auto scope = enter();
  TUTTI_TRY(scope);
  cuda::Stream stream = nullptr;
  TUTTI_TRY(check(driver_.functions().cuStreamCreate(&stream, cuda::kStreamNonBlocking),
                  "cuStreamCreate"));
  return StreamHandle{stream};
}

void CudaDevice::destroy_stream(StreamHandle stream) {
  const auto scope = enter();
  if (scope.ok()) driver_.functions().cuStreamDestroy_v2(as_stream(stream));
}

Status CudaDevice::synchronize(StreamHandle stream) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  return driver_.synchronize(as_stream(stream));
}

Result<bool> CudaDevice::reached(StreamHandle stream) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  return driver_.reached(as_stream(stream));
}

Status CudaDevice::copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  return check(launch_.cuMemcpyAsync(as_pointer(to), as_pointer(from), bytes, as_stream(stream)),
               "cuMemcpyAsync");
}

Result<EventHandle> CudaDevice::make_event() {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  cuda::Event event = nullptr;
  TUTTI_TRY(check(driver_.functions().cuEventCreate(&event, 0), "cuEventCreate"));
  return EventHandle{event};
}

void CudaDevice::destroy_event(EventHandle event) {
  const auto scope = enter();
  if (scope.ok()) driver_.functions().cuEventDestroy_v2(as_event(event));
}

Status CudaDevice::record(EventHandle event, StreamHandle stream) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  return driver_.record(as_event(event), as_stream(stream));
}

Result<bool> CudaDevice::reached_event(EventHandle event) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  const cuda::RelaxedCapture relaxed(driver_);
  return driver_.reached(as_event(event));
}

Status CudaDevice::wait_event(StreamHandle stream, EventHandle event) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  return driver_.wait_event(as_stream(stream), as_event(event));
}

Result<double> CudaDevice::elapsed_us(EventHandle from, EventHandle to) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  float milliseconds = 0;
  TUTTI_TRY(check(launch_.cuEventElapsedTime(&milliseconds, as_event(from), as_event(to)),
                  "cuEventElapsedTime"));
  return 1000.0 * static_cast<double>(milliseconds);
}

// ---- Captured graphs ----

Result<std::uint64_t> CudaDevice::capture_of(StreamHandle stream) {
  if (stream == nullptr) return std::uint64_t{0};  // the default stream cannot be
  const auto scope = enter();
  TUTTI_TRY(scope);
  const auto capture = driver_.capture_of(as_stream(stream));
  TUTTI_TRY(capture);
  // The driver's numbers begin anywhere.
  return capture->active ? capture->id + 1 : 0;
}

Status CudaDevice::begin_capture(StreamHandle stream) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  return check(launch_.cuStreamBeginCapture_v2(as_stream(stream), cuda::kCaptureModeThreadLocal),
               "cuStreamBeginCapture");
}

Result<GraphHandle> CudaDevice::end_capture(StreamHandle stream) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  cuda::Graph graph = nullptr;
  TUTTI_TRY(check(launch_.cuStreamEndCapture(as_stream(stream), &graph), "cuStreamEndCapture"));
  cuda::GraphInstance instance = nullptr;
  const Status made = check(launch_.cuGraphInstantiateWithFlags(&instance, graph, 0),
                            "cuGraphInstantiateWithFlags");
  launch_.cuGraphDestroy(graph);
  TUTTI_TRY(made);
  const Status uploaded = upload(instance);
  if (!uploaded.ok()) launch_.cuGraphExecDestroy(instance);
  TUTTI_TRY(uploaded);
  return GraphHandle{instance};
}

// Now and not at its first launch, which a peer's kernel may be waiting for.
Status CudaDevice::upload(cuda::GraphInstance instance) {
  const std::lock_guard lock(mutex_);
  TUTTI_TRY(check(launch_.cuGraphUpload(instance, own_stream_), "cuGraphUpload"));
  return driver_.synchronize(own_stream_);
}

Status CudaDevice::replay(GraphHandle graph, StreamHandle stream) {
  const auto scope = enter();
  TUTTI_TRY(scope);
  return check(launch_.cuGraphLaunch(static_cast<cuda::GraphInstance>(graph), as_stream(stream)),
               "cuGraphLaunch");
}

void CudaDevice::destroy_graph(GraphHandle graph) {
  const auto scope = enter();
  if (scope.ok()) launch_.cuGraphExecDestroy(static_cast<cuda::GraphInstance>(graph));
}

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int ordinal, std::span<const std::byte> image) {
  const cuda::Found& found = cuda::find();
  if (found.driver == nullptr) return Status(StatusCode::unsupported, found.reason);
  const auto launch = cuda::find_launch_functions();
  TUTTI_TRY(launch);
  auto device = std::make_unique<CudaDevice>(*found.driver, *launch, ordinal);
  TUTTI_TRY(device->start(image));
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace tutti::runtime::gpu
