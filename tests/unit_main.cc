// The main() of the unit tests: what the developer has measured on this machine (`tutti tune`) must
// not change what they see, so caches are looked for where there are none.
#include <gmock/gmock.h>

#include <cstdlib>

int main(int count, char** values) {
  setenv("XDG_CACHE_HOME", "/nonexistent/tutti-tests", 1);
  unsetenv("TUTTI_TUNING_FILE");
  ::testing::InitGoogleMock(&count, values);
  return RUN_ALL_TESTS();
}
