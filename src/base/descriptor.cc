// Closes what descriptor.hpp owns.
#include "base/descriptor.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace tutti::base {

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

std::vector<Descriptor> take_descriptors(msghdr& header) {
  std::vector<Descriptor> taken;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(control) + i * sizeof number, sizeof number);
      taken.emplace_back(number);
    }
  }
  return taken;
}

}  // namespace tutti::base
