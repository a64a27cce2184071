// The main() of the unit tests: what the developer has measured on this machine (`tutti tune`) must
// not change what they see, so caches are looked for where there are none. And sanitizers must be
// able to watch.
#include <gmock/gmock.h>

#include <cstdlib>

int main(int count, char** values) {
  setenv("XDG_CACHE_HOME", "/nonexistent/tutti-tests", 1);
  unsetenv("TUTTI_TUNING_FILE");
  // UCX writes into the code of mmap() and its like, which sanitizers have in their hands.
  setenv("UCX_MEM_EVENTS", "no", 0);
  ::testing::InitGoogleMock(&count, values);
  return RUN_ALL_TESTS();
}
