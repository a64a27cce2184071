// v11.cc: the table of version 11. It counts how often it was begun and ended at the same time.
#include <atomic>
#include <chrono>
#include <thread>

#include "kit/net_plugin/tables.hpp"

namespace kit::net {
namespace {

// Version 11 has a context for each communicator.
struct Context : Counted {};

std::atomic<int> inside{0};
std::atomic<int> meetings{0};

// In a function that nobody else may be in, long enough to be met there.
class Alone {
 public:
  Alone() {
    if (inside.fetch_add(1) > 0) meetings.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() { inside.fetch_sub(1); }
};

int init_context(void** context, std::uint64_t, abi::CommunicatorSettings* settings,
                 abi::Logger logger, abi::ProfilerCallback) {
  const Alone alone;
  if (settings == nullptr) return kInvalidUsage;
  *context = new Context;
  return begin(logger);
}

int finalize(void* context) {
  const Alone alone;
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
[[gnu::visibility("default")]] int kit_net_meetings() { return kit::net::meetings.load(); }
[[gnu::visibility("default")]] kit::net::abi::NetV11 ncclNetPlugin_v11 = kit::net::table_11();
}
