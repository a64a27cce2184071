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

bool paces(std::string_view control) { return control.substr(0, kPacing.size()) == kPacing; }

void choose(const Socket& socket, std::string_view control) {
  ::setsockopt(socket.number(), IPPROTO_TCP, TCP_CONGESTION, control.data(),
               static_cast<socklen_t>(control.size()));
}

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

void begin_unpaced(const Socket& socket) {
  if (paces(congestion_control(socket.number()))) choose(socket, kEverywhere);
}

void pace_if_far(const Socket& socket) {
  if (is_near(socket.number())) return;
  const Socket fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string systems = congestion_control(fresh.number());
  if (paces(systems)) choose(socket, systems);
}

Result<Socket> start_connecting_unpaced(const SocketAddress& address) {
  return start_connecting(address, begin_unpaced);
}

}  // namespace tutti::transport::tcp
