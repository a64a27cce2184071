// assert.hpp: assertions for our own bugs. They stay on in release builds, because a wrong
// answer delivered quickly is worth nothing. What the world does to us is a Status instead.
#pragma once

namespace tutti::base {

// Prints the expression, place and note on stderr and aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line,
                                   const char* note);

}  // namespace tutti::base

// TUTTI_ASSERT(condition, "note"): a broken invariant ends the process with its place.
#define TUTTI_ASSERT(condition, note) \
  (__builtin_expect(!!(condition), 1) \
       ? static_cast<void>(0)         \
       : ::tutti::base::assertion_failed(#condition, __FILE__, __LINE__, (note)))
