// net_plugin_conformance_test.cc: net plugins of every version pass the suite of all transports
// (conformance_test.cc), also one that answers "not yet" wherever it may.
#include "transport/checked/transport.hpp"
#include "unit/transport/kit_worlds.hpp"
#include "unit/transport/net_plugin_worlds.hpp"

namespace tutti::transport::conformance {
namespace {

World make_v8(const TransportOptions& options) { return make_net_plugin_world(options, "kit_v8"); }
World make_v9(const TransportOptions& options) { return make_net_plugin_world(options, "kit_v9"); }
World make_v10(const TransportOptions& options) {
  return make_net_plugin_world(options, "kit_v10");
}
World make_v11(const TransportOptions& options) {
  return make_net_plugin_world(options, "kit_v11");
}

World make_awkward(const TransportOptions& options, const std::string& plugin) {
  return make_net_plugin_world(options, plugin,
                               {.null_every = 3, .bytes = 1000, .connect_calls = 3});
}
World make_awkward_v8(const TransportOptions& options) { return make_awkward(options, "kit_v8"); }
World make_awkward_v11(const TransportOptions& options) { return make_awkward(options, "kit_v11"); }

World make_checked_v11(const TransportOptions& options) {
  TransportOptions beneath = options;
  beneath.frame_bytes_max += kChecksumBytes;
  World world = make_v11(beneath);
  for (auto& transport : world.transports)
    transport = make_checked_transport(std::move(transport), options.context);
  return world;
}

const TransportCase kNetCases[] = {
    {.name = "net_plugin_v8", .make = make_v8},
    {.name = "net_plugin_v9", .make = make_v9},
    {.name = "net_plugin_v10", .make = make_v10},
    {.name = "net_plugin_v11", .make = make_v11},
    {.name = "net_plugin_awkward_v8", .make = make_awkward_v8},
    {.name = "net_plugin_awkward_v11", .make = make_awkward_v11},
    {.name = "net_plugin_checked", .make = make_checked_v11},
    {.name = "net_plugin_counted", .make = make_counted<make_v11>},
    {.name = "throttled_net_plugin", .make = make_throttled<make_v11>},
};

INSTANTIATE_TEST_SUITE_P(NetPlugin, TransportConformance, testing::ValuesIn(kNetCases),
                         [](const auto& shown) { return shown.param.name; });

}  // namespace
}  // namespace tutti::transport::conformance
