// check.hpp: assertions for the training layer's own bugs. They stay on in release builds. What
// the world does to us (files, peers, wishes that cannot be met) is a Status instead.
//
// The library has the like of it in src/base, which its clients do not see.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace tutti::training {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line,
                                      const char* note) {
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, note, condition);
  std::abort();
}

}  // namespace tutti::training

// TRAINING_CHECK(condition, "note"): a broken invariant ends the process with its place.
#define TRAINING_CHECK(condition, note) \
  (__builtin_expect(!!(condition), 1)   \
       ? static_cast<void>(0)           \
       : ::tutti::training::check_failed(#condition, __FILE__, __LINE__, (note)))
