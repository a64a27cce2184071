// plugin.hpp: finds a net plugin by the names that NCCL's users know, and shows one device of it in
// one shape, whichever version of the interface it has.
//
// A plugin is a library that somebody else wrote and that runs in our process: we cannot keep it
// from doing harm, but what it says is checked before it is believed. Knows dlopen and abi.hpp;
// does not know ranks, frames or when connections are made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "transport/net_plugin/abi.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::net_plugin {

// Which plugin, and what it may say.
struct PluginOptions {
  std::string names;  // as NCCL_NET_PLUGIN: names with commas between, "none"; empty: the default
  base::LogLevel log = base::LogLevel::warn;
};

// Where somebody listens, as the plugin writes it. Connecting may write notes into it.
struct Handle {
  alignas(16) std::array<std::byte, abi::kHandleBytes> bytes{};
};

// What a device says of itself, within bounds.
struct DeviceProperties {
  std::string name;
  std::string pci_path;
  bool host_memory = false;
  bool driven_by_host = false;
  int speed_mbps = 0;  // 0: not known
  int connections_max = 0;
  int receives_max = 0;
  std::size_t message_bytes_max = 0;  // 0: no limit
};

// One device of a plugin, as one communicator uses it.
//
// Connections, listeners, registrations and requests are the plugin's pointers. Each of them is
// closed, or tested until it is done, by whoever got it, and before the device.
//
// Threading  one thread at a time; different devices of a plugin may be used at once.
// Blocking   never, as far as the plugin keeps its promise.
// Errors     system_error with the function and what it returned; the pointer is null then. A null
//            pointer without an error means "not yet": ask again.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view plugin_name() const = 0;
  virtual int version() const = 0;
  virtual const DeviceProperties& properties() const = 0;

  virtual Status listen(Handle& handle, void*& listener) = 0;
  virtual Status connect(Handle& handle, void*& sender) = 0;
  virtual Status accept(void* listener, void*& receiver) = 0;
  // A registration may be null without being missing.
  virtual Status register_memory(void* connection, void* data, std::size_t bytes,
                                 void*& registration) = 0;
  virtual void deregister_memory(void* connection, void* registration) = 0;
  virtual Status send(void* sender, void* data, std::size_t bytes, void* registration,
                      void*& request) = 0;
  virtual Status receive(void* receiver, void* data, std::size_t bytes, void* registration,
                         void*& request) = 0;
  // `bytes`: how many came, once it is done. Errors  also corrupt_data: it cannot be so many.
  virtual Status test(void* request, std::size_t bytes_max, bool& done, std::size_t& bytes) = 0;
  virtual void close_sender(void* sender) = 0;
  virtual void close_receiver(void* receiver) = 0;
  virtual void close_listener(void* listener) = 0;
};

// The first plugin of the list that can be used, and one of its devices: those that take host
// memory in turn, by `turn`. A plugin stays loaded as long as the process: it may have threads.
// Versions before 11 are initialised once in a process, later ones here.
// Requires  turn >= 0.
// Errors    unsupported, with every name that was tried and what was wrong with it.
// Threading any thread.
Result<std::unique_ptr<Device>> open_device(const PluginOptions& options,
                                            std::uint64_t communicator, int turn);

}  // namespace tutti::transport::net_plugin
