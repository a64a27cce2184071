// file.cc: the system calls behind file.hpp.
#include "transport/shm/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/try.hpp"

namespace tutti::transport::shm {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

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
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (base == MAP_FAILED) return system_error("mmap");
  return Mapping(static_cast<std::byte*>(base), bytes);
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
