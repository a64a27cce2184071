// transport.cc: gives every connection its turn, decides what their ends mean, and closes in good
// order.
#include "transport/ucx/transport.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/fork.hpp"
#include "base/try.hpp"
#include "transport/ucx/endpoint.hpp"
#include "transport/ucx/mesh.hpp"

namespace tutti::transport {
namespace ucx {
namespace {

constexpr auto kFarewellTime = std::chrono::milliseconds(500);
// Over sockets UCX closes when the peer has read all, for which that must look; where it does not,
// its system has what was sent, as a rule.
constexpr auto kClosingTime = std::chrono::milliseconds(50);
constexpr auto kGreetingTime = std::chrono::milliseconds(50);  // of one that does not answer
constexpr std::int64_t kFarewellPauseUs = 200;
// UCX's own timers (it asks distant peers whether they live) run when it is asked to move.
constexpr std::int64_t kSleepMaxUs = 100'000;
// In one poll() so many times at most, while there is something to move.
constexpr int kProgressMax = 8;
// Deaths are looked for when so many polls in a row have found nothing: it costs a system call.
constexpr int kIdlePollsMax = 1000;

class UcxTransport final : public Transport {
 public:
  UcxTransport(const TransportOptions& options, const UcxOptions& ucx)
      : mesh_(options, ucx.all_remote), transports_(ucx.transports) {}
  ~UcxTransport() override;

  // What this rank exchanges; it says why when there is no UCX for it.
  Card prepare();
  Status start(const std::vector<std::string>& cards);

  TransportTraits traits() const override { return {.name = "ucx"}; }
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
  Status can_lend(MemoryKind kind) override {
    return LentRegions::can_add(*mesh_.worker().context(), kind);
  }
  Result<std::uint32_t> lend(const LentMemory& memory) override {
    return mesh_.lent().add(mesh_.worker().context(), memory);
  }
  void give_up(const Status& why) override { mesh_.fail(why); }
  bool flushed() const override;
  std::size_t memory_bytes() const override;

 private:
  // One peer: the link, and an endpoint for each channel that was used.
  struct Peer {
    std::unique_ptr<Link> link;
    std::vector<std::unique_ptr<UcxEndpoint>> endpoints;
  };

  static ucs_status_t on_message(void* transport, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* what);
  bool hear(const Arrival& arrival);

  const TransportOptions& options() const { return mesh_.options(); }
  Link& link(Rank peer);
  UcxEndpoint& at(Rank peer, int channel);
  bool progress();
  void speak();
  void note_death(Rank rank);
  void judge_ends();
  bool all_idle() const;
  void leave();
  void pause();
  bool say_last_words();
  void close_links();
  void keep_what_is_read();
  void drop_unfetched();

  Mesh mesh_;
  std::string transports_;
  std::vector<Peer> peers_;  // by rank
  int idle_polls_ = 0;
  bool started_ = false;
  const std::uint32_t fork_generation_ = base::fork_generation();
};

Card UcxTransport::prepare() {
  const Status status = mesh_.start(transports_, on_message, this);
  if (status.ok()) return mesh_.card();
  Card card;
  card.status = status;
  return card;
}

Status UcxTransport::start(const std::vector<std::string>& cards) {
  TUTTI_TRY(mesh_.learn(cards));
  peers_.resize(static_cast<std::size_t>(size()));
  started_ = true;
  return Status();
}

Link& UcxTransport::link(Rank peer) {
  Peer& place = peers_[static_cast<std::size_t>(peer)];
  if (!place.link) {
    place.link = std::make_unique<Link>(mesh_, peer);
    place.endpoints.resize(static_cast<std::size_t>(channel_count()));
  }
  return *place.link;
}

UcxEndpoint& UcxTransport::at(Rank peer, int channel) {
  Link& shared = link(peer);
  auto& place = peers_[static_cast<std::size_t>(peer)].endpoints[static_cast<std::size_t>(channel)];
  if (!place) place = std::make_unique<UcxEndpoint>(mesh_, shared, channel);
  return *place;
}

Result<Endpoint*> UcxTransport::endpoint(Rank peer, int channel) {
  TUTTI_ASSERT(peer >= 0 && peer < size() && peer != rank(), "no such peer");
  TUTTI_ASSERT(channel >= 0 && channel < channel_count(), "no such channel");
  UcxEndpoint& made = at(peer, channel);
  made.want();
  return static_cast<Endpoint*>(&made);
}

Rank UcxTransport::caller(int channel, Rank after) {
  for (Rank peer = after + 1; peer < size(); ++peer) {
    const Peer& place = peers_[static_cast<std::size_t>(peer)];
    if (!place.link) continue;
    const auto& endpoint = place.endpoints[static_cast<std::size_t>(channel)];
    if (endpoint && endpoint->called()) return peer;
  }
  return -1;
}

// ---- What arrives ----

// UCX drops what is not taken here, also the data of a long message.
ucs_status_t UcxTransport::on_message(void* transport, const void* header, std::size_t header_bytes,
                                      void* data, std::size_t bytes,
                                      const ucp_am_recv_param_t* what) {
  if (header_bytes < kHeaderBytes || header_bytes > kHeaderBytes + kLentHeadBytesMax) return UCS_OK;
  const auto* const lent_head = static_cast<const std::byte*>(header) + kHeaderBytes;
  const bool is_remote = (what->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const bool kept = static_cast<UcxTransport*>(transport)->hear(
      {read_header(header), {lent_head, header_bytes - kHeaderBytes}, data, bytes, is_remote});
  return kept ? UCS_INPROGRESS : UCS_OK;
}

bool UcxTransport::hear(const Arrival& arrival) {
  const RecordHeader& header = arrival.header;
  if (!started_ || header.from >= static_cast<std::uint32_t>(size())) return false;
  const auto from = static_cast<Rank>(header.from);
  if (from == rank()) return false;
  Link& speaker = link(from);
  if (!same(header.key, speaker.key_in())) return false;  // a stranger
  if (speaker.failed_words()) return false;
  speaker.meet();
  if (header.channel < static_cast<std::uint32_t>(channel_count()))
    return at(from, static_cast<int>(header.channel)).hear(arrival);
  at(from, 0).corrupt("a message on a channel that there is not");
  return false;
}

// ---- Turns ----

bool UcxTransport::progress() {
  bool moved = false;
  for (int i = 0; i < kProgressMax && mesh_.worker().progress(); ++i) moved = true;
  return moved;
}

void UcxTransport::speak() {
  std::vector<UcxEndpoint*>& talkative = mesh_.talkative();
  // Who cannot say all of it lists itself anew, behind those who are here now.
  const std::size_t due = talkative.size();
  for (std::size_t i = 0; i < due; ++i) {
    talkative[i]->listed = false;
    talkative[i]->speak();
  }
  talkative.erase(talkative.begin(), talkative.begin() + static_cast<std::ptrdiff_t>(due));
}

Result<bool> UcxTransport::poll() {
  const bool moved = progress();
  if (!mesh_.talkative().empty()) speak();
  idle_polls_ = moved ? 0 : idle_polls_ + 1;
  if (idle_polls_ >= kIdlePollsMax) {
    idle_polls_ = 0;
    if (mesh_.watch().any()) mesh_.watch().wait(0, [this](Rank dead) { note_death(dead); });
  }
  if (mesh_.ends()) [[unlikely]]
    judge_ends();
  if (!mesh_.status().ok()) [[unlikely]]
    return mesh_.status();
  return moved;
}

void UcxTransport::sleep(std::int64_t timeout_us) {
  for (const Peer& peer : peers_)
    for (const auto& endpoint : peer.endpoints)
      if (endpoint) endpoint->ask_for_room();
  speak();
  if (!mesh_.worker().arm()) return;
  mesh_.watch().wait(std::min(timeout_us, kSleepMaxUs), [this](Rank dead) { note_death(dead); });
}

bool UcxTransport::flushed() const {
  if (mesh_.unfinished() == 0 && mesh_.all_said()) [[likely]]
    return true;
  for (const Peer& peer : peers_) {
    if (!peer.link) continue;
    if (!peer.link->idle()) return false;
    for (const auto& endpoint : peer.endpoints)
      if (endpoint && !endpoint->flushed()) return false;
  }
  return true;
}

std::size_t UcxTransport::memory_bytes() const {
  std::size_t bytes = 0;
  for (const Peer& peer : peers_) {
    if (peer.link) bytes += sizeof(Link);
    for (const auto& endpoint : peer.endpoints)
      if (endpoint) bytes += endpoint->memory_bytes();
  }
  return bytes;
}

// ---- Ends ----

void UcxTransport::note_death(Rank rank) { link(rank).lose("its process has ended"); }

void UcxTransport::judge_ends() {
  mesh_.note_ends(false);
  for (Peer& peer : peers_) {
    if (!peer.link || !peer.link->awaits_verdict()) continue;
    const auto verdict = peer.link->judge();
    if (!verdict) {
      mesh_.note_ends(true);
      continue;
    }
    mesh_.fail(*verdict);
    for (const auto& endpoint : peer.endpoints)
      if (endpoint) endpoint->fail(*verdict);
  }
}

UcxTransport::~UcxTransport() {
  if (fork_generation_ != base::fork_generation()) {
    mesh_.forget_worker();
    return;
  }
  drop_unfetched();  // which its senders wait to hear
  if (started_) leave();
  drop_unfetched();
  keep_what_is_read();
  mesh_.end_worker();
}

// Says goodbye to all who have heard of this rank or spoken to it: without a goodbye they would
// take it for dead. After a failure it says with whom that began, as peers may be connected to this
// rank only. Brief: a peer that does not receive learns it by the end of the connection, which only
// matters to it if it still wants something.
void UcxTransport::leave() {
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] { return std::chrono::steady_clock::now() - start; };
  progress();
  speak();
  while (mesh_.status().ok() && !flushed() && spent() < kFarewellTime) {
    const Result<bool> polled = poll();
    if (polled.ok() && !*polled) pause();
  }
  while (true) {
    const bool said = say_last_words() || spent() > kGreetingTime;
    if ((said && all_idle()) || spent() > kFarewellTime) break;
    if (!progress()) pause();
  }
  close_links();
}

void UcxTransport::pause() {
  mesh_.watch().wait(kFarewellPauseUs, [this](Rank dead) { note_death(dead); });
}

// False: some cannot be told yet.
bool UcxTransport::say_last_words() {
  bool said = true;
  for (Peer& peer : peers_)
    if (peer.link && (peer.link->met() || peer.link->opened()))
      said = peer.link->say_last_words(mesh_.status()) && said;
  return said;
}

bool UcxTransport::all_idle() const {
  const auto has_fetched = [](const auto& endpoint) {
    return !endpoint || endpoint->has_fetched();
  };
  return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return !peer.link || (peer.link->idle() &&
                          std::all_of(peer.endpoints.begin(), peer.endpoints.end(), has_fetched));
  });
}

void UcxTransport::close_links() {
  const auto deadline = std::chrono::steady_clock::now() + kClosingTime;
  bool closed = false;
  while (!closed) {
    closed = true;
    for (Peer& peer : peers_)
      if (peer.link) closed = peer.link->close() && closed;
    if (closed || std::chrono::steady_clock::now() >= deadline) break;
    if (!progress()) pause();
  }
  for (Peer& peer : peers_)
    if (peer.link) peer.link->stop_closing();
}

void UcxTransport::drop_unfetched() {
  for (const Peer& peer : peers_)
    for (const auto& endpoint : peer.endpoints)
      if (endpoint) endpoint->drop_unfetched();
}

// A peer that was told of long frames may come for them later than this rank waits: then it shall
// find them, and not what else the memory is used for.
void UcxTransport::keep_what_is_read() {
  for (Peer& peer : peers_) {
    if (!peer.link || peer.link->idle()) continue;
    for (const auto& endpoint : peer.endpoints)
      if (endpoint) endpoint->abandon_memory();
  }
}

}  // namespace
}  // namespace ucx

Status can_use_ucx() {
  const ucx::Library& found = ucx::library();
  return found.functions != nullptr ? Status() : Status(StatusCode::unsupported, found.error);
}

Result<std::unique_ptr<Transport>> make_ucx_transport(const TransportOptions& options,
                                                      const UcxOptions& ucx,
                                                      const ExchangeFunction& exchange) {
  TUTTI_ASSERT(options.size >= 1 && options.rank >= 0 && options.rank < options.size &&
                   options.channel_count >= 1,
               "transport options make no sense");
  if (options.frame_bytes_max >= (std::size_t{1} << 31))
    return Status(StatusCode::invalid_argument, "frames are limited to 2 GiB");
  ucx::set_log_level(ucx.log);
  auto transport = std::make_unique<ucx::UcxTransport>(options, ucx);
  const ucx::Card card = transport->prepare();
  const auto cards = exchange(ucx::encode_card(card));
  TUTTI_TRY(card.status);
  TUTTI_TRY(cards);
  TUTTI_TRY(transport->start(*cards));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace tutti::transport
