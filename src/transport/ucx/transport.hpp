// transport.hpp: ranks that reach each other through UCX (libucp), over whatever network UCX finds:
// InfiniBand, RoCE, TCP, shared memory. Frames only, as active messages between two rings.
//
// UCX is opened at run time, so that Tutti starts where it is not installed
// (docs/adr/0025-ucx-is-opened-at-run-time.md). Which devices and protocols it takes is left to
// UCX's own variables (UCX_TLS, UCX_NET_DEVICES). Does not know how the ranks met: the exchange
// function brings the addresses. What is protected, and what not, stands in wire.hpp.
#pragma once

#include <memory>
#include <string>

#include "base/log.hpp"
#include "transport/options.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport {

// How much of what UCX says is shown; and what tests want otherwise than users do.
struct UcxOptions {
  base::LogLevel log = base::LogLevel::warn;
  std::string transports{};  // as UCX_TLS; empty: that variable
  bool all_remote = false;   // treat ranks of this host as if they were on others
};

// Whether this process can have it at all. Ok, or why not, with the remedy. Threading: any thread.
Status can_use_ucx();

// The connections of one rank. All ranks call it together, as they share the exchange.
// Errors    unsupported: built without UCX, or the library is not there, or too old, or this is a
//           child forked from a process that uses it; system_error of UCX; mismatch of options;
//           they reach every rank and name the one that has them. Also what `exchange` returns.
// Blocking  in `exchange`, and in UCX's own initialisation (some ten milliseconds).
Result<std::unique_ptr<Transport>> make_ucx_transport(const TransportOptions& options,
                                                      const UcxOptions& ucx,
                                                      const ExchangeFunction& exchange);

}  // namespace tutti::transport
