// throttled_transport.hpp: a transport made as slow as a network, by the clock: so many bytes in a
// second, and a latency for each frame. For tests and measurements on one machine of what only
// slow links show: whether communication hides behind computing, what fewer bytes are worth.
//
// A frame leaves when the sender's token bucket has paid for it, and arrives when the latency is
// over: that time travels in the frame, and the receiver is not shown it earlier. Meanwhile
// reserve() finds no room and peek() finds nothing; nobody sleeps but in sleep(), which ends when
// there is something to do. Signals are not throttled, so no memory is offered for direct access.
//
// Does not know the transport beneath, nor who else uses the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "tutti/transport.hpp"

namespace tutti::kit {

// By how much a throttled transport's frame_bytes_max() is below that of the one beneath: behind
// each payload, so that it lies as it always does, stands when the frame arrives.
inline constexpr std::size_t kStampBytes = sizeof(std::int64_t);

// What shares one bucket. Communicators never share one.
enum class ThrottleScope : std::uint8_t {
  link,  // all frames from one rank to another
  rank,  // all that a rank sends, and all that it receives
};

struct ThrottleOptions {
  std::int64_t bytes_per_s = 0;
  // What may pass at once after a pause. Who looks only once in a millisecond, like the library's
  // progress thread, keeps a link busy if this is what passes in two.
  std::int64_t bucket_bytes = 64 * 1024;
  std::int64_t latency_us = 0;
  ThrottleScope scope = ThrottleScope::link;
  // Units: ns, from 0 on; the same clock for all ranks. Empty: the system's monotonic clock, which
  // is the same for all processes of a host.
  std::function<std::int64_t()> clock_ns;
  // Told of every frame that is sent: to whom, how long it is, when it will have left. Called on
  // the thread that drives the rank. May be empty.
  std::function<void(Rank to, std::size_t bytes, std::int64_t leaves_ns)> on_send;
};

// `inner`, slowed down. All ranks make it, with the same options, or none does.
// Requires  bytes_per_s > 0, and inner->frame_bytes_max() is more than the 8 that a frame gets.
// Errors    besides those of `inner`: corrupt_data, when the peer's frames tell no time.
std::unique_ptr<Transport> make_throttled_transport(std::unique_ptr<Transport> inner,
                                                    const ThrottleOptions& options);

// For CommunicatorOptions::wrap_transport.
std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> throttle(
    const ThrottleOptions& options);

}  // namespace tutti::kit
