// How a broken invariant ends the process.
#include "base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace tutti::base {

void assertion_failed(const char* expression, const char* file, int line, const char* note) {
  std::fprintf(stderr, "tutti: %s:%d: internal error: %s (%s)\n", file, line, note, expression);
  std::abort();
}

}  // namespace tutti::base
