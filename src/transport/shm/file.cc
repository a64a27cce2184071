// file.cc: the system calls behind file.hpp.
#include "transport/shm/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/try.hpp"

namespace tutti::transport::shm {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// Linux 5.14 and 6.1; older C libraries do not name them.
#ifdef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#else
constexpr int kPopulateWrite = 23;
#endif
#ifdef MADV_COLLAPSE
constexpr int kCollapse = MADV_COLLAPSE;
#else
constexpr int kCollapse = 25;
#endif

// Where `bytes` would fit just now and a huge page could begin; null when nowhere.
void* aligned_place(std::size_t bytes) {
  const std::size_t whole = bytes + kHugePageBytes;
  void* memory =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  munmap(memory, whole);
  const std::size_t into = reinterpret_cast<std::uintptr_t>(memory) % kHugePageBytes;
  return static_cast<std::byte*>(memory) + (into == 0 ? 0 : kHugePageBytes - into);
}

// One small page has to exist for a huge one to be made. Stops where the system has no more of
// them, or knows of none.
void enlarge_pages(const Mapping& mapping) {
  for (std::size_t at = 0; at + kHugePageBytes <= mapping.bytes(); at += kHugePageBytes) {
    std::byte* chunk = mapping.base() + at;
    if (madvise(chunk, 1, kPopulateWrite) != 0) return;
    if (madvise(chunk, kHugePageBytes, kCollapse) != 0) return;
  }
}

}  // namespace

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

Status system_error(const char* what) {
  return Status(StatusCode::system_error, std::string(what) + ": " + std::strerror(errno));
}

Result<Descriptor> make_memory_file(std::size_t bytes) {
  Descriptor file(memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.open()) return system_error("memfd_create");
  if (ftruncate(file.number(), static_cast<off_t>(bytes)) != 0) return system_error("ftruncate");
  if (fcntl(file.number(), F_ADD_SEALS, kSizeSeals) != 0) return system_error("F_ADD_SEALS");
  return file;
}

Result<Mapping> map_file(int file, std::size_t bytes, Pages pages) {
  const int flags = MAP_SHARED | (pages == Pages::at_once ? MAP_POPULATE : 0);
  // Only a wish: another thread may map something there in between.
  void* place = bytes < kHugePageBytes ? nullptr : aligned_place(bytes);
  void* base = mmap(place, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (base == MAP_FAILED) return system_error("mmap");
  return Mapping(static_cast<std::byte*>(base), bytes);
}

bool populate(const Mapping& mapping) {
  enlarge_pages(mapping);
  if (madvise(mapping.base(), mapping.bytes(), kPopulateWrite) == 0) return true;
  return errno == EINVAL;  // an older kernel: pages come when they are touched
}

Result<Mapping> map_received(int file, std::size_t bytes, Pages pages) {
  const int seals = fcntl(file, F_GET_SEALS);
  struct stat status = {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || fstat(file, &status) != 0)
    return Status(StatusCode::corrupt_data, "a peer sent a file that is not sealed memory");
  if (bytes == 0 || static_cast<std::size_t>(status.st_size) < bytes)
    return Status(StatusCode::corrupt_data, "a peer sent less memory than it announced");
  return map_file(file, bytes, pages);
}

}  // namespace tutti::transport::shm
