// set_up.hpp: what a rank of the shm transport asks the others before there is a transport: their
// addresses, and rank 0 for the board.
//
// Does not know what is on the board.
#pragma once

#include <chrono>
#include <vector>

#include "transport/options.hpp"
#include "transport/shm/file.hpp"
#include "transport/shm/wire.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::shm {

using Clock = std::chrono::steady_clock;

// How long who waits for the board waits between two looks at bad news.
inline constexpr int kPatienceMs = 5;

// Of all ranks, by rank. Errors: invalid_argument when not all are on one host; corrupt_data; what
// the exchange reports.
Result<std::vector<Address>> exchange_addresses(const TransportOptions& options,
                                                const Address& mine,
                                                const ExchangeFunction& exchange);

// The part of all ranks but 0: asks that one, at `zero`, for the board's file, and maps it.
// Errors  timeout, peer_lost, corrupt_data, system_error; bad news.
Result<Mapping> ask_for_board(const TransportOptions& options, const Address& zero,
                              const Address& mine, Clock::time_point deadline);

}  // namespace tutti::transport::shm
