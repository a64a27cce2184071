// cuda_runtime.hpp: what tests call of the CUDA runtime, whose own header need not be there.
#pragma once

#include <cstddef>

#include "tutti/nccl.h"

extern "C" {
struct CUgraph_st;
struct CUevent_st;
int cudaGetDeviceCount(int* count);
int cudaSetDevice(int device);
int cudaMalloc(void** memory, std::size_t bytes);
int cudaFree(void* memory);
int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind);
int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, cudaStream_t stream);
int cudaPointerGetAttributes(void* attributes, const void* memory);
int cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
int cudaStreamDestroy(cudaStream_t stream);
int cudaStreamSynchronize(cudaStream_t stream);
int cudaStreamWaitEvent(cudaStream_t stream, CUevent_st* event, unsigned flags);
int cudaEventCreate(CUevent_st** event);
int cudaEventDestroy(CUevent_st* event);
int cudaEventRecord(CUevent_st* event, cudaStream_t stream);
int cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* argument);
int cudaStreamBeginCapture(cudaStream_t stream, int mode);
int cudaStreamEndCapture(cudaStream_t stream, CUgraph_st** graph);
int cudaGraphInstantiate(CUgraph_st** instance, CUgraph_st* graph, unsigned long long flags);
int cudaGraphLaunch(CUgraph_st* instance, cudaStream_t stream);
int cudaGraphExecDestroy(CUgraph_st* instance);
int cudaGraphDestroy(CUgraph_st* graph);
}
