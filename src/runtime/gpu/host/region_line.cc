// region_line.cc: see region_line.hpp.
#include "runtime/gpu/host/region_line.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

namespace tutti::runtime::gpu {

static_assert(std::is_trivially_copyable_v<RegionNews>, "it travels as it lies");
static_assert(std::has_unique_object_representations_v<RegionNews>, "there are no gaps in it");

namespace {

// Messages to a peer that does not listen, which are more than ranks ever owe each other.
constexpr std::size_t kUnsentMax = 1 << 14;

}  // namespace

void RegionNews::set_why(const std::string& text) {
  const std::size_t length = std::min(text.size(), why.size() - 1);
  std::copy_n(text.begin(), length, why.begin());
  why[length] = 0;
}

Result<RegionDoor> make_region_door() {
  std::array<std::uint64_t, 2> number = {};
  RegionDoor door;
  if (::getentropy(number.data(), sizeof number) != 0 ||
      ::getentropy(door.secret.data(), door.secret.size()) != 0)
    return Status(StatusCode::system_error,
                  std::string("no random numbers: ") + std::strerror(errno));
  const std::string name = fmt::format("tutti-gpu-{:016x}{:016x}", number[0], number[1]);
  static_assert(sizeof "tutti-gpu-" + 32 <= sizeof door.name);
  std::copy(name.begin(), name.end(), door.name.begin());
  return door;
}

void RegionLine::lose() {
  lost_ = true;
  socket_.close();
  unsent_.clear();
  heard_descriptor_.close();
}

std::size_t RegionLine::unsent_descriptors() const {
  return static_cast<std::size_t>(
      std::count_if(unsent_.begin(), unsent_.end(),
                    [](const Unsent& message) { return message.descriptor.open(); }));
}

void RegionLine::say(const RegionNews& news, base::Descriptor descriptor) {
  if (lost_) return;
  if (unsent_.size() >= kUnsentMax) return lose();
  unsent_.push_back({news, std::move(descriptor), 0});
  flush();
}

// A descriptor goes with the first byte.
std::ptrdiff_t RegionLine::send_some(const Unsent& message) const {
  auto* const bytes = reinterpret_cast<std::byte*>(const_cast<RegionNews*>(&message.news));
  iovec data = {bytes + message.sent, sizeof message.news - message.sent};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (message.descriptor.open() && message.sent == 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = message.descriptor.number();
    std::memcpy(CMSG_DATA(rights), &number, sizeof number);
  }
  return ::sendmsg(socket_.number(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void RegionLine::flush() {
  while (has_more()) {
    Unsent& message = unsent_.front();
    const std::ptrdiff_t sent = send_some(message);
    if (sent > 0) {
      message.sent += static_cast<std::size_t>(sent);
      message.descriptor.close();
      if (message.sent == sizeof message.news) unsent_.pop_front();
    } else if (sent < 0 && errno == EINTR) {
      continue;
    } else if (sent < 0 && errno == ETOOMANYREFS && message.descriptor.open()) {
      // More are under way than this user may have: it goes without, and is refused.
      message.descriptor.close();
    } else {
      const bool full = sent < 0 && (errno == EAGAIN || errno == ENOBUFS);
      if (!full) lose();
      return;
    }
  }
}

// A message never takes more than one descriptor along: the others are closed, and so is the line.
RegionLine::Got RegionLine::receive_some() {
  std::array<std::byte, sizeof(RegionNews)> part;
  iovec data = {part.data(), sizeof(RegionNews) - heard_.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket_.number(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == EINTR) return Got::some;
  if (got < 0 && errno == EAGAIN) return Got::nothing;
  if (got <= 0) return Got::end;
  std::vector<base::Descriptor> descriptors = base::take_descriptors(header);
  if (descriptors.size() + (heard_descriptor_.open() ? 1 : 0) > 1) return Got::end;
  if (!descriptors.empty()) heard_descriptor_ = std::move(descriptors.front());
  heard_.insert(heard_.end(), part.begin(), part.begin() + got);
  return Got::some;
}

std::optional<HeardNews> RegionLine::hear() {
  while (socket_.open() && heard_.size() < sizeof(RegionNews)) {
    const Got got = receive_some();
    if (got == Got::end) lose();
    if (got != Got::some) return std::nullopt;
  }
  if (heard_.size() < sizeof(RegionNews)) return std::nullopt;
  HeardNews heard;
  std::memcpy(&heard.news, heard_.data(), sizeof heard.news);
  heard.descriptor = std::move(heard_descriptor_);
  heard_.clear();
  const bool is_ours = heard.news.magic == RegionNews::kMagic;
  if (is_ours && (!heard.descriptor.open() || heard.news.kind == PartKind::descriptor)) {
    heard.news.why.back() = 0;
    return heard;
  }
  lose();  // whatever that is, it is no rank of ours
  return std::nullopt;
}

}  // namespace tutti::runtime::gpu
