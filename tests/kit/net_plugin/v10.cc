// v10.cc: the table of version 10.
#include "kit/net_plugin/tables.hpp"

namespace kit::net {
namespace {

int connect_with_settings(int device, abi::CommunicatorSettings* settings, void* handle,
                          void** sender, abi::DeviceHandle** offload) {
  if (settings == nullptr) return kInvalidUsage;
  return connect_from(device, handle, sender, offload);
}

abi::NetV10 table_10() {
  auto made = table<abi::NetV10>();
  made.init = init_once_profiled;
  made.listen = listen_on;
  made.connect = connect_with_settings;
  made.send = send_with_parent;
  made.receive = receive_with_parents;
  return made;
}

}  // namespace
}  // namespace kit::net

extern "C" {
[[gnu::visibility("default")]] kit::net::abi::NetV10 ncclNetPlugin_v10 = kit::net::table_10();
}
