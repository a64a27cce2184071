// interfaces.cc: see interfaces.hpp.
#include "nccl/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include <fmt/format.h>

namespace tutti::nccl {
namespace {

// Bridges of containers and virtual machines: their addresses lead to no other host.
constexpr std::string_view kBridges[] = {"docker", "virbr", "veth", "br-"};

struct Wish {
  bool exact = false;
  bool unwanted = false;
  std::vector<std::string> names;

  bool names_it(const std::string& name) const {
    return std::any_of(names.begin(), names.end(), [&](const std::string& wanted) {
      return exact ? name == wanted : name.starts_with(wanted);
    });
  }
  bool allows(const std::string& name) const { return names_it(name) != unwanted; }
};

Wish read_wish(std::string_view text) {
  Wish wish;
  if (text.starts_with('^')) {
    wish.unwanted = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    wish.exact = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    if (const auto name = text.substr(0, comma); !name.empty()) wish.names.emplace_back(name);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return wish;
}

bool leads_away(const Interface& one) {
  return !one.loopback &&
         std::none_of(std::begin(kBridges), std::end(kBridges),
                      [&](std::string_view bridge) { return one.name.starts_with(bridge); });
}

std::string names_of(const std::vector<Interface>& all) {
  std::string names;
  for (const Interface& one : all)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  return names.empty() ? "none" : names;
}

}  // namespace

Result<Interface> choose_interface(const std::vector<Interface>& all, const std::string& wanted) {
  const Wish wish = read_wish(wanted);
  if (wish.names.empty()) {
    const auto away = std::find_if(all.begin(), all.end(), leads_away);
    if (away != all.end()) return *away;
    if (!all.empty()) return all.front();
  }
  // Who only says what is not wanted leaves the rest to us.
  for (const Interface& one : all)
    if (!wish.names.empty() && wish.allows(one.name) && (!wish.unwanted || leads_away(one)))
      return one;
  for (const Interface& one : all)
    if (!wish.names.empty() && wish.allows(one.name)) return one;
  return Status(StatusCode::invalid_argument,
                fmt::format("NCCL_SOCKET_IFNAME={}: no such network interface is up; there is: {}",
                            wanted, names_of(all)));
}

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* listed = nullptr;
  if (::getifaddrs(&listed) != 0)
    return Status(StatusCode::system_error,
                  fmt::format("the network interfaces cannot be listed: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(listed, ::freeifaddrs);
  std::vector<Interface> all;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* each = listed; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      if ((each->ifa_flags & IFF_UP) == 0) continue;
      char host[NI_MAXHOST];
      const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (::getnameinfo(each->ifa_addr, bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
        continue;
      all.push_back({each->ifa_name, host, (each->ifa_flags & IFF_LOOPBACK) != 0});
    }
  return all;
}

}  // namespace tutti::nccl
