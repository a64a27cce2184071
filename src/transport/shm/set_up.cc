// set_up.cc: see set_up.hpp.
#include "transport/shm/set_up.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <string>
#include <thread>

#include "base/try.hpp"
#include "transport/shm/board.hpp"

namespace tutti::transport::shm {
namespace {

// Rank 0 may have given up because another rank died; who knows of deaths hears of that one soon.
Status rank_0_is_gone(const TransportOptions& options, const Status& seen) {
  constexpr std::chrono::milliseconds kNewsTravels{30};
  for (const auto end = Clock::now() + kNewsTravels; options.bad_news && Clock::now() < end;) {
    TUTTI_TRY(options.bad_news());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Status(seen.code(), "rank 0: " + seen.message(), 0);
}

// The other ranks' part: asks rank 0 for the board's file.
}  // namespace

Result<Mapping> ask_for_board(const TransportOptions& options, const Address& zero,
                              const Address& mine, Clock::time_point deadline) {
  Descriptor socket;
  while (!socket.open()) {
    Result<Descriptor> connected = connect_to(zero.token);
    if (!connected.ok()) return rank_0_is_gone(options, connected.status());
    socket = std::move(connected).value();
    if (Clock::now() > deadline) return Status(StatusCode::timeout, "rank 0 does not accept");
    if (!socket.open()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!is_process(zero, mine, process_number_behind(socket)))
    return Status(StatusCode::peer_lost, "another process listens in the place of rank 0", 0);
  Message ask{.kind = MessageKind::ask_board, .from = options.rank, .context = options.context};
  refresh(ask);
  ask.proof = prove(ask, zero.token, options.job_secret);
  if (const Status sent = send_message(socket, ask).status(); !sent.ok())
    return rank_0_is_gone(options, sent);
  pollfd waiting = {socket.number(), POLLIN, 0};
  while (::poll(&waiting, 1, kPatienceMs) <= 0 && Clock::now() < deadline)
    if (options.bad_news) TUTTI_TRY(options.bad_news());
  const Received answer = receive_message(socket);
  if (answer.kind == Received::Kind::nothing)
    return Status(StatusCode::timeout, "rank 0 did not hand out the shared doorbells");
  if (answer.kind == Received::Kind::hang_up)
    return rank_0_is_gone(options, Status(StatusCode::peer_lost,
                                          "it refused us or ended; do all ranks have the same job "
                                          "secret?"));
  const Message& said = answer.message;
  if (answer.kind != Received::Kind::message || said.kind != MessageKind::board || said.from != 0 ||
      said.to != options.rank || said.nonce != ask.nonce ||
      !proven(said, zero.token, options.job_secret) || !answer.file.open())
    return Status(StatusCode::corrupt_data, "rank 0 answered with a message that makes no sense");
  return map_received(answer.file.number(), Board::bytes(options.size), Pages::when_touched);
}

Result<std::vector<Address>> exchange_addresses(const TransportOptions& options,
                                                const Address& mine,
                                                const ExchangeFunction& exchange) {
  Result<std::vector<std::string>> texts = exchange(mine.to_text());
  TUTTI_TRY(texts);
  if (texts->size() != static_cast<std::size_t>(options.size))
    return Status(StatusCode::corrupt_data, fmt::format("the exchange brought {} addresses for {} "
                                                        "ranks",
                                                        texts->size(), options.size));
  std::vector<Address> addresses;
  for (std::size_t rank = 0; rank < texts->size(); ++rank) {
    Result<Address> address = Address::parse((*texts)[rank]);
    TUTTI_TRY(address.status().with_context(fmt::format("rank {}", rank)));
    addresses.push_back(std::move(address).value());
    // All ranks compare in the same order, so that all say the same.
    if (addresses.back().host != addresses.front().host)
      return Status(StatusCode::invalid_argument,
                    fmt::format("rank 0 and rank {} are on different hosts (or in different "
                                "network namespaces), where shared memory does not reach; use "
                                "the tcp transport",
                                rank));
  }
  return addresses;
}

}  // namespace tutti::transport::shm
