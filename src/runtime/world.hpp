// world.hpp: how a communicator comes to be: who is in it, on which hosts, over which transport,
// and what all ranks agreed on.
#pragma once

#include <memory>

#include "runtime/communicator_state.hpp"
#include "runtime/members.hpp"
#include "transport/options.hpp"
#include "tutti/communicator.hpp"

namespace tutti::runtime {

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
