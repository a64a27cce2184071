// The calls of userfaultfd(2), and which of its features are needed.
#include "transport/shm/watch.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tutti::transport::shm {
namespace {

// Linux 5.19 has all of these; older headers do not name them.
constexpr std::uint64_t kHoldFeatures = 1U << 0       // write protection of memory of no file
                                        | 1U << 12;   // and of memory files
constexpr std::uint64_t kWatchFeatures = 1U << 2      // memory is moved
                                         | 1U << 3    // emptied
                                         | 1U << 6    // unmapped
                                         | 1U << 10;  // touched, of memory files
constexpr std::uint64_t kRegisterWriteProtect = 1U << 1;
constexpr std::uint64_t kRegisterMinor = 1U << 2;
constexpr std::size_t kPageBytes = 4096;

struct Continue {  // uffdio_continue
  uffdio_range range;
  std::uint64_t mode;
  std::int64_t mapped;
};
struct WriteProtect {  // uffdio_writeprotect
  uffdio_range range;
  std::uint64_t mode;
};
constexpr unsigned long kContinue = _IOWR(UFFDIO, 0x07, Continue);
constexpr unsigned long kWriteProtect = _IOWR(UFFDIO, 0x06, WriteProtect);
constexpr unsigned long kNewFromDevice = _IO(UFFDIO, 0x00);

// The device's permissions are how an administrator gives this to everybody.
int open_userfaultfd() {
  const long direct = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  if (direct >= 0) return static_cast<int>(direct);
  const base::Descriptor device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  return device.open() ? ioctl(device.number(), kNewFromDevice, O_CLOEXEC | O_NONBLOCK) : -1;
}

Status open_with(std::uint64_t features, base::Descriptor& file) {
  file = base::Descriptor(open_userfaultfd());
  if (!file.open())
    return Status(StatusCode::unsupported,
                  std::string("userfaultfd: ") + std::strerror(errno) +
                      "; memory that is in use can be shared only with it: let this process use "
                      "/dev/userfaultfd, or set vm.unprivileged_userfaultfd=1, or take memory "
                      "from tutti::allocate");
  uffdio_api api = {};
  api.api = UFFD_API;
  api.features = features;
  if (ioctl(file.number(), UFFDIO_API, &api) == 0) return {};
  file.close();
  return Status(StatusCode::unsupported,
                "userfaultfd lacks features of Linux 5.19; take memory from tutti::allocate");
}

bool register_range(int file, std::uintptr_t memory, std::size_t bytes, std::uint64_t mode) {
  uffdio_register ask = {};
  ask.range = {memory, bytes};
  ask.mode = mode;
  return ioctl(file, UFFDIO_REGISTER, &ask) == 0;
}

void unregister_range(int file, std::uintptr_t memory, std::size_t bytes) {
  uffdio_range range = {memory, bytes};
  ioctl(file, UFFDIO_UNREGISTER, &range);
}

void wake_range(int file, std::uintptr_t memory, std::size_t bytes) {
  uffdio_range range = {memory, bytes};
  ioctl(file, UFFDIO_WAKE, &range);
}

}  // namespace

Status Hold::open() { return open_with(kHoldFeatures, file_); }

bool Hold::begin(std::uintptr_t memory, std::size_t bytes) {
  if (!register_range(file_.number(), memory, bytes, kRegisterWriteProtect)) return false;
  WriteProtect ask = {};
  ask.range = {memory, bytes};
  ask.mode = 1;
  if (ioctl(file_.number(), kWriteProtect, &ask) == 0) return true;
  unregister_range(file_.number(), memory, bytes);
  return false;
}

// Memory has one userfaultfd at most; to ask for it changes nothing that anybody sees.
bool Hold::is_watched(std::uintptr_t memory, std::size_t bytes) const {
  if (!register_range(file_.number(), memory, bytes, kRegisterWriteProtect)) return errno == EBUSY;
  unregister_range(file_.number(), memory, bytes);
  return false;
}

void Hold::give_up(std::uintptr_t memory, std::size_t bytes) {
  unregister_range(file_.number(), memory, bytes);
}

void Hold::end_replaced(std::uintptr_t memory, std::size_t bytes) {
  wake_range(file_.number(), memory, bytes);
}

Status Watch::open() { return open_with(kWatchFeatures, file_); }

bool Watch::begin(std::uintptr_t memory, std::size_t bytes) {
  return register_range(file_.number(), memory, bytes, kRegisterMinor);
}

void Watch::end(std::uintptr_t memory, std::size_t bytes) {
  unregister_range(file_.number(), memory, bytes);
}

void Watch::wait() const {
  pollfd waiting = {file_.number(), POLLIN, 0};
  ::poll(&waiting, 1, -1);
}

WatchEvent Watch::next() const {
  uffd_msg message;
  if (read(file_.number(), &message, sizeof message) != sizeof message) return {};
  switch (message.event) {
    case UFFD_EVENT_UNMAP:
      return {WatchEvent::Kind::unmapped, message.arg.remove.start, message.arg.remove.end, 0};
    case UFFD_EVENT_REMOVE:
      return {WatchEvent::Kind::emptied, message.arg.remove.start, message.arg.remove.end, 0};
    case UFFD_EVENT_REMAP:
      return {WatchEvent::Kind::moved, message.arg.remap.from,
              message.arg.remap.from + message.arg.remap.len, message.arg.remap.to};
    case UFFD_EVENT_PAGEFAULT: {
      const std::uintptr_t page = message.arg.pagefault.address / kPageBytes * kPageBytes;
      return {WatchEvent::Kind::touched, page, page + kPageBytes, 0};
    }
    default:
      return {};
  }
}

// Asks for nothing, which is refused as such; but first the kernel looks whether it may be asked.
bool Watch::settled() const {
  Continue nothing = {};
  return ioctl(file_.number(), kContinue, &nothing) == 0 || errno != EAGAIN;
}

void Watch::show(std::uintptr_t page) const {
  Continue ask = {};
  ask.range = {page, kPageBytes};
  // Not there any more, or there already, or not to be asked just now: then they try again.
  if (ioctl(file_.number(), kContinue, &ask) != 0) wake(page, kPageBytes);
}

void Watch::wake(std::uintptr_t memory, std::size_t bytes) const {
  wake_range(file_.number(), memory, bytes);
}

}  // namespace tutti::transport::shm
