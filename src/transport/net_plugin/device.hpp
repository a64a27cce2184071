// device.hpp: the four versions of a net plugin's table behind one face.
//
// Knows abi.hpp; does not know where a table comes from (plugin.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "transport/net_plugin/plugin.hpp"

namespace tutti::transport::net_plugin {

// One version's table of a plugin.
class Interface {
 public:
  virtual ~Interface() = default;

  virtual int version() const = 0;

  // Initialises the plugin, where that is due, and makes one of its devices usable.
  // Errors  unsupported: the table has holes, the plugin refuses, or no device takes host memory.
  // Threading any thread.
  virtual Result<std::unique_ptr<Device>> open(std::uint64_t communicator, int turn) = 0;
};

// The newest version that a library has; null: none that we know.
std::unique_ptr<Interface> find_interface(void* library);

// What plugins call with a line of log, and who decides how much of it is shown.
abi::Logger logger();
void set_log_level(base::LogLevel level);

}  // namespace tutti::transport::net_plugin
