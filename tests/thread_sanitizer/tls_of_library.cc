// tls_of_library.cc: a library with a variable that each thread has of its own, for
// tls_of_libraries.cc, which loads it.

namespace {
thread_local char block[40];
}  // namespace

extern "C" [[gnu::visibility("default")]] char* tutti_test_tls_block() {
  block[0] = 1;
  return block;
}
