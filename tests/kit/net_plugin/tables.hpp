// tables.hpp: what the tables of all versions share: the network of sockets.hpp under the names
// that a loader of net plugins knows. Each version has a file of its own, and each test library
// some of them.
//
// KIT_NET_ODD makes what it says of itself nonsense; KIT_NET_HOLE leaves out what tests requests;
// KIT_NET_DEVICES is how many devices it has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "kit/net_plugin/sockets.hpp"
#include "transport/net_plugin/abi.hpp"

#ifndef KIT_NET_DEVICES
#define KIT_NET_DEVICES 3
#endif
#ifdef KIT_NET_HOLE
#define KIT_NET_HAS_HOLE true
#else
#define KIT_NET_HAS_HOLE false
#endif

namespace kit::net {

namespace abi = tutti::transport::net_plugin::abi;

#ifdef KIT_NET_ODD
inline constexpr const char* kName = nullptr;
inline constexpr bool kOdd = true;
#else
inline constexpr const char* kName = "kit";
inline constexpr bool kOdd = false;
#endif
inline constexpr int kDevices = KIT_NET_DEVICES;

inline int initialisations = 0;

inline int devices(int* count) {
  *count = kDevices;
  return initialisations > 0 ? kSuccess : kInvalidUsage;
}

// The first device takes no host memory, so that who looks at the first only fails.
template <typename Properties>
int properties(int device, Properties* to) {
  static char name[] = "kit0";
  *to = Properties{};
  to->name = kOdd ? nullptr : name;
  to->pointers = device == 0 && kDevices > 1 ? 2 : abi::kHostPointers;
  to->speed_mbps = kOdd ? -5 : 10'000 + device;
  to->connections_max = kOdd ? -1 : 1 << 16;
  to->receives_max = 1;
  if constexpr (!std::is_same_v<Properties, abi::PropertiesV8>)
    to->message_bytes_max = std::size_t{1} << 30;
  return kSuccess;
}

inline bool usable(int device) { return device >= std::min(1, kDevices - 1) && device < kDevices; }

inline int begin(abi::Logger logger) {
  if (logger == nullptr) return kInvalidUsage;
  initialisations += 1;
  logger(abi::log_info, ~0UL, __FILE__, __LINE__, "kit network, initialisation %d",
         initialisations);
  return kSuccess;
}

inline int init_once(abi::Logger logger) {
  return initialisations > 0 ? kInvalidUsage : begin(logger);
}

inline int init_once_profiled(abi::Logger logger, abi::ProfilerCallback) {
  return init_once(logger);
}

inline int listen_on(int device, void* handle, void** listener) {
  return usable(device) ? listen(handle, listener) : kInvalidUsage;
}

inline int connect_from(int device, void* handle, void** sender, abi::DeviceHandle** offload) {
  if (!usable(device) || offload == nullptr || *offload != nullptr) return kInvalidUsage;
  return connect(handle, sender);
}

inline int accept_one(void* listener, void** receiver, abi::DeviceHandle** offload) {
  if (offload == nullptr || *offload != nullptr) return kInvalidUsage;
  return accept(listener, receiver);
}

inline int send_plain(void* sender, void* data, std::size_t bytes, int tag, void* registration,
                      void** request) {
  return send(sender, data, bytes, tag, registration, request);
}

inline int receive_plain(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                         void** registrations, void** request) {
  return receive(receiver, count, data, bytes, tags, registrations, request);
}

inline int send_with_parent(void* sender, void* data, std::size_t bytes, int tag,
                            void* registration, void*, void** request) {
  return send(sender, data, bytes, tag, registration, request);
}

inline int receive_with_parents(void* receiver, int count, void** data, std::size_t* bytes,
                                int* tags, void** registrations, void**, void** request) {
  return receive(receiver, count, data, bytes, tags, registrations, request);
}

template <typename Table>
Table table() {
  Table made{};
  made.name = kName;
  made.devices = devices;
  made.properties = properties<typename Table::Properties>;
  made.accept = accept_one;
  made.register_memory = register_memory;
  made.deregister_memory = deregister_memory;
  if (!KIT_NET_HAS_HOLE) made.test = test;
  made.close_sender = close_connection;
  made.close_receiver = close_connection;
  made.close_listener = close_listener;
  return made;
}

}  // namespace kit::net
