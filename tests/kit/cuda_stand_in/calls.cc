// calls.cc: see calls.hpp.
#include "kit/cuda_stand_in/calls.hpp"

#include <map>
#include <string>

namespace stand_in {
namespace {

struct Failure {
  Code code = kSuccess;
  int after = 0;
};

struct Failures {
  std::mutex mutex;
  std::map<std::string, Failure> planned;
};

Failures& failures() {
  static auto& all = *new Failures;
  return all;
}

thread_local std::vector<Context> contexts;
thread_local int mode = kCaptureModeGlobal;
thread_local bool in_host_function = false;

}  // namespace

void fail_next(const char* function, Code code, int after) {
  std::lock_guard lock(failures().mutex);
  failures().planned[function] = {code, after};
}

Code refused(const char* function) {
  if (ending()) return 4;
  if (in_host_function) return 800;
  std::lock_guard lock(failures().mutex);
  const auto found = failures().planned.find(function);
  if (found == failures().planned.end() || found->second.after-- > 0) return kSuccess;
  const Code code = found->second.code;
  failures().planned.erase(found);
  return code;
}

Code refused_now(const char* function) {
  if (const Code code = refused(function); code != kSuccess) return code;
  if (current_context() == nullptr) return 201;
  return Streams::instance().unsafe_call(capture_mode());
}

Context current_context() { return contexts.empty() ? nullptr : contexts.back(); }

bool push_context(Context context) {
  if (context == nullptr) return false;
  contexts.push_back(context);
  return true;
}

bool pop_context(Context* context) {
  if (contexts.empty()) return false;
  if (context != nullptr) *context = contexts.back();
  contexts.pop_back();
  return true;
}

void set_context(Context context) {
  if (contexts.empty())
    contexts.push_back(context);
  else
    contexts.back() = context;
}

int& capture_mode() { return mode; }

// 1 and 2 are the names of the default streams of old, and of each thread.
Stream resolve(Stream stream) {
  if (reinterpret_cast<std::uintptr_t>(stream) > 2) return stream;
  return current_context() == nullptr ? nullptr : current_context()->default_stream;
}

InHostFunction::InHostFunction() { in_host_function = true; }
InHostFunction::~InHostFunction() { in_host_function = false; }

}  // namespace stand_in
