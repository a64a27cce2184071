// congestion.cc: see congestion.hpp.
#include "transport/tcp/congestion.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::transport::tcp {
namespace {

constexpr std::uint32_t kNearUs = 1000;
constexpr std::size_t kNameBytes = 16;       // that the system keeps of a name
constexpr std::string_view kPacing = "bbr";  // how the names of all its versions begin
constexpr std::string_view kEverywhere = "reno";

}  // namespace

std::string congestion_control(int socket) {
  std::array<char, kNameBytes> name{};
  socklen_t bytes = name.size();
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0) return {};
  const std::string_view padded(name.data(), bytes);
  return std::string(padded.substr(0, padded.find('\0')));
}

bool is_near(int socket) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_rtt > 0 &&
         info.tcpi_rtt < kNearUs;
}

void pace_only_far_ways(int socket) {
  if (congestion_control(socket).compare(0, kPacing.size(), kPacing) != 0 || !is_near(socket))
    return;
  ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kEverywhere.data(), kEverywhere.size());
}

}  // namespace tutti::transport::tcp
