// transport.hpp: ranks that reach each other by TCP, on one host or on many. Frames only: a peer's
// memory cannot be addressed.
//
// Each rank listens on a port of its own; whoever has something to send connects. Connections are
// accepted only with a proof of the job's secret. Does not know how the ranks met: the exchange
// function brings the addresses.
#pragma once

#include <memory>

#include "transport/options.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport {

// The connections of one rank. All ranks call it together, as they share the exchange.
// Requires  options.bind_address is an address of this host that the other ranks can reach, and is
//           loopback when options.job_secret is empty.
// Errors    invalid_argument, system_error, mismatch of options; they reach every rank and name
//           the one that has them. Also what `exchange` returns. Blocking  in `exchange`.
Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportOptions& options,
                                                      const ExchangeFunction& exchange);

}  // namespace tutti::transport
