// errors.cc: see errors.hpp.
#include "kit/cuda_stand_in/errors.hpp"

#include <algorithm>
#include <array>

namespace stand_in {
namespace {

constexpr std::array kErrors{
    Error{0, "CUDA_SUCCESS", "cudaSuccess", "no error"},
    Error{1, "CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue", "stand-in: invalid argument"},
    Error{2, "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "stand-in: out of memory"},
    Error{4, "CUDA_ERROR_DEINITIALIZED", "cudaErrorCudartUnloading", "stand-in: the program ends"},
    Error{100, "CUDA_ERROR_NO_DEVICE", "cudaErrorNoDevice", "stand-in: no device"},
    Error{101, "CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice", "stand-in: no such device"},
    Error{200, "CUDA_ERROR_INVALID_IMAGE", "cudaErrorInvalidKernelImage",
          "stand-in: that is no image of kernels"},
    Error{201, "CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized",
          "stand-in: no context is current"},
    Error{400, "CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle",
          "stand-in: no such stream, event or graph"},
    Error{209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "cudaErrorNoKernelImageForDevice",
          "stand-in: as a test asked"},
    Error{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "cudaErrorPeerAccessUnsupported",
          "stand-in: these devices do not reach each other"},
    Error{401, "CUDA_ERROR_ILLEGAL_STATE", "cudaErrorIllegalState",
          "stand-in: the stream captures already, or does not"},
    Error{500, "CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound",
          "stand-in: it has Tutti's kernels only"},
    Error{600, "CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "stand-in: not ready"},
    Error{701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "cudaErrorLaunchOutOfResources",
          "stand-in: too many threads for a block of this kernel"},
    Error{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "cudaErrorPeerAccessAlreadyEnabled",
          "stand-in: these devices reach each other already"},
    Error{712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "cudaErrorHostMemoryAlreadyRegistered",
          "stand-in: that memory is page-locked already"},
    Error{713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "cudaErrorHostMemoryNotRegistered",
          "stand-in: that memory is not page-locked"},
    Error{719, "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorLaunchFailure", "stand-in: as a test asked"},
    Error{800, "CUDA_ERROR_NOT_PERMITTED", "cudaErrorNotPermitted",
          "stand-in: a host function may not call CUDA"},
    Error{801, "CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported",
          "this is a stand-in for CUDA in host memory, which runs no kernels but Tutti's own"},
    Error{900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cudaErrorStreamCaptureUnsupported",
          "stand-in: not while a stream is being captured"},
    Error{901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cudaErrorStreamCaptureInvalidated",
          "stand-in: the capture failed earlier"},
    Error{903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "cudaErrorStreamCaptureUnmatched",
          "stand-in: the capture began on another stream"},
    Error{904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "cudaErrorStreamCaptureUnjoined",
          "stand-in: a stream of the capture was not joined"},
    Error{905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "cudaErrorStreamCaptureIsolation",
          "stand-in: a capture cannot wait for what lies outside"},
    Error{907, "CUDA_ERROR_CAPTURED_EVENT", "cudaErrorCapturedEvent",
          "stand-in: the event was recorded in a capture"},
    Error{908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "cudaErrorStreamCaptureWrongThread",
          "stand-in: the capture began in another thread"},
};

}  // namespace

const Error* find_error(int code) {
  const auto* const found = std::find_if(kErrors.begin(), kErrors.end(),
                                         [&](const Error& error) { return error.code == code; });
  return found == kErrors.end() ? nullptr : found;
}

}  // namespace stand_in
