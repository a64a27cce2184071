// transport.cc: accepts connections, polls the endpoints that have something to do, and closes in
// good order.
#include "transport/tcp/transport.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <utility>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "transport/tcp/congestion.hpp"
#include "transport/tcp/endpoint.hpp"
#include "transport/tcp/mesh.hpp"

namespace tutti::transport {
namespace tcp {
namespace {

constexpr std::size_t kStrangersMin = 256;
constexpr auto kFarewellTime = std::chrono::milliseconds(500);
constexpr auto kGreetingTime = std::chrono::milliseconds(100);  // of one whose words are on the way

// A connection that has not said yet who it is.
struct Stranger {
  Socket socket;
  SocketAddress origin;
  std::string greeting;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(const TransportOptions& options, Poller poller, Socket listener)
      : mesh_(options, std::move(poller)),
        listener_(std::move(listener)),
        endpoints_(static_cast<std::size_t>(options.size * options.channel_count)) {}
  ~TcpTransport() override { leave(); }

  Status start(const std::vector<std::string>& cards) {
    TUTTI_TRY(mesh_.learn(cards));
    return mesh_.poller().watch(listener_, Watched::listener, 0);
  }

  TransportTraits traits() const override { return {.name = "tcp", .moves_itself = true}; }
  Rank rank() const override { return options().rank; }
  int size() const override { return options().size; }
  std::size_t frame_bytes_max() const override { return options().frame_bytes_max; }
  int channel_count() const override { return options().channel_count; }
  Rank caller(int channel, Rank after) override;

  Result<Endpoint*> endpoint(Rank peer, int channel) override;
  Result<bool> poll() override;
  void sleep(std::int64_t timeout_us) override;
  void* allocate_shareable(std::size_t) override { return nullptr; }
  void release_shareable(void* memory) override {
    TUTTI_ASSERT(memory == nullptr, "this transport has no shareable memory");
  }
  void give_up(const Status& why) override { mesh_.fail(why); }
  bool flushed() const override { return !mesh_.any_unsent() || all_sent(); }
  bool delivered() const override;
  std::size_t memory_bytes() const override;

 private:
  const TransportOptions& options() const { return mesh_.options(); }
  std::uint32_t number(Rank peer, int channel) const {
    return static_cast<std::uint32_t>(peer * options().channel_count + channel);
  }
  TcpEndpoint& at(Rank peer, int channel);
  bool collect(std::int64_t timeout_us);
  void judge_ends();
  void on_event(Watched what, std::uint32_t id, std::uint32_t events);
  void list(TcpEndpoint& endpoint);
  void accept_all();
  void hear(int descriptor);
  void drop_surplus_strangers();
  bool all_sent() const;
  bool signals_flushed() const;
  void leave();

  Mesh mesh_;
  Socket listener_;
  std::map<int, Stranger> strangers_;                    // by descriptor
  std::vector<std::unique_ptr<TcpEndpoint>> endpoints_;  // by number
  std::vector<TcpEndpoint*> busy_;                       // those to serve
};

TcpEndpoint& TcpTransport::at(Rank peer, int channel) {
  const std::uint32_t which = number(peer, channel);
  std::unique_ptr<TcpEndpoint>& place = endpoints_[which];
  if (!place) place = std::make_unique<TcpEndpoint>(mesh_, peer, channel, which);
  return *place;
}

Result<Endpoint*> TcpTransport::endpoint(Rank peer, int channel) {
  TUTTI_ASSERT(peer >= 0 && peer < size() && peer != rank(), "no such peer");
  TUTTI_ASSERT(channel >= 0 && channel < channel_count(), "no such channel");
  TcpEndpoint& made = at(peer, channel);
  const Status status = made.connect();
  if (!status.ok()) return status.with_context(fmt::format("rank {}", peer));
  list(made);  // it may have been refused at once
  return static_cast<Endpoint*>(&made);
}

Result<bool> TcpTransport::poll() {
  mesh_.allow_glances();
  bool moved = collect(0);
  bool verdicts = false;
  std::size_t kept = 0;
  // Attaching a connection may list further endpoints meanwhile.
  for (std::size_t i = 0; i < busy_.size(); ++i) {
    TcpEndpoint& endpoint = *busy_[i];
    moved = endpoint.serve() || moved;
    const bool verdict = endpoint.awaits_verdict();
    verdicts = verdicts || verdict;
    // A full ring keeps its endpoint listed, because the socket will not speak up again.
    endpoint.listed = verdict || endpoint.has_work() || endpoint.frames_in().waits_for_room();
    if (endpoint.listed) busy_[kept++] = &endpoint;
  }
  busy_.resize(kept);
  if (verdicts) judge_ends();
  if (!mesh_.status().ok()) [[unlikely]]
    return mesh_.status();
  return moved;
}

// Who left because of a failure has told why, perhaps over a connection that still waits to be
// accepted; that counts for more than how its other connections ended.
void TcpTransport::judge_ends() {
  accept_all();
  collect(0);
  for (TcpEndpoint* endpoint : busy_) static_cast<void>(endpoint->serve());
  for (TcpEndpoint* endpoint : busy_)
    if (endpoint->awaits_verdict()) endpoint->hear_last_words();
  for (TcpEndpoint* endpoint : busy_)
    if (endpoint->awaits_verdict()) endpoint->judge();
}

Rank TcpTransport::caller(int channel, Rank after) {
  for (Rank peer = after + 1; peer < size(); ++peer) {
    const auto& endpoint = endpoints_[number(peer, channel)];
    if (endpoint && endpoint->called()) return peer;
  }
  return -1;
}

void TcpTransport::sleep(std::int64_t timeout_us) {
  for (const TcpEndpoint* endpoint : busy_)
    if (endpoint->has_work()) return;
  collect(timeout_us);
}

bool TcpTransport::collect(std::int64_t timeout_us) {
  return mesh_.poller().wait(
      timeout_us,
      [this](Watched what, std::uint32_t id, std::uint32_t events) { on_event(what, id, events); });
}

void TcpTransport::on_event(Watched what, std::uint32_t id, std::uint32_t events) {
  if (what == Watched::listener) return accept_all();
  if (what == Watched::stranger) return hear(static_cast<int>(id));
  TcpEndpoint& endpoint = *endpoints_[id];
  list(endpoint);
  if (what == Watched::frames_out) endpoint.on_opened_events(events);
  if (what == Watched::frames_in) endpoint.on_accepted_events(events);
  if (what == Watched::signals_out) endpoint.signals_out().on_events(events);
  if (what == Watched::signals_in) endpoint.signals_in().on_events();
}

void TcpTransport::list(TcpEndpoint& endpoint) {
  if (endpoint.listed) return;
  endpoint.listed = true;
  busy_.push_back(&endpoint);
}

void TcpTransport::accept_all() {
  while (true) {
    SocketAddress origin;
    Socket socket = accept_from(listener_, origin);
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE)
        mesh_.fail(system_failure("cannot accept connections (raise `ulimit -n`)", errno));
      return;
    }
    const int descriptor = socket.number();
    const Status watched =
        mesh_.poller().watch(socket, Watched::stranger, static_cast<std::uint32_t>(descriptor));
    if (!watched.ok()) return mesh_.fail(watched);
    strangers_[descriptor] = Stranger{std::move(socket), origin, {}};
    hear(descriptor);
    drop_surplus_strangers();
  }
}

// Reads a greeting, and not a byte more; what follows belongs to the flow.
void TcpTransport::hear(int descriptor) {
  const auto found = strangers_.find(descriptor);
  if (found == strangers_.end()) return;
  Stranger& stranger = found->second;
  std::array<char, kGreetingBytes> buffer;
  const std::size_t missing = kGreetingBytes - stranger.greeting.size();
  const ssize_t got = ::recv(descriptor, buffer.data(), missing, 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got > 0) stranger.greeting.append(buffer.data(), static_cast<std::size_t>(got));
  if (got > 0 && stranger.greeting.size() < kGreetingBytes) return;
  auto met = mesh_.recognise(stranger.greeting, stranger.origin);
  Socket socket = std::move(stranger.socket);
  strangers_.erase(found);
  if (!met) return;
  TcpEndpoint& endpoint = at(met->greeting.from, met->greeting.channel);
  if (met->greeting.purpose == Purpose::signals) {
    endpoint.attach_signals(std::move(socket));
  } else if (const Status status =
                 endpoint.attach_frames(std::move(socket), std::move(met->last_words_key));
             !status.ok()) {
    endpoint.fail(status);
  }
  list(endpoint);
}

// Junk on the port must not use up our descriptors. Descriptors are given lowest first, so no order
// says who came when; a rank whose connection is dropped here sees it and fails with a clear text.
void TcpTransport::drop_surplus_strangers() {
  const std::size_t most = std::max(kStrangersMin, 4 * endpoints_.size());
  if (strangers_.size() > most) strangers_.erase(strangers_.begin());
}

bool TcpTransport::all_sent() const {
  for (const auto& endpoint : endpoints_)
    if (endpoint && !endpoint->flushed()) return false;
  mesh_.note_all_sent();
  return true;
}

bool TcpTransport::delivered() const {
  for (const auto& endpoint : endpoints_)
    if (endpoint && endpoint->status().ok() && !endpoint->delivered()) return false;
  return true;
}

bool TcpTransport::signals_flushed() const {
  for (const auto& endpoint : endpoints_)
    if (endpoint && endpoint->status().ok() && !endpoint->signals_flushed()) return false;
  return true;
}

std::size_t TcpTransport::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& endpoint : endpoints_)
    if (endpoint) bytes += endpoint->memory_bytes();
  return bytes;
}

// Says goodbye on every connection, also on those that nobody has looked at yet: without a goodbye
// the peers would take this rank for dead. After a failure it says with whom that began, as peers
// may be connected to this rank only. Brief: a peer whose buffers are full learns it by the
// end of the connection, which only matters to it if it still wants something. For as brief a time
// what was sent is waited for until the peers' hosts have it: to a closed socket a peer's next word
// is an error, and the system throws away what it still had for that peer. Communicator::close()
// waits for longer.
void TcpTransport::leave() {
  const auto start = std::chrono::steady_clock::now();
  if (!mesh_.status().ok()) {
    accept_all();
    for (const auto& endpoint : endpoints_)
      if (endpoint) endpoint->pass_on(mesh_.status());
    // Signals tell it, too, and may still be connecting.
    while (!signals_flushed() && std::chrono::steady_clock::now() - start < kFarewellTime) {
      collect(1000);
      static_cast<void>(poll());
    }
    return;
  }
  while (true) {
    accept_all();
    bool done = true;
    for (const auto& endpoint : endpoints_)
      if (endpoint) done = endpoint->say_goodbye() && done;
    const auto spent = std::chrono::steady_clock::now() - start;
    // A goodbye is worth nothing to a peer before its greeting has been read.
    const bool greetings_due = !strangers_.empty() && spent < kGreetingTime;
    if ((done && !greetings_due && delivered()) || !flushed() || spent > kFarewellTime) break;
    collect(1000);
  }
}

// Where this rank will listen; or why it cannot, which the others shall hear too.
Result<Socket> listen_for(const TransportOptions& options) {
  const auto addresses = resolve(options.bind_address, 0);
  TUTTI_TRY(addresses);
  const SocketAddress& address = addresses->front();
  if (address.wildcard())
    return Status(StatusCode::invalid_argument,
                  fmt::format("cannot listen on {}: name one address that the other ranks reach",
                              options.bind_address));
  if (options.job_secret.empty() && !address.loopback())
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} is reachable from other hosts and the job has no secret; set "
                              "TUTTI_JOB_SECRET_FILE on all ranks, or start them with `tutti run`",
                              address.host()));
  Result<Socket> listener = listen_on(address);
  if (listener.ok()) begin_unpaced(*listener);
  return listener;
}

Card make_card(const TransportOptions& options, const Result<Socket>& listener) {
  Card card;
  card.status = listener.status();
  if (!listener.ok()) return card;
  const auto address = local_address(*listener);
  card.status = address.status();
  if (!address.ok()) return card;
  card.host = address->host();
  card.port = static_cast<std::uint16_t>(address->port());
  card.nonce = random_nonce();
  card.frame_bytes_max = options.frame_bytes_max;
  card.channel_count = static_cast<std::uint32_t>(options.channel_count);
  card.context = options.context;
  return card;
}

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportOptions& options,
                                                      const ExchangeFunction& exchange) {
  TUTTI_ASSERT(options.size >= 1 && options.rank >= 0 && options.rank < options.size &&
                   options.channel_count >= 1,
               "transport options make no sense");
  if (options.frame_bytes_max >= (std::size_t{1} << 31))
    return Status(StatusCode::invalid_argument, "frames are limited to 2 GiB");
  Result<Socket> listener = tcp::listen_for(options);
  const tcp::Card card = tcp::make_card(options, listener);
  const auto cards = exchange(tcp::encode_card(card));
  TUTTI_TRY(card.status);
  TUTTI_TRY(cards);
  Result<tcp::Poller> poller = tcp::Poller::make();
  TUTTI_TRY(poller);
  auto transport =
      std::make_unique<tcp::TcpTransport>(options, std::move(*poller), std::move(*listener));
  TUTTI_TRY(transport->start(*cards));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace tutti::transport
