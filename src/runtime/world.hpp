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

// How much two ranks have under way.
struct Queues {
  int channels = 0;
  std::size_t frame_bytes = 0;
  std::size_t slice_bytes = 0;      // at most, of a chunk, but of leaders in turn
  std::size_t slice_bytes_min = 0;  // of a chunk that is cut at all
  std::size_t bytes = 0;            // of payloads in one direction of one channel, at least
  bool reuse_late = false;          // see transport::TransportOptions
};

// What the user set; 0: nothing.
struct QueueWishes {
  int channels = 0;
  std::size_t slice_bytes = 0;
};

// Between so many ranks over the transport of that name. `share_cores`: there are more ranks than
// cores. Ensures  without wishes, a rank keeps less than 1 MiB for a peer, and with a single
// one 1.5 MiB: half of the communicator's own is more than the plans for two ranks and the recorder
// need.
Queues queues_of(std::string_view transport, int ranks, bool share_cores,
                 const QueueWishes& wishes);

// Meets the others, agrees, connects. All ranks call it.
// Errors  mismatch when the ranks were configured differently (both sides are shown); those of the
//         transport.
Result<std::shared_ptr<CommunicatorState>> make_communicator(const Members& members,
                                                             const base::Config& config,
                                                             const CommunicatorOptions& options);

// The same, for those who change the parts before a communicator is made of them.
Result<CommunicatorParts> make_parts(const Members& members, const base::Config& config,
                                     const CommunicatorOptions& options);

// A transport of the same kind as that of these parts, without what the user wrapped around it.
Result<std::unique_ptr<Transport>> connect_as(const Members& members,
                                              const CommunicatorParts& parts);

// The configuration of this process with the user's options on top.
Result<base::Config> effective_config(const CommunicatorOptions& options);

// The options every transport gets; the queues are those of threads.
transport::TransportOptions transport_options(const base::Config& config, const Members& members,
                                              bool ranks_share_cores);

}  // namespace tutti::runtime
