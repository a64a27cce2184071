// calls.hpp: part of the stand-in for CUDA, which is a test kit and NOT CUDA: what every function
// of its libcuda.so.1 begins with.
#pragma once

#include "kit/cuda_stand_in/streams.hpp"

namespace stand_in {

// The error of a call that a test wants to fail, or of one made by a host function of a stream or
// when the program has ended, where CUDA forbids it; else success.
Code refused(const char* function);

// The same for what makes or frees something now: nor while that would disturb a capture, or when
// no context is current.
Code refused_now(const char* function);

// Makes `function` fail, but for the next `after` calls of it.
void fail_next(const char* function, Code code, int after);

// The current context of the calling thread, on top of those that it has pushed.
Context current_context();
bool push_context(Context context);
bool pop_context(Context* context);
void set_context(Context context);

int& capture_mode();  // of the calling thread

// A handle as callers give it, with the current context's default stream for null.
Stream resolve(Stream stream);

// While it lives, its thread is in a host function.
class InHostFunction {
 public:
  InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
  ~InHostFunction();
};

}  // namespace stand_in
