// interfaces.hpp: the address at which a process can be reached, chosen as NCCL_SOCKET_IFNAME says.
//
// The variable lists prefixes of names, separated by commas: "eth,ib". With "=" in front the names
// are whole, with "^" they are those that are not wanted. Without it: the first interface that is
// up and neither loopback nor a container's bridge; the loopback where there is no other.
//
// Choosing is a pure function of what the system lists, so that tests can bring their own lists.
#pragma once

#include <string>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::nccl {

struct Interface {
  std::string name;
  std::string address;  // numeric
  bool loopback = false;
};

// The first that `wanted` names, in the order of `all`.
// Errors  invalid_argument, listing those that there are.
Result<Interface> choose_interface(const std::vector<Interface>& all, const std::string& wanted);

// Those of this host that are up and have an address, IPv4 before IPv6. Errors  system_error.
Result<std::vector<Interface>> list_interfaces();

}  // namespace tutti::nccl
