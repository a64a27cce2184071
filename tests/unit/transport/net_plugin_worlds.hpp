// net_plugin_worlds.hpp: worlds of ranks that talk through the net plugin of tests/kit, and how
// that misbehaves.
#pragma once

#include <cstdlib>
#include <string>

#include "transport/net_plugin/transport.hpp"
#include "unit/transport/conformance.hpp"

namespace tutti::transport::conformance {

// See tests/kit/net_plugin/sockets.hpp; of the connections that are made from now on.
struct NetFaults {
  int null_every = 0;
  int bytes = 0;
  int connect_calls = 0;
  int fail_after = 0;
  int refuse = 0;
  int deaf = 0;
  int excess = 0;
};

// Requires  that no rank is driven at the moment.
inline void set_net_faults(const NetFaults& faults) {
  const auto set = [](const char* name, int value) {
    ::setenv(name, std::to_string(value).c_str(), 1);
  };
  set("KIT_NET_NULL_EVERY", faults.null_every);
  set("KIT_NET_BYTES", faults.bytes);
  set("KIT_NET_CONNECT_CALLS", faults.connect_calls);
  set("KIT_NET_FAIL_AFTER", faults.fail_after);
  set("KIT_NET_REFUSE", faults.refuse);
  set("KIT_NET_DEAF", faults.deaf);
  set("KIT_NET_EXCESS", faults.excess);
}

// What most tests of net plugins ask for.
inline TransportOptions ranks(int size) {
  TransportOptions options;
  options.size = size;
  options.frame_bytes_max = 4096;
  options.queue_bytes = 16384;
  options.context = 7;
  options.job_secret = "s3cret";
  return options;
}

// Polls until the transport fails, and says how; ok when it does not for a while.
inline Status failure_of(Transport& transport) {
  Status status;
  for (int i = 0; i < 4000 && status.ok(); ++i) {
    status = transport.poll().status();
    if (status.ok()) transport.sleep(1000);
  }
  return status;
}

inline World make_net_plugin_world(const TransportOptions& options, const std::string& plugin,
                                   const NetFaults& faults = {}) {
  set_net_faults(faults);
  return make_by_exchange(options, [&](const TransportOptions& mine, const ExchangeFunction& with) {
    return make_net_plugin_transport(mine, {.names = plugin}, with);
  });
}

}  // namespace tutti::transport::conformance
