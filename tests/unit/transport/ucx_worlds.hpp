// ucx_worlds.hpp: worlds of ranks of this process that talk through UCX.
#pragma once

#include "transport/ucx/transport.hpp"
#include "unit/transport/conformance.hpp"

namespace tutti::transport::conformance {

inline World make_ucx_world(const TransportOptions& options, const UcxOptions& ucx) {
  return make_by_exchange(options, [&](const TransportOptions& mine, const ExchangeFunction& with) {
    return make_ucx_transport(mine, ucx, with);
  });
}

}  // namespace tutti::transport::conformance
