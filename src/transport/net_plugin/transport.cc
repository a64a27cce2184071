// transport.cc: gives every connection its turn, and closes in good order.
#include "transport/net_plugin/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "transport/bootstrap/message.hpp"
#include "transport/net_plugin/endpoint.hpp"
#include "transport/net_plugin/mesh.hpp"

namespace tutti::transport {
namespace net_plugin {
namespace {

constexpr auto kFarewellTime = std::chrono::milliseconds(500);
constexpr auto kGreetingTime = std::chrono::milliseconds(100);  // of one whose words are on the way
constexpr std::int64_t kSleepMaxUs = 1000;
constexpr std::int64_t kPauseMaxUs = 100;
// Between two polls so many of the listeners that nobody has called yet are asked: each costs the
// plugin a call.
constexpr std::size_t kListenersAsked = 1;

void pause_us(std::int64_t duration) {
  std::this_thread::sleep_for(std::chrono::microseconds(duration));
}

class NetTransport final : public Transport {
 public:
  NetTransport(const TransportOptions& options, std::unique_ptr<Device> device)
      : mesh_(options, std::move(device)) {}
  ~NetTransport() override { leave(); }

  // Listens for everybody.
  Card listen();
  Status start(const std::vector<std::string>& cards) {
    TUTTI_TRY(mesh_.learn(cards));
    started_ = true;
    return Status();
  }

  TransportTraits traits() const override { return {.name = "net_plugin"}; }
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
  bool flushed() const override;
  std::size_t memory_bytes() const override;

 private:
  const TransportOptions& options() const { return mesh_.options(); }
  NetEndpoint* at(Rank peer, int channel) const {
    return endpoints_[static_cast<std::size_t>(peer * options().channel_count + channel)].get();
  }
  bool move_all(std::size_t listeners);
  void judge_ends();
  void leave();

  Mesh mesh_;
  std::vector<std::unique_ptr<NetEndpoint>> endpoints_;  // by peer and channel; none of its own
  std::size_t next_listener_ = 0;
  bool started_ = false;
};

Card NetTransport::listen() {
  Card card;
  card.plugin = fmt::format("{} v{}", mesh_.device().plugin_name(), mesh_.device().version());
  card.nonce = random_nonce();
  card.frame_bytes_max = options().frame_bytes_max;
  card.frames = mesh_.frames();
  card.channel_count = static_cast<std::uint32_t>(options().channel_count);
  card.context = options().context;
  for (Rank peer = 0; peer < size(); ++peer) {
    for (int channel = 0; channel < channel_count(); ++channel) {
      Handle& handle = card.handles.emplace_back();
      auto& endpoint = endpoints_.emplace_back();
      if (peer == rank()) continue;
      endpoint = std::make_unique<NetEndpoint>(mesh_, peer, channel);
      const Result<Handle> listening = endpoint->listen();
      card.status = listening.status();
      if (!listening.ok()) return card;
      handle = *listening;
    }
  }
  return card;
}

Result<Endpoint*> NetTransport::endpoint(Rank peer, int channel) {
  TUTTI_ASSERT(peer >= 0 && peer < size() && peer != rank(), "no such peer");
  TUTTI_ASSERT(channel >= 0 && channel < channel_count(), "no such channel");
  at(peer, channel)->want();
  return static_cast<Endpoint*>(at(peer, channel));
}

Rank NetTransport::caller(int channel, Rank after) {
  for (Rank peer = after + 1; peer < size(); ++peer)
    if (peer != rank() && at(peer, channel)->called()) return peer;
  return -1;
}

// Every connection, and some of the listeners that nobody has called yet, most of which will never
// be called.
bool NetTransport::move_all(std::size_t listeners) {
  bool moved = false;
  for (const auto& endpoint : endpoints_)
    if (endpoint && endpoint->active()) moved = endpoint->move() || moved;
  for (std::size_t i = 0; i < endpoints_.size() && listeners > 0; ++i) {
    const auto& endpoint = endpoints_[next_listener_];
    next_listener_ = (next_listener_ + 1) % endpoints_.size();
    if (!endpoint || endpoint->active()) continue;
    moved = endpoint->move() || moved;
    listeners -= 1;
  }
  return moved;
}

Result<bool> NetTransport::poll() {
  const bool moved = move_all(kListenersAsked);
  const bool verdicts = std::any_of(endpoints_.begin(), endpoints_.end(), [](const auto& endpoint) {
    return endpoint && endpoint->awaits_verdict();
  });
  if (verdicts) judge_ends();
  if (!mesh_.status().ok()) [[unlikely]]
    return mesh_.status();
  return moved;
}

// Who left because of a failure has told why, perhaps over a connection that still waits to be
// accepted; that counts for more than how its other connections ended.
void NetTransport::judge_ends() {
  move_all(endpoints_.size());
  for (const bool told : {true, false})
    for (const auto& endpoint : endpoints_)
      if (endpoint && endpoint->awaits_verdict() && endpoint->was_told() == told) endpoint->judge();
}

void NetTransport::sleep(std::int64_t timeout_us) {
  const std::int64_t most = std::min(timeout_us, kSleepMaxUs);
  std::int64_t pause = 5;
  for (std::int64_t slept = 0; slept < most;
       slept += pause, pause = std::min(2 * pause, kPauseMaxUs)) {
    if (move_all(kListenersAsked)) return;
    pause_us(pause);
  }
}

bool NetTransport::flushed() const {
  return std::all_of(endpoints_.begin(), endpoints_.end(),
                     [](const auto& endpoint) { return !endpoint || endpoint->flushed(); });
}

std::size_t NetTransport::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& endpoint : endpoints_)
    if (endpoint) bytes += endpoint->memory_bytes();
  return bytes;
}

// Says goodbye on every connection, also on those that nobody has looked at yet: without a goodbye
// the peers would take this rank for dead. After a failure it says with whom that began, as peers
// may be connected to this rank only. Brief: a peer that does not receive learns it by the end of
// the connection, which only matters to it if it still wants something.
void NetTransport::leave() {
  const auto start = std::chrono::steady_clock::now();
  while (started_) {
    move_all(endpoints_.size());
    bool done = true;
    bool greetings_due = false;
    for (const auto& endpoint : endpoints_) {
      if (!endpoint) continue;
      done = endpoint->part(mesh_.status()) && done;
      greetings_due = endpoint->being_greeted() || greetings_due;
    }
    const auto spent = std::chrono::steady_clock::now() - start;
    greetings_due = greetings_due && spent < kGreetingTime;
    if ((done && !greetings_due) || spent > kFarewellTime) return;
    pause_us(kPauseMaxUs);
  }
}

// Why the device cannot carry this; empty: it can.
std::string unfit(const TransportOptions& options, const Device& device) {
  const DeviceProperties& properties = device.properties();
  const std::size_t slot = slot_bytes(options.frame_bytes_max);
  if (properties.message_bytes_max != 0 && slot > properties.message_bytes_max)
    return fmt::format("carries at most {} bytes at once, and frames have {}",
                       properties.message_bytes_max, slot);
  const std::int64_t needed =
      2 * static_cast<std::int64_t>(options.size - 1) * options.channel_count;
  if (needed > properties.connections_max)
    return fmt::format("can have {} connections, and {} ranks need {}", properties.connections_max,
                       options.size, needed);
  return {};
}

Result<std::unique_ptr<Device>> open_fit_device(const TransportOptions& options,
                                                const PluginOptions& plugin) {
  if (options.frame_bytes_max >= (std::size_t{1} << 30))
    return Status(StatusCode::invalid_argument, "frames are limited to 1 GiB");
  auto device = open_device(plugin, options.context, options.rank);
  TUTTI_TRY(device);
  if (const std::string why = unfit(options, **device); !why.empty())
    return Status(StatusCode::unsupported,
                  fmt::format("the net plugin {} {}", (*device)->plugin_name(), why));
  return device;
}

// What a rank exchanges; the card says why when it is useless.
std::string offer(Card& card) {
  std::string text = encode_card(card);
  if (text.size() <= kBlobBytesMax) return text;
  card.status = Status(StatusCode::unsupported,
                       "there are too many ranks for a net plugin, which listens for each of them "
                       "separately; use TUTTI_TRANSPORT=tcp");
  return encode_card(card);
}

}  // namespace
}  // namespace net_plugin

Result<std::unique_ptr<Transport>> make_net_plugin_transport(
    const TransportOptions& options, const net_plugin::PluginOptions& plugin,
    const ExchangeFunction& exchange) {
  TUTTI_ASSERT(options.size >= 1 && options.rank >= 0 && options.rank < options.size &&
                   options.channel_count >= 1,
               "transport options make no sense");
  auto device = net_plugin::open_fit_device(options, plugin);
  net_plugin::Card card;
  card.status = device.status();
  std::unique_ptr<net_plugin::NetTransport> transport;
  if (device.ok()) {
    transport = std::make_unique<net_plugin::NetTransport>(options, std::move(*device));
    card = transport->listen();
  }
  const auto cards = exchange(net_plugin::offer(card));
  TUTTI_TRY(card.status);
  TUTTI_TRY(cards);
  TUTTI_TRY(transport->start(*cards));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace tutti::transport
