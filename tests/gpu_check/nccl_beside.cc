// nccl_beside OURS THEIRS: calls of one rank through two libraries with NCCL's interface, Tutti's
// and NVIDIA's, on one GPU: that both give the same bytes, and what a call takes. One rank only,
// because NVIDIA's does not let ranks share a GPU.
//
// Ends with 0 when they agree, 77 when there is no GPU, a library cannot be opened or NVIDIA's does
// not work here (as where the driver is older than it wants), 1 otherwise.
#include <dlfcn.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "transport/cuda/driver.hpp"
#include "tutti/nccl.h"

namespace {

namespace cuda = tutti::transport::cuda;

constexpr int kNotHere = 77;
constexpr int kCalls = 50;

// The few functions that are compared, of one library.
struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclCommInitAll) init_all = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
};

template <typename Function>
bool load(void* opened, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(opened, name));
  if (function == nullptr) fmt::print("no {}\n", name);
  return function != nullptr;
}

bool open(const char* path, Library& library) {
  void* const opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    fmt::print("{}\n", dlerror());
    return false;
  }
  return load(opened, library.get_version, "ncclGetVersion") &&
         load(opened, library.get_error_string, "ncclGetErrorString") &&
         load(opened, library.init_all, "ncclCommInitAll") &&
         load(opened, library.destroy, "ncclCommDestroy") &&
         load(opened, library.all_reduce, "ncclAllReduce") &&
         load(opened, library.all_gather, "ncclAllGather") &&
         load(opened, library.reduce_scatter, "ncclReduceScatter") &&
         load(opened, library.broadcast, "ncclBroadcast");
}

// Where calls are made.
struct Place {
  const cuda::Driver& driver;
  cuda::Stream stream;
  void* input;
  void* output;
};

ncclResult_t make_call(const Library& library, const Place& place, int which, std::size_t count,
                       ncclComm_t comm) {
  auto* const stream = reinterpret_cast<cudaStream_t>(place.stream);
  const void* const in = place.input;
  void* const out = place.output;
  if (which == 0) return library.all_reduce(in, out, count, ncclFloat32, ncclSum, comm, stream);
  if (which == 1) return library.all_gather(in, out, count, ncclFloat32, comm, stream);
  if (which == 2) return library.reduce_scatter(in, out, count, ncclFloat32, ncclMax, comm, stream);
  return library.broadcast(in, out, count, ncclFloat32, 0, comm, stream);
}

// The bytes of all results, and the time of a call; false: it failed, and said why.
bool run(const Library& library, const Place& place, std::size_t count,
         std::vector<std::vector<float>>& results, double& call_us) {
  ncclComm_t comm = nullptr;
  const int device = 0;
  ncclResult_t code = library.init_all(&comm, 1, &device);
  for (int which = 0; which < 4 && code == ncclSuccess; ++which) {
    std::vector<float> data(count);  // not touched until the stream has come to its end
    for (std::size_t i = 0; i < count; ++i)
      data[i] = static_cast<float>(i % 1000) + static_cast<float>(which);
    if (!place.driver.copy_to_device(place.input, data.data(), count * 4, place.stream).ok())
      return false;
    code = make_call(library, place, which, count, comm);
    if (code != ncclSuccess) break;
    std::vector<float> result(count, -1);
    if (!place.driver.copy_to_host(result.data(), place.output, count * 4, place.stream).ok() ||
        !place.driver.synchronize(place.stream).ok())
      return false;
    results.push_back(std::move(result));
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int n = 0; n < kCalls && code == ncclSuccess; ++n)
    code = make_call(library, place, 0, count, comm);
  if (!place.driver.synchronize(place.stream).ok()) return false;
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  call_us = took.count() / kCalls;
  if (code != ncclSuccess) fmt::print("failed: {}\n", library.get_error_string(code));
  if (comm != nullptr) static_cast<void>(library.destroy(comm));
  return code == ncclSuccess;
}

// As the program is to end.
int compare(const Library& ours, const Library& theirs, const Place& place, std::size_t count) {
  std::vector<std::vector<float>> our_results;
  std::vector<std::vector<float>> their_results;
  double our_us = 0;
  double their_us = 0;
  if (!run(ours, place, count, our_results, our_us)) return 1;
  if (!run(theirs, place, count, their_results, their_us)) {
    fmt::print("NVIDIA's NCCL does not work here, Tutti does\n");
    return kNotHere;
  }
  const bool same = our_results == their_results;
  fmt::print("{} floats: {}; all_reduce takes us {:.1f}, them {:.1f}\n", count,
             same ? "the same results" : "DIFFERENT results", our_us, their_us);
  return same ? 0 : 1;
}

int compare_all(const cuda::Driver& driver, const Library& ours, const Library& theirs) {
  constexpr std::size_t kCountMax = 1 << 22;
  const auto device = driver.device(0);
  if (!device.ok()) return 1;
  const auto context = driver.retain_primary(*device);
  if (!context.ok()) return 1;
  const auto scope = cuda::ContextScope::enter(driver, *context);
  auto stream = cuda::OwnStream::make(driver);
  const auto input = driver.allocate(kCountMax * 4);
  const auto output = driver.allocate(kCountMax * 4);
  if (!scope.ok() || !stream.ok() || !input.ok() || !output.ok()) return 1;
  const Place place{driver, stream->get(), *input, *output};
  int end = 0;
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, kCountMax}) {
    const int one = compare(ours, theirs, place, count);
    if (one == kNotHere) return one;
    end = std::max(end, one);
  }
  return end;
}

}  // namespace

int main(int count, char** values) {
  if (count != 3) {
    fmt::print(stderr, "nccl_beside OURS THEIRS: two files of libnccl.so.2\n");
    return 1;
  }
  const cuda::Found& found = cuda::find();
  if (found.driver == nullptr) {
    fmt::print("there is no GPU: {}\n", found.reason);
    return kNotHere;
  }
  Library ours;
  Library theirs;
  if (!open(values[1], ours) || !open(values[2], theirs)) return kNotHere;
  int our_version = 0;
  int their_version = 0;
  ours.get_version(&our_version);
  theirs.get_version(&their_version);
  fmt::print("ours says {}, theirs {}\n", our_version, their_version);
  return compare_all(*found.driver, ours, theirs);
}
