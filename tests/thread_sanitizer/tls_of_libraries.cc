// tls_of_libraries.cc: threads may use the thread-local variables of a library that was loaded
// while the program ran, as those of UCX are.
//
// Where such variables lie 16 bytes behind the beginning of a page, GCC 12's thread sanitizer takes
// the 16 bytes before them for a header of glibc 2.19 with their address and size, and forgets what
// it knows of that much memory. Later versions of glibc get them from malloc() and have no such
// header: before them lies what somebody wrote there last. With 1.0F for an address it ends the
// program ("failed to allocate"), about one time of a hundred with a test of UCX. Where
// intercept_tls_get_addr=0 it does not look.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHeader = 16;
constexpr std::size_t kBlock = 48;  // what malloc() takes for the library's 40 bytes
constexpr int kBlocks = 20'000;
constexpr int kThreads = 600;

// Whoever gets a block afterwards has a header before it that tells of most of all memory.
void leave_headers() {
  std::vector<std::uintptr_t*> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    auto* const words = static_cast<std::uintptr_t*>(std::malloc(kBlock));
    words[4] = 0x7b1800000000;  // bytes
    words[5] = 0x3f800000;      // address
    blocks.push_back(words);
  }
  for (std::uintptr_t* const words : blocks) std::free(words);
}

// Whether the variables of this thread lie where a header would be looked for. Each thread takes
// another number of blocks first, so that they lie somewhere else in each.
bool touch(char* (*block)(), int thread) {
  std::vector<void*> before;
  for (int i = 0; i < thread; ++i) before.push_back(std::malloc(kBlock));
  const bool like_one = reinterpret_cast<std::uintptr_t>(block()) % kPage == kHeader;
  for (void* const memory : before) std::free(memory);
  return like_one;
}

}  // namespace

int main(int, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW);
  if (library == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  auto* const block = reinterpret_cast<char* (*)()>(dlsym(library, "tutti_test_tls_block"));
  if (block == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;

  leave_headers();
  std::atomic<int> here = 0;
  std::atomic<int> like_one = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      if (touch(block, i)) ++like_one;
      // None ends before all have theirs, or they would get the same memory one after the other.
      ++here;
      while (here < kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%d of %d threads have theirs where a header would be looked for\n", like_one.load(),
              kThreads);
  return like_one > 0 ? 0 : 1;
}
