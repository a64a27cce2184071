// driver_streams.cc: the stand-in's libcuda.so.1 (a test kit that is NOT CUDA): streams, events,
// captures and graphs.
#include <atomic>

#include "kit/cuda_stand_in/calls.hpp"
#include "kit/cuda_stand_in/memory.hpp"
#include "kit/cuda_stand_in/stand_in.hpp"

namespace {

using namespace stand_in;

std::uint32_t* word_at(DevicePointer address) {
  if (address % sizeof(std::uint32_t) != 0) return nullptr;
  return reinterpret_cast<std::uint32_t*>(Memory::instance().reach(address, sizeof(std::uint32_t)));
}

std::atomic<std::size_t> graphs{0};

void wait_until_equal(const std::uint32_t* word, std::uint32_t value) {
  for (int tries = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) != value && !ending(); ++tries) {
    if (tries < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

std::size_t stand_in::graph_count() { return graphs; }

#pragma GCC visibility push(default)
extern "C" {

Code cuStreamCreate(Stream* stream, unsigned) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (current_context() == nullptr) return 201;
  *stream = Streams::instance().make(current_context());
  return kSuccess;
}

Code cuStreamDestroy_v2(Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().destroy(stream);
}

Code cuStreamSynchronize(Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().synchronize(resolve(stream));
}

Code cuStreamQuery(Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().query(resolve(stream));
}

Code cuStreamIsCapturing(Stream stream, int* status) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().capture_info(resolve(stream), status, nullptr);
}

Code cuStreamGetCaptureInfo(Stream stream, int* status, std::uint64_t* id) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().capture_info(resolve(stream), status, id);
}

Code cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode());
  return kSuccess;
}

Code cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().wait(resolve(stream), event);
}

Code cuLaunchHostFunc(Stream stream, HostFunction function, void* argument) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().enqueue(resolve(stream), [=] {
    const InHostFunction inside;
    function(argument);
  });
}

Code cuStreamWaitValue32_v2(Stream stream, DevicePointer at, std::uint32_t value, unsigned flags) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const std::uint32_t* const word = word_at(at);
  if (word == nullptr) return kInvalidValue;
  if (flags != kWaitValueEqual) return kNotSupported;
  return Streams::instance().enqueue(resolve(stream), [=] { wait_until_equal(word, value); });
}

Code cuStreamWriteValue32_v2(Stream stream, DevicePointer at, std::uint32_t value, unsigned) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  std::uint32_t* const word = word_at(at);
  if (word == nullptr) return kInvalidValue;
  return Streams::instance().enqueue(resolve(stream),
                                     [=] { __atomic_store_n(word, value, __ATOMIC_RELEASE); });
}

Code cuEventCreate(Event* event, unsigned flags) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (current_context() == nullptr) return 201;
  *event = Streams::instance().make_event((flags & kEventDisableTiming) == 0);
  return kSuccess;
}

Code cuEventDestroy_v2(Event event) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().destroy(event);
}

Code cuEventRecord(Event event, Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().record(event, resolve(stream));
}

Code cuEventQuery(Event event) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (const Code code = Streams::instance().unsafe_call(capture_mode()); code != kSuccess)
    return code;
  return Streams::instance().query(event);
}

Code cuEventSynchronize(Event event) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().synchronize(event);
}

Code cuEventElapsedTime(float* milliseconds, Event from, Event to) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().elapsed(milliseconds, from, to);
}

Code cuStreamBeginCapture_v2(Stream stream, int mode) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (resolve(stream) != stream) return kCaptureUnsupported;  // the default stream cannot
  return Streams::instance().begin_capture(stream, mode);
}

Code cuStreamEndCapture(Stream stream, StandInGraph* graph) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  std::shared_ptr<GraphState> state;
  const Code code = Streams::instance().end_capture(stream, state);
  *graph = code == kSuccess ? new CUgraph_st{std::move(state)} : nullptr;
  if (code == kSuccess) ++graphs;
  return code;
}

Code cuGraphInstantiateWithFlags(StandInInstance* instance, StandInGraph graph, std::uint64_t) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  *instance = new CUgraphExec_st{graph->state};
  ++graphs;
  return kSuccess;
}

// Something is enqueued, and nothing has to be done.
Code cuGraphUpload(StandInInstance, Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().enqueue(resolve(stream), [] {});
}

Code cuGraphLaunch(StandInInstance instance, Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return Streams::instance().enqueue(resolve(stream), [state = instance->state] { state->run(); });
}

Code cuGraphExecDestroy(StandInInstance instance) {
  delete instance;
  --graphs;
  return kSuccess;
}

Code cuGraphDestroy(StandInGraph graph) {
  delete graph;
  --graphs;
  return kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
