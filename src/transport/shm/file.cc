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

// How far it is to where a huge page can begin.
std::size_t to_huge_page(const void* memory) {
  const std::size_t into = reinterpret_cast<std::uintptr_t>(memory) % kHugePageBytes;
  return into == 0 ? 0 : kHugePageBytes - into;
}

// Where `bytes` would fit just now, `into` behind where a huge page could begin; null when nowhere.
void* aligned_place(std::size_t bytes, std::size_t into) {
  const std::size_t whole = bytes + 2 * kHugePageBytes;
  void* memory =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  munmap(memory, whole);
  return static_cast<std::byte*>(memory) + to_huge_page(memory) + into;
}

// One small page has to exist for a huge one to be made. Stops where the system has no more of
// them, or knows of none.
void enlarge_pages(const Mapping& mapping) {
  for (std::size_t at = to_huge_page(mapping.base()); at + kHugePageBytes <= mapping.bytes();
       at += kHugePageBytes) {
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

Result<Descriptor> make_memory_file(std::size_t bytes, const char* name) {
  Descriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.open()) return system_error("memfd_create");
  if (ftruncate(file.number(), static_cast<off_t>(bytes)) != 0) return system_error("ftruncate");
  if (fcntl(file.number(), F_ADD_SEALS, kSizeSeals) != 0) return system_error("F_ADD_SEALS");
  return file;
}

Result<Mapping> map_file(int file, std::size_t bytes, Pages pages) {
  return map_part(file, 0, bytes, pages);
}

Result<Mapping> map_part(int file, std::uint64_t offset, std::size_t bytes, Pages pages) {
  const int flags = MAP_SHARED | (pages == Pages::at_once ? MAP_POPULATE : 0);
  // Only a wish: another thread may map something there in between.
  void* place = bytes < kHugePageBytes ? nullptr : aligned_place(bytes, offset % kHugePageBytes);
  void* base = mmap(place, bytes, PROT_READ | PROT_WRITE, flags, file, static_cast<off_t>(offset));
  if (base == MAP_FAILED) return system_error("mmap");
  return Mapping(static_cast<std::byte*>(base), bytes);
}

bool populate(const Mapping& mapping) {
  enlarge_pages(mapping);
  return populate_quickly(mapping.base(), mapping.bytes());
}

bool populate_quickly(std::byte* memory, std::size_t bytes) {
  if (madvise(memory, bytes, kPopulateWrite) == 0) return true;
  return errno == EINVAL;  // an older kernel: pages come when they are touched
}

Status check_received(int file, std::uint64_t bytes) {
  const int seals = fcntl(file, F_GET_SEALS);
  struct stat status = {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || fstat(file, &status) != 0)
    return Status(StatusCode::corrupt_data, "a peer sent a file that is not sealed memory");
  if (bytes == 0 || static_cast<std::uint64_t>(status.st_size) < bytes)
    return Status(StatusCode::corrupt_data, "a peer sent less memory than it announced");
  return {};
}

Result<Mapping> map_received(int file, std::size_t bytes, Pages pages) {
  TUTTI_TRY(check_received(file, bytes));
  return map_file(file, bytes, pages);
}

}  // namespace tutti::transport::shm
