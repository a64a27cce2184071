// ring.cc: see ring.hpp.
#include "transport/tcp/ring.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "transport/bootstrap/socket.hpp"

namespace tutti::transport::tcp {
namespace {

std::byte* map(std::byte* at, std::size_t bytes, int file) {
  void* mapped = ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

}  // namespace

Ring::Ring(Ring&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)),
      begin_(other.begin_),
      stored_(std::exchange(other.stored_, 0)) {}

Ring& Ring::operator=(Ring&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(capacity_, other.capacity_);
  std::swap(begin_, other.begin_);
  std::swap(stored_, other.stored_);
  return *this;
}

Ring::~Ring() {
  if (base_ != nullptr) ::munmap(base_, 2 * capacity_);
}

Result<Ring> Ring::make(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  Ring ring;
  ring.capacity_ = (bytes + page - 1) / page * page;
  const Socket file(::memfd_create("tutti-tcp-ring", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.number(), static_cast<off_t>(ring.capacity_)) != 0)
    return system_failure("cannot make memory for a connection", errno);
  // Room for both mappings first, so that nothing else can come to lie in between.
  void* space = ::mmap(nullptr, 2 * ring.capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (space == MAP_FAILED) return system_failure("cannot make memory for a connection", errno);
  ring.base_ = static_cast<std::byte*>(space);
  if (map(ring.base_, ring.capacity_, file.number()) == nullptr ||
      map(ring.base_ + ring.capacity_, ring.capacity_, file.number()) == nullptr)
    return system_failure("cannot make memory for a connection", errno);
  return ring;
}

}  // namespace tutti::transport::tcp
