// stand_in.hpp: what tests may ask of the stand-in for CUDA (a test kit that is NOT CUDA), and what
// its libcudart.so.13 calls in its libcuda.so.1 beyond the functions in transport/cuda/types.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/cuda/types.hpp"

namespace stand_in {
struct GraphState;
}
// Graphs and their instances hold the same thing here.
struct CUgraph_st {
  std::shared_ptr<stand_in::GraphState> state;
};
struct CUgraphExec_st {
  std::shared_ptr<stand_in::GraphState> state;
};

#pragma GCC visibility push(default)
extern "C" {

using StandInGraph = CUgraph_st*;
using StandInInstance = CUgraphExec_st*;

// The next call of `function` (by its name in the library) but `after` gives `code` and does
// nothing.
void tutti_stand_in_fail(const char* function, int code, int after);

// What a program has made and not given back. Streams are the program's, and one for each device
// that was used.
struct TuttiStandInCounts {
  std::size_t device_memory;
  std::size_t host_memory;
  std::size_t registered_memory;
  std::size_t streams;
  std::size_t events;
  std::size_t graphs;  // and their instances
  std::size_t modules;
  std::size_t blocks;        // of kernels, that are on a device now
  std::size_t flushes;       // of what network cards wrote, so far
  std::size_t objects;       // of memory that was made without addresses, or imported
  std::size_t reservations;  // of addresses

  friend bool operator==(const TuttiStandInCounts&, const TuttiStandInCounts&) = default;
};
void tutti_stand_in_count(TuttiStandInCounts* counts);

// Whether another process has this piece of a device's memory mapped; CUDA forbids to free it then.
bool tutti_stand_in_is_mapped_elsewhere(const void* memory);

// Where so many bytes of a device's memory can be read and written, as a network card reaches them;
// null: there are none.
void* tutti_stand_in_reach(const void* memory, std::size_t bytes);

int cuCtxSetCurrent(tutti::transport::cuda::Context context);
int cuCtxSynchronize();
int cuMemGetInfo_v2(std::size_t* unused, std::size_t* total);
int cuMemcpyAsync(tutti::transport::cuda::DevicePointer to,
                  tutti::transport::cuda::DevicePointer from, std::size_t bytes,
                  tutti::transport::cuda::Stream stream);
int cuMemsetD8Async(tutti::transport::cuda::DevicePointer at, unsigned char value,
                    std::size_t bytes, tutti::transport::cuda::Stream stream);
int cuEventElapsedTime(float* milliseconds, tutti::transport::cuda::Event from,
                       tutti::transport::cuda::Event to);
int cuStreamBeginCapture_v2(tutti::transport::cuda::Stream stream, int mode);
int cuStreamEndCapture(tutti::transport::cuda::Stream stream, StandInGraph* graph);
int cuGraphInstantiateWithFlags(StandInInstance* instance, StandInGraph graph, std::uint64_t flags);
int cuGraphLaunch(StandInInstance instance, tutti::transport::cuda::Stream stream);
int cuGraphExecDestroy(StandInInstance instance);
int cuGraphDestroy(StandInGraph graph);

}  // extern "C"
#pragma GCC visibility pop
