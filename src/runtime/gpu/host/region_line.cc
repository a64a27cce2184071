// region_line.cc: see region_line.hpp.
#include "runtime/gpu/host/region_line.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

namespace tutti::runtime::gpu {

static_assert(std::is_trivially_copyable_v<RegionNews>, "it travels as it lies");

void RegionNews::set_why(const std::string& text) {
  const std::size_t bytes = std::min(text.size(), why.size() - 1);
  std::copy_n(text.begin(), bytes, why.begin());
  why[bytes] = 0;
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
}

void RegionLine::say(const RegionNews& news) {
  if (lost_) return;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&news);
  unsent_.insert(unsent_.end(), bytes, bytes + sizeof news);
  flush();
}

void RegionLine::flush() {
  while (has_more()) {
    const ssize_t sent =
        ::send(socket_.number(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
    } else if (sent < 0 && errno == EINTR) {
      continue;
    } else {
      const bool full = sent < 0 && (errno == EAGAIN || errno == ENOBUFS);
      if (!full) lose();
      return;
    }
  }
}

std::optional<RegionNews> RegionLine::hear() {
  while (socket_.open() && heard_.size() < sizeof(RegionNews)) {
    std::array<std::byte, sizeof(RegionNews)> part;
    const ssize_t got =
        ::recv(socket_.number(), part.data(), sizeof(RegionNews) - heard_.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return std::nullopt;
    if (got <= 0) {
      lose();
      return std::nullopt;
    }
    heard_.insert(heard_.end(), part.begin(), part.begin() + got);
  }
  if (heard_.size() < sizeof(RegionNews)) return std::nullopt;
  RegionNews news;
  std::memcpy(&news, heard_.data(), sizeof news);
  heard_.clear();
  if (news.magic == RegionNews::kMagic) {
    news.why.back() = 0;
    return news;
  }
  lose();  // whatever that is, it is no rank of ours
  return std::nullopt;
}

}  // namespace tutti::runtime::gpu
