// transport.hpp: ranks that are processes of one host. Queues and the memory of tutti::allocate lie
// in memory files that the processes pass to each other over Unix sockets; no name is left behind
// however a process ends.
//
// Does not know other hosts: a rank on another one is an error that names it.
#pragma once

#include <memory>

#include "transport/options.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport {

// The connections of one rank. All ranks call it; connections to peers are made on first use.
// Blocking  for the exchange and the hand-out of the doorbells, at most 30 s.
// Errors    invalid_argument when ranks are on different hosts, peer_lost, timeout, system_error;
//           those of the exchange.
Result<std::unique_ptr<Transport>> make_shm_transport(const TransportOptions& options,
                                                      const ExchangeFunction& exchange);

}  // namespace tutti::transport
