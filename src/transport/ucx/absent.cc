// absent.cc: what stands in for this transport where it was built without UCX's headers.
#include "transport/ucx/transport.hpp"
#include "transport/ucx/wire.hpp"

namespace tutti::transport {

Status can_use_ucx() {
  return Status(StatusCode::unsupported,
                "this Tutti was built without UCX; install its headers (Debian and Ubuntu: apt "
                "install libucx-dev) and build again, or use TUTTI_TRANSPORT=tcp");
}

// Says it through the exchange, so that no rank waits for this one.
Result<std::unique_ptr<Transport>> make_ucx_transport(const TransportOptions&, const UcxOptions&,
                                                      const ExchangeFunction& exchange) {
  ucx::Card card;
  card.status = can_use_ucx();
  static_cast<void>(exchange(ucx::encode_card(card)));
  return card.status;
}

}  // namespace tutti::transport
