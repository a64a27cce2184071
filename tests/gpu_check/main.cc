// tutti_gpu_check: whether Tutti's device calls are right on this machine's GPUs, and how quick.
// One program without a test framework, so that it can be carried to a machine that builds nothing.
//
// Ends with 0 when all checks passed, 77 when there is no GPU, 1 otherwise.
#include <unistd.h>

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/try.hpp"
#include "gpu_check/checks.hpp"
#include "gpu_check/measures.hpp"
#include "gpu_check/processes.hpp"
#include "gpu_world/host_device.hpp"
#include "runtime/gpu/host/cuda_device.hpp"
#include "runtime/gpu/kernel_image.hpp"
#include "transport/cuda/driver.hpp"

namespace tutti::gpu_check {
namespace {

using runtime::gpu::Device;
using runtime::gpu::GpuOptions;

constexpr int kNoGpu = 77;
constexpr int kProcessesMax = 4;
constexpr const char* kUsage =
    "tutti_gpu_check [--quick] [--small] [--under-tool] [--rehearse] [--processes-only]\n"
    "                [--ranks N] [--limit-s N] [--report FILE]\n"
    "  --quick       fewer cases and sizes\n"
    "  --small       few cases and small sizes, for a driver that pretends to be one\n"
    "  --under-tool  a few small cases, for compute-sanitizer; measures nothing\n"
    "  --rehearse    on threads of this processor in place of a GPU: shows that the checks run,\n"
    "                and nothing else; ends with 77 like a machine without a GPU\n"
    "  --processes-only  nothing but ranks of several processes\n"
    "  --ranks N     at most so many ranks on a device (default 8)\n"
    "  --limit-s N   gives up after so many seconds (default 360)\n"
    "  --report FILE writes what was found, as Markdown\n"
    "Ends with 0: all passed, 77: there is no GPU, 1: something failed.\n";

struct Wishes {
  bool quick = false;
  bool small = false;  // as a rehearsal is, too
  bool under_tool = false;
  bool rehearse = false;
  bool processes_only = false;
  int ranks = 8;
  int limit_s = 360;
  std::string report;
  std::string command;
};

// Null text: it is not there.
bool take_number(int& index, int count, char** values, int& number) {
  if (index + 1 >= count) return false;
  char* end = nullptr;
  const long value = std::strtol(values[++index], &end, 10);
  if (*end != '\0' || value < 1 || value > 100000) return false;
  number = static_cast<int>(value);
  return true;
}

bool parse(int count, char** values, Wishes& wishes) {
  wishes.command = values[0];
  for (int i = 1; i < count; ++i) {
    const std::string_view word = values[i];
    wishes.command += fmt::format(" {}", word);
    if (word == "--quick")
      wishes.quick = true;
    else if (word == "--small")
      wishes.small = true;
    else if (word == "--under-tool")
      wishes.under_tool = true;
    else if (word == "--rehearse")
      wishes.rehearse = wishes.small = true;
    else if (word == "--processes-only")
      wishes.processes_only = true;
    else if (word == "--ranks" && take_number(i, count, values, wishes.ranks))
      wishes.command += fmt::format(" {}", wishes.ranks);
    else if (word == "--limit-s" && take_number(i, count, values, wishes.limit_s))
      wishes.command += fmt::format(" {}", wishes.limit_s);
    else if (word == "--report" && i + 1 < count)
      wishes.command += fmt::format(" {}", wishes.report = values[++i]);
    else
      return false;
  }
  return wishes.ranks < 32;  // the streams that a device runs at once at most, and its own
}

// Ends the program when it takes too long, whatever it waits for.
class Watchdog {
 public:
  explicit Watchdog(int limit_s)
      : thread_([this, limit_s] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, std::chrono::seconds(limit_s), [this] { return done_; }))
            return;
          fmt::print("FAILED: the limit of {} s came first\n", limit_s);
          std::fflush(stdout);
          _exit(1);
        }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

Extent extent_of(const Wishes& wishes) {
  Extent extent;
  for (int ranks = 1; ranks <= wishes.ranks; ++ranks) extent.ranks.push_back(ranks);
  extent.counts = {0, 1, 7, 1000};
  extent.large = {(1 << 20) + 3};
  extent.large_one_in = wishes.quick ? 61 : 17;
  extent.one_in = wishes.quick ? 7 : 1;
  extent.limit_s = wishes.quick ? 45 : 180;
  extent.options.timeout = std::chrono::seconds(20);
  if (wishes.under_tool) {
    extent.one_in = 29;
    extent.large.clear();
    extent.limit_s = 30;
    extent.failures_max = 1;
    extent.options.timeout = std::chrono::seconds(10);
  }
  if (wishes.small) {
    extent.one_in = 97;
    extent.large = {3001};
    extent.large_one_in = 97;
    extent.options.threads = 2;
    extent.options.channels = 2;
    extent.options.slot_bytes = 1024;
    extent.options.flagged_bytes = 256;
    extent.options.channel_bytes = 1024;
  }
  return extent;
}

Measuring measuring_of(const Wishes& wishes) {
  Measuring extent;
  for (const int ranks : {2, 4, 8})
    if (ranks <= wishes.ranks) extent.ranks.push_back(ranks);
  if (extent.ranks.empty()) extent.ranks.push_back(wishes.ranks);
  for (std::size_t bytes = 8; bytes <= std::size_t{256} << 20; bytes *= wishes.quick ? 32 : 4)
    extent.bytes.push_back(bytes);
  extent.bytes.back() = std::size_t{256} << 20;
  extent.latencies = {8, 1024, 16 * 1024};
  extent.copy_bytes = std::size_t{512} << 20;
  extent.work_bytes = std::size_t{8} << 30;
  extent.options.timeout = std::chrono::seconds(20);
  if (wishes.small) {
    extent.ranks = {2};
    extent.bytes = {8, 4096};
    extent.latencies = {8};
    extent.copy_bytes = 1 << 20;
    extent.work_bytes = 0;
    extent.calls_max = 3;
    extent.options = extent_of(wishes).options;
  }
  return extent;
}

std::string date() {
  std::array<char, 64> text{};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &utc);
  return text.data();
}

using Devices = std::vector<std::unique_ptr<Device>>;

Result<Devices> make_devices(const Wishes& wishes) {
  Devices devices;
  if (wishes.rehearse) {
    devices.push_back(std::make_unique<runtime::gpu::HostDevice>());
    return devices;
  }
  const auto& found = transport::cuda::find();
  if (found.driver == nullptr) return Status(StatusCode::unsupported, found.reason);
  const auto count = found.driver->device_count();
  TUTTI_TRY(count);
  for (int ordinal = 0; ordinal < *count; ++ordinal) {
    auto device = runtime::gpu::make_cuda_device(ordinal, runtime::gpu::kernel_image());
    TUTTI_TRY(device);
    devices.push_back(*std::move(device));
  }
  return devices;
}

void add_facts(const Wishes& wishes, const Devices& devices, Report& report) {
  report.fact("date", date());
  report.fact("command", wishes.command);
  for (const auto& device : devices) {
    const auto blocks = device->blocks_at_once(runtime::gpu::kKernelThreadsMax);
    report.fact("chip", fmt::format("{}, {} blocks of {} threads at once", device->name(),
                                    blocks.ok() ? *blocks : 0, runtime::gpu::kKernelThreadsMax));
  }
  if (wishes.rehearse)
    report.fact("a rehearsal", "on threads of a processor: it says NOTHING about any GPU");
  else
    report.fact("driver", fmt::format("CUDA {}", transport::cuda::find().driver->version()));
}

// Takes the crew along: its processes have memory of the devices.
void check_processes(const Wishes& wishes, std::unique_ptr<Crew> crew, Report& report) {
  if (crew)
    check_processes(*crew, extent_of(wishes), report);
  else
    report.did_not_run("ranks of several processes", "a rehearsal has none");
}

void check_all(const Wishes& wishes, const Devices& devices, Report& report) {
  Extent extent = extent_of(wishes);
  Device& device = *devices.front();
  check_results(device, extent, report);
  if (wishes.under_tool) return;
  check_graphs(device, extent, report);
  check_joint_graphs(device, extent, report);
  check_transfers(device, extent, report);
  check_abort(device, extent, report);
  check_deadline(device, extent, report);
  check_refusal(device, extent, report);
  std::vector<Device*> all;
  for (const auto& each : devices) all.push_back(each.get());
  check_devices(all, extent, report);
  measure(device, measuring_of(wishes), report);
}

int run(const Wishes& wishes) {
  // Kernels that wait for each other must all be loaded, and run beside each other.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  std::unique_ptr<Crew> crew;
  if (!wishes.rehearse && !wishes.under_tool) {
    auto started = Crew::start(kProcessesMax);
    if (!started.ok()) {
      fmt::print("FAILED: no processes: {}\n", started.status().to_string());
      return 1;
    }
    crew = *std::move(started);
  }
  if (!wishes.rehearse && transport::cuda::find().driver == nullptr) {
    fmt::print("there is no GPU: {}\n", transport::cuda::find().reason);
    return kNoGpu;
  }
  const Watchdog watchdog(wishes.limit_s);
  Report report;
  const auto devices = make_devices(wishes);
  if (!devices.ok()) {
    report.failed("devices", devices.status().to_string());
  } else {
    add_facts(wishes, *devices, report);
    if (!wishes.under_tool) check_processes(wishes, std::move(crew), report);
    if (!wishes.processes_only) check_all(wishes, *devices, report);
  }
  if (!wishes.report.empty())
    if (const Status written = report.write(wishes.report); !written.ok())
      report.failed("report", written.to_string());
  if (!report.all_passed()) return 1;
  return wishes.rehearse ? kNoGpu : 0;
}

}  // namespace
}  // namespace tutti::gpu_check

int main(int count, char** values) {
  tutti::gpu_check::Wishes wishes;
  if (count == 2 && std::string_view(values[1]) == "--help") {
    fmt::print("{}", tutti::gpu_check::kUsage);
    return 0;
  }
  if (!tutti::gpu_check::parse(count, values, wishes)) {
    fmt::print(stderr, "{}", tutti::gpu_check::kUsage);
    return 1;
  }
  return tutti::gpu_check::run(wishes);
}
