// v11.cc: the table of version 11.
#include "kit/net_plugin/tables.hpp"

namespace kit::net {
namespace {

// Version 11 has a context for each communicator.
struct Context : Counted {};

int init_context(void** context, std::uint64_t, abi::CommunicatorSettings* settings,
                 abi::Logger logger, abi::ProfilerCallback) {
  if (settings == nullptr) return kInvalidUsage;
  *context = new Context;
  return begin(logger);
}

int finalize(void* context) {
  delete static_cast<Context*>(context);
  return kSuccess;
}

int listen_in(void* context, int device, void* handle, void** listener) {
  return context == nullptr ? kInvalidUsage : listen_on(device, handle, listener);
}

int connect_in(void* context, int device, void* handle, void** sender,
               abi::DeviceHandle** offload) {
  if (context == nullptr) return kInvalidUsage;
  return connect_from(device, handle, sender, offload);
}

abi::NetV11 table_11() {
  auto made = table<abi::NetV11>();
  made.init = init_context;
  made.listen = listen_in;
  made.connect = connect_in;
  made.send = send_with_parent;
  made.receive = receive_with_parents;
  made.finalize = finalize;
  return made;
}

}  // namespace
}  // namespace kit::net

extern "C" {
[[gnu::visibility("default")]] kit::net::abi::NetV11 ncclNetPlugin_v11 = kit::net::table_11();
}
