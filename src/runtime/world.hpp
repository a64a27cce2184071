// world.hpp: how a communicator comes to be: who is in it, on which hosts, over which transport,
// and what all ranks agreed on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>

#include "runtime/communicator_state.hpp"
#include "runtime/members.hpp"
#include "transport/options.hpp"
#include "tutti/communicator.hpp"

namespace tutti::runtime {

// One slot of a queue: small enough that a few of them stay in a core's cache.
inline constexpr std::size_t kFrameBytes = 128 * 1024;
// A frame over sockets: their system calls cost more than what the cache keeps from one copy to the
// next. With two channels in use a peer still costs less than 1 MiB.
inline constexpr std::size_t kSocketFrameBytes = 240 * 1024;
// Of the transport of that name. `slice_bytes`: as it is wished, 0 for none.
constexpr std::size_t frame_bytes_of(std::string_view transport, std::size_t slice_bytes) {
  return std::max(transport == "tcp" ? kSocketFrameBytes : kFrameBytes, slice_bytes);
}
// Two hide what a channel waits for; measured on one host, four are no faster. With all of them in
// use a peer costs less than 1 MiB.
inline constexpr int kChannelCount = 2;

// Meets the others, agrees, connects. All ranks call it.
// Errors  mismatch when the ranks were configured differently (both sides are shown); those of the
//         transport.
Result<std::shared_ptr<CommunicatorState>> make_communicator(const Members& members,
                                                             const base::Config& config,
                                                             const CommunicatorOptions& options);

// The same, for those who change the parts before a communicator is made of them.
Result<CommunicatorParts> make_parts(const Members& members, const base::Config& config,
                                     const CommunicatorOptions& options);

// The configuration of this process with the user's options on top.
Result<base::Config> effective_config(const CommunicatorOptions& options);

// The options every transport gets.
transport::TransportOptions transport_options(const base::Config& config, const Members& members,
                                              bool ranks_share_cores);

}  // namespace tutti::runtime
