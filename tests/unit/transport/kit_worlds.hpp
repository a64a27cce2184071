// kit_worlds.hpp: worlds of transports with what tests put around them (tests/kit) on each, for the
// conformance suite.
#pragma once

#include <memory>
#include <utility>

#include "kit/counting_transport.hpp"
#include "kit/throttled_transport.hpp"
#include "unit/transport/conformance.hpp"

namespace tutti::transport::conformance {

template <World (*make)(const TransportOptions&)>
World make_counted(const TransportOptions& options) {
  World world = make(options);
  for (auto& transport : world.transports) {
    auto counter = std::make_shared<kit::TrafficCounter>(transport->rank(), transport->size());
    transport = kit::make_counting_transport(std::move(transport), std::move(counter));
  }
  return world;
}

// The link is quick enough for tests that send much, and slow enough for every frame to be held
// back. Frames are as long as before.
template <World (*make)(const TransportOptions&)>
World make_throttled(const TransportOptions& options) {
  kit::ThrottleOptions slow;
  slow.bytes_per_s = 1'000'000'000;
  slow.bucket_bytes = 8192;
  slow.latency_us = 5;
  slow.scope = kit::ThrottleScope::rank;
  TransportOptions beneath = options;
  beneath.frame_bytes_max += kit::kStampBytes;
  World world = make(beneath);
  for (auto& transport : world.transports)
    transport = kit::make_throttled_transport(std::move(transport), slow);
  return world;
}

}  // namespace tutti::transport::conformance
