// Identity of the host from the kernel, addresses from the routing table.
#include "runtime/host.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/cpu.hpp"

namespace tutti::runtime {
namespace {

// The boot identity tells hosts apart; the network namespace tells apart containers on one host
// that cannot reach each other's abstract sockets.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  return boot + "/" + std::string(space.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

std::string text_of(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

Result<std::string> address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    return Status(StatusCode::system_error, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::string known;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (name == entry->ifa_name) return text_of(entry->ifa_addr, length);
    known += std::string(" ") + entry->ifa_name;
  }
  return Status(StatusCode::invalid_argument,
                fmt::format("no network interface '{}' with an address (TUTTI_SOCKET_INTERFACE); "
                            "there are:{}",
                            name, known));
}

}  // namespace

std::uint64_t draw_job() {
  std::uint64_t job = 0;
  if (getrandom(&job, sizeof job, 0) != static_cast<ssize_t>(sizeof job) || job == 0)
    job = static_cast<std::uint64_t>(getpid());
  return job;
}

HostCard describe_host() {
  HostCard card;
  card.job = draw_job();
  card.host = host_identity();
  for (const base::Core& core : base::allowed_cores())
    card.cpus.insert(card.cpus.end(), core.begin(), core.end());
  return card;
}

std::string encode(const HostCard& card) {
  const nlohmann::json json{{"host", card.host},         {"cpus", card.cpus},
                            {"settings", card.settings}, {"job", card.job},
                            {"tuning", card.tuning},     {"tuning_source", card.tuning_source}};
  // Settings come from the environment and may hold any bytes; by default JSON would throw.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<HostCard> decode_host_card(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto bad = [] { return Status(StatusCode::corrupt_data, "a host card makes no sense"); };
  if (!json.is_object()) return bad();
  HostCard card;
  for (const auto& [key, target] :
       {std::pair{"host", &card.host}, std::pair{"settings", &card.settings},
        std::pair{"tuning_source", &card.tuning_source}}) {
    if (!json.contains(key) || !json[key].is_string()) return bad();
    *target = json[key].get<std::string>();
  }
  if (!json.contains("cpus") || !json["cpus"].is_array()) return bad();
  for (const auto& [key, target] :
       {std::pair{"job", &card.job}, std::pair{"tuning", &card.tuning}}) {
    if (!json.contains(key) || !json[key].is_number_unsigned()) return bad();
    *target = json[key].get<std::uint64_t>();
  }
  for (const auto& cpu : json["cpus"]) {
    if (!cpu.is_number_integer()) return bad();
    card.cpus.push_back(cpu.get<int>());
  }
  return card;
}

Result<std::string> address_toward(const std::string& destination, const std::string& interface) {
  if (!interface.empty()) return address_of_interface(interface);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(destination.c_str(), "9", &hints, &found); error != 0)
    return Status(StatusCode::invalid_argument,
                  fmt::format("cannot resolve '{}': {}", destination, gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  // Connecting a datagram socket sends nothing; it only asks the routing table.
  const int probe = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage mine{};
  socklen_t length = sizeof mine;
  const bool ok = probe >= 0 && connect(probe, found->ai_addr, found->ai_addrlen) == 0 &&
                  getsockname(probe, reinterpret_cast<sockaddr*>(&mine), &length) == 0;
  if (probe >= 0) close(probe);
  if (ok) return text_of(reinterpret_cast<const sockaddr*>(&mine), length);
  return Status(StatusCode::invalid_argument,
                fmt::format("there is no route to '{}'", destination));
}

}  // namespace tutti::runtime
