// leaks.cc: no leaks are looked for at the end of these programs. That is done before the stand-in
// for CUDA has joined its threads, and clang 14's leak sanitizer crashes now and then on variables
// of living threads, or takes memory of the loader for lost. Asked by the sanitizer; nobody else
// calls it.
extern "C" const char* __asan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "detect_leaks=0";
}
