// transport.hpp: ranks that reach each other through a net plugin of NCCL's interface, version 8 to
// 11. Frames only: they are copied into memory that the plugin knows, and out of it.
//
// Each rank listens once for every peer and channel, because a plugin's listener serves one
// connection. Does not know how the ranks met: the exchange function brings the handles. What a
// plugin's wire protects, and what not, stands in wire.hpp.
#pragma once

#include <memory>

#include "transport/net_plugin/plugin.hpp"
#include "transport/options.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport {

// The connections of one rank. All ranks call it together, as they share the exchange; those of one
// process take the plugin's devices in turn, by their rank.
// Errors    unsupported: no plugin, or one that cannot carry this; system_error of the plugin;
//           mismatch of options or plugins; they reach every rank and name the one that has them.
//           Also what `exchange` returns.
// Blocking  in `exchange`, and in the plugin's own initialisation.
// Cost      a plugin cannot say when something has happened, so that sleep() asks it again and
//           again, with pauses of at most 0.1 ms.
Result<std::unique_ptr<Transport>> make_net_plugin_transport(
    const TransportOptions& options, const net_plugin::PluginOptions& plugin,
    const ExchangeFunction& exchange);

}  // namespace tutti::transport
