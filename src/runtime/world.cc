// Making a communicator, step by step: read the configuration, show each other our cards, agree,
// choose the transport, connect, plan for what we found.
#include "runtime/world.hpp"

#include <algorithm>
#include <atomic>
#include <map>

#include <fmt/format.h>

#include "base/log.hpp"
#include "base/try.hpp"
#include "runtime/host.hpp"
#include "runtime/planning_topology.hpp"
#include "runtime/tuner_plugin.hpp"
#include "transport/checked/transport.hpp"
#include "transport/net_plugin/transport.hpp"
#include "transport/shm/heap.hpp"
#include "transport/shm/transport.hpp"
#include "transport/tcp/transport.hpp"
#include "transport/ucx/transport.hpp"

namespace tutti::runtime {
namespace {

using base::TransportChoice;
using collectives::PlannerOptions;

constexpr std::size_t kKibibyte = 1024;
// Two hide what a channel waits for; measured on one host, four are no faster.
constexpr int kChannels = 2;
// Over sockets one, with frames twice as long, because each frame costs system calls: between two
// ranks faster at every size. Among four on two cores neither is, from one run to the next.
constexpr int kSocketChannels = 1;
// One slot of a queue: small enough that a few of them stay in a core's cache.
constexpr std::size_t kFrameBytes = 128 * kKibibyte;
// Where two ranks share each of two cores and lead in turn, half of what is shared out at most,
// with the record of the call: it goes at once. Others' slices stay what they are: those that are
// no powers of two, or lie behind a record, cost all_reduce of 1 MiB by `direct` a tenth of its
// time.
constexpr std::size_t kLeadersFrameBytes = 129 * kKibibyte;
// Over sockets: their system calls cost more than what the cache keeps from one copy to the next.
// With a ring at either end, a peer takes less than a mebibyte.
constexpr std::size_t kSocketFrameBytes = 490 * kKibibyte;
// Shorter slices cost more than what the next one gains while the first is read. Source: two cores
// of a Sapphire Rapids, broadcast of plain memory by slices of 4 KiB, of 16, and of Open MPI over
// UCX, us: 8 KiB 3.86, 2.83 and 2.90; 12 KiB 5.14, 3.57 and 5.86; 16 KiB 7.18, 4.18 and 6.88; 24
// KiB 10.2, 5.91 and 9.07.
constexpr std::size_t kLeastSliceBytes = 16 * kKibibyte;
// Between two ranks, where a queue may take more of what plans leave: each half of a mebibyte goes
// at once.
constexpr std::size_t kPairFrameBytes = 720 * kKibibyte;
// Between two cores: with a frame more at its end, longer than what a core's own cache holds
// (docs/adr/0016-two-ranks-have-a-long-queue.md).
constexpr std::size_t kLongQueueBytes = 1216 * kKibibyte;
constexpr std::size_t kLongQueueFrameBytes = 256 * kKibibyte;

// Everything that must be the same on all ranks, as a text that an error can show.
std::string settings_text(const base::Config& config) {
  return fmt::format(
      "transport {}, algorithm {}, lowering {}, channels {}, slice_bytes {}, "
      "reduce_order {}, checksums {}, check {}, tuning {}",
      to_string(config.transport), config.algorithm.empty() ? "auto" : config.algorithm,
      to_string(config.lowering), config.channels, config.slice_bytes,
      to_string(config.reduce_order), config.checksums ? "on" : "off",
      config.check == base::CheckChoice::strict ? "strict" : "late",
      config.tuning_file.empty() || config.tuning_file == "off" ? "automatic" : "named");
}

Result<std::vector<HostCard>> show_cards(const Members& members, const base::Config& config,
                                         const CommunicatorOptions& options,
                                         const TunerPlugin* tuner) {
  HostCard mine = describe_host();
  mine.settings = settings_text(config);
  if (tuner != nullptr) mine.settings += ", tuner plugin " + tuner->name();
  if (options.wrap_transport) mine.settings += ", transport wrapped";
  mine.tuning = members.tuning.hash;
  mine.tuning_source = members.tuning.source;
  auto texts = members.exchange(encode(mine));
  if (!texts.ok()) return texts.status();
  std::vector<HostCard> cards;
  for (Rank r = 0; r < members.size; ++r) {
    auto card = decode_host_card((*texts)[static_cast<std::size_t>(r)]);
    if (!card.ok()) return card.status().with_context(fmt::format("rank {}", r));
    cards.push_back(*std::move(card));
  }
  // As the others see it: odd bytes change on the way.
  const std::string& seen = cards[static_cast<std::size_t>(members.rank)].settings;
  for (Rank r = 0; r < members.size; ++r)
    if (const std::string& theirs = cards[static_cast<std::size_t>(r)].settings; theirs != seen)
      return Status(StatusCode::mismatch,
                    fmt::format("ranks are configured differently: rank {} has {}; rank {} has {}",
                                members.rank, seen, r, theirs));
  return cards;
}

bool on_one_host(const std::vector<HostCard>& cards) {
  return std::all_of(cards.begin(), cards.end(),
                     [&](const HostCard& card) { return card.host == cards[0].host; });
}

void set_queues(const base::Config& config, std::string_view transport,
                transport::TransportOptions& options) {
  const Queues queues = queues_of(transport, options.size, options.ranks_share_cores,
                                  {config.channels, config.slice_bytes});
  // One more for the words that ranks exchange when something went wrong (membership/).
  options.channel_count = queues.channels + 1;
  // Checksums come on top, so that slices stay powers of two.
  options.frame_bytes_max = queues.frame_bytes + (config.checksums ? transport::kChecksumBytes : 0);
  options.queue_bytes = std::max(queues.bytes, options.frame_bytes_max);
  options.reuse_late = queues.reuse_late;
}

// Once in a process: communicators come by the dozen.
void warn_if_not_shareable(const Members& members, const base::Config& config) {
  static std::atomic_flag said;
  const Status possible = transport::can_share_in_place();
  if (possible.ok() || said.test_and_set()) return;
  base::Log(config.log, fmt::format("rank {}", members.rank))
      .warn(fmt::format("TUTTI_SHARE_HEAP=1 has no effect: {}", possible.message()));
}

Result<std::unique_ptr<Transport>> make_transport(const Members& members,
                                                  const base::Config& config, bool one_host,
                                                  bool ranks_share_cores) {
  if (members.threads) {
    if (config.transport != TransportChoice::automatic &&
        config.transport != TransportChoice::memory)
      return Status(StatusCode::unsupported,
                    fmt::format("ranks that are threads talk through memory, not {}; start "
                                "processes (tutti run) or leave TUTTI_TRANSPORT alone",
                                to_string(config.transport)));
    return transport::make_memory_transport(members.threads, members.rank);
  }
  transport::TransportOptions options = transport_options(config, members, ranks_share_cores);
  if (members.size == 1) {
    return transport::make_memory_transport(transport::MemoryWorld::make(options), 0);
  }
  TransportChoice choice = config.transport;
  if (choice == TransportChoice::automatic)
    choice = one_host ? TransportChoice::shm : TransportChoice::tcp;
  switch (choice) {
    case TransportChoice::shm:
      set_queues(config, "shm", options);
      if (options.share_in_place) warn_if_not_shareable(members, config);
      return transport::make_shm_transport(options, members.exchange);
    case TransportChoice::tcp: {
      set_queues(config, "tcp", options);
      if (!one_host || !config.socket_interface.empty()) {
        auto address = address_toward(members.address, config.socket_interface);
        if (!address.ok()) return address.status();
        options.bind_address = *address;
      }
      return transport::make_tcp_transport(options, members.exchange);
    }
    case TransportChoice::ucx:
      set_queues(config, "ucx", options);
      return transport::make_ucx_transport(options, {.log = config.log}, members.exchange);
    case TransportChoice::net_plugin: {
      set_queues(config, "net_plugin", options);
      const base::Environment environment = base::capture_environment();
      const transport::net_plugin::PluginOptions plugin{
          std::string(base::value_of(environment, "NCCL_NET_PLUGIN")), config.log};
      return transport::make_net_plugin_transport(options, plugin, members.exchange);
    }
    default:
      return Status(StatusCode::unsupported,
                    "the memory transport joins threads of one process; for processes use "
                    "TUTTI_TRANSPORT=shm or tcp");
  }
}

// With checksums where they are wanted, and outermost what the user wants to see of it.
Result<std::unique_ptr<Transport>> wrap(std::unique_ptr<Transport> transport,
                                        const Members& members, const base::Config& config,
                                        const CommunicatorOptions& options) {
  if (config.checksums)
    transport = transport::make_checked_transport(std::move(transport), members.context);
  if (!options.wrap_transport) return transport;
  transport = options.wrap_transport(std::move(transport));
  if (transport && transport->rank() == members.rank && transport->size() == members.size)
    return transport;
  return Status(StatusCode::invalid_argument,
                fmt::format("CommunicatorOptions::wrap_transport returned {} where one of rank {} "
                            "of {} was due",
                            transport ? "another rank's transport" : "no transport", members.rank,
                            members.size));
}

// What was measured where these ranks are: the numbers of their transport, and the place. None of
// it on several hosts, because it was measured within one.
struct Measured {
  const collectives::TransportFigures* figures = nullptr;
  std::shared_ptr<const collectives::TuningPlace> place;
};

Result<Measured> find_measured(const Members& members, const std::vector<HostCard>& cards,
                               const TransportTraits& traits) {
  const Result<bool> agreed = agree_on_tuning(cards, members.tuning.named);
  TUTTI_TRY(agreed);
  if (!*agreed || !on_one_host(cards)) return Measured();
  const auto& table = members.tuning.table;
  const collectives::TuningKey key{std::string(traits.name), members.size,
                                   cores_shared(cards, members.rank), traits.direct};
  return Measured{table->figures(key.transport), {table, table->place(key)}};
}

// What the user forces goes before any tuner's wish. One that cannot be found is no reason to fail:
// where it is set for NCCL, it may have none for us. The ranks compare what they have.
std::unique_ptr<TunerPlugin> tuner_of(const Members& members, const base::Config& config) {
  if (members.size == 1 || !config.algorithm.empty()) return nullptr;
  auto found = find_tuner(base::capture_environment(),
                          config.transport == TransportChoice::net_plugin, config.log);
  if (found.ok()) return *std::move(found);
  static std::atomic_flag said;
  if (!said.test_and_set())
    base::Log(config.log, fmt::format("rank {}", members.rank)).warn(found.status().message());
  return nullptr;
}

TunerWorld tuner_world(const Members& members, const std::vector<HostCard>& cards) {
  std::map<std::string, int> hosts;
  for (const HostCard& card : cards) hosts[card.host] += 1;
  TunerWorld world{members.context, members.size, static_cast<int>(hosts.size()), members.size, 0};
  for (const auto& [host, ranks] : hosts) {
    world.node_ranks_min = std::min(world.node_ranks_min, ranks);
    world.node_ranks_max = std::max(world.node_ranks_max, ranks);
  }
  return world;
}

collectives::Lowering lowering_of(base::LoweringChoice choice) {
  if (choice == base::LoweringChoice::direct) return collectives::Lowering::direct;
  if (choice == base::LoweringChoice::staged) return collectives::Lowering::staged;
  return collectives::Lowering::automatic;
}

}  // namespace

Queues queues_of(std::string_view transport, int ranks, bool share_cores,
                 const QueueWishes& wishes) {
  const bool sockets = transport == "tcp";
  Queues queues;
  queues.slice_bytes_min = kLeastSliceBytes;
  queues.channels = std::max(sockets ? kSocketChannels : kChannels, wishes.channels);
  const std::size_t by_sockets = ranks == 2 ? kPairFrameBytes : kSocketFrameBytes;
  const std::size_t usual = !sockets               ? kFrameBytes
                            : queues.channels == 1 ? by_sockets
                                                   : by_sockets / 2;
  queues.slice_bytes = queues.frame_bytes = std::max(usual, wishes.slice_bytes);
  // Of sockets' two frames one lies in the sender's ring and one in the receiver's.
  queues.bytes = (sockets ? 1 : 2) * queues.frame_bytes;
  if (!sockets && share_cores && ranks == 4)
    queues.frame_bytes = std::max(kLeadersFrameBytes, wishes.slice_bytes);
  if (transport != "shm" || ranks != 2 || share_cores || wishes.channels > 1) return queues;
  queues.channels = 1;
  queues.slice_bytes = queues.frame_bytes = std::max(kLongQueueFrameBytes, wishes.slice_bytes);
  queues.bytes = std::max(2 * queues.frame_bytes, kLongQueueBytes);
  queues.reuse_late = true;
  return queues;
}

transport::TransportOptions transport_options(const base::Config& config, const Members& members,
                                              bool ranks_share_cores) {
  transport::TransportOptions options;
  options.rank = members.rank;
  options.size = members.size;
  options.context = members.context;
  options.job_secret = members.secret;
  options.ranks_share_cores = ranks_share_cores;
  set_queues(config, "memory", options);
  options.share_in_place = config.share_heap && config.lowering != base::LoweringChoice::staged;
  options.attach = config.attach && config.lowering != base::LoweringChoice::staged;
  options.setup_timeout = config.setup_timeout;
  options.bad_news = members.bad_news;
  return options;
}

Result<base::Config> effective_config(const CommunicatorOptions& options) {
  auto config = base::parse_config(base::capture_environment());
  if (!config.ok()) return config;
  if (!options.transport.empty()) {
    auto choice = base::parse_transport_choice(options.transport);
    if (!choice.ok()) return choice.status().with_context("CommunicatorOptions::transport");
    config->transport = *choice;
  }
  if (!options.lowering.empty()) {
    auto choice = base::parse_lowering_choice(options.lowering);
    if (!choice.ok()) return choice.status().with_context("CommunicatorOptions::lowering");
    config->lowering = *choice;
  }
  if (!options.reduce_order.empty()) {
    auto order = base::parse_reduce_order(options.reduce_order);
    if (!order.ok()) return order.status().with_context("CommunicatorOptions::reduce_order");
    config->reduce_order = *order;
  }
  if (!options.algorithm.empty()) config->algorithm = options.algorithm;
  if (options.channels > 0) config->channels = options.channels;
  if (options.checksums) config->checksums = *options.checksums;
  if (options.strict)
    config->check = *options.strict ? base::CheckChoice::strict : base::CheckChoice::late;
  if (options.slice_bytes > 0) config->slice_bytes = options.slice_bytes;
  if (options.timeout.count() > 0) config->timeout = options.timeout;
  if (options.setup_timeout.count() > 0) config->setup_timeout = options.setup_timeout;
  return config;
}

Result<std::unique_ptr<Transport>> connect_as(const Members& members,
                                              const CommunicatorParts& parts) {
  auto transport =
      make_transport(members, parts.config, parts.on_one_host, parts.ranks_share_cores);
  TUTTI_TRY(transport);
  return wrap(*std::move(transport), members, parts.config, CommunicatorOptions());
}

Result<CommunicatorParts> make_parts(const Members& members, const base::Config& config,
                                     const CommunicatorOptions& options) {
  const auto tuner = tuner_of(members, config);
  auto cards = show_cards(members, config, options, tuner.get());
  if (!cards.ok()) return cards.status();
  const bool shared_cores = ranks_share_cores(*cards, members.rank);
  const bool one_host = on_one_host(*cards);
  auto transport = make_transport(members, config, one_host, shared_cores);
  if (!transport.ok()) return transport.status();
  transport = wrap(*std::move(transport), members, config, options);
  if (!transport.ok()) return transport.status();

  CommunicatorParts parts;
  parts.transport = *std::move(transport);
  PlannerOptions& planning = parts.planner_options;
  planning.algorithm = config.algorithm;
  planning.lowering = lowering_of(config.lowering);
  planning.channels = config.channels;
  planning.slice_bytes = config.slice_bytes;
  planning.channel_count = parts.transport->channel_count() - 1;
  planning.frame_bytes_max = parts.transport->frame_bytes_max();
  const Queues queues = queues_of(parts.transport->traits().name, members.size, shared_cores,
                                  {config.channels, config.slice_bytes});
  planning.slice_bytes_max = queues.slice_bytes;
  planning.slice_bytes_min = queues.slice_bytes_min;
  const TransportTraits traits = parts.transport->traits();
  planning.direct_possible = traits.direct;
  planning.direct_bytes_min = traits.any_memory ? 0 : collectives::kDirectBytesMin;
  planning.memory_shared = !parts.transport->shared_memory().empty();
  const auto measured = find_measured(members, *cards, traits);
  TUTTI_TRY(measured);
  planning.measured = measured->place;
  if (measured->figures != nullptr)
    planning.constants = with_figures(planning.constants, *measured->figures);
  auto seen = planning_topology(*cards, planning.direct_possible, measured->figures);
  if (!seen.ok()) return seen.status();
  planning.cores = std::move(seen->cores);
  planning.one_machine = seen->one_machine;
  parts.planner = std::make_unique<collectives::Planner>(std::move(seen->topology),
                                                         std::move(seen->placement), planning);
  if (tuner) {
    auto begun = tuner->begin(tuner_world(members, *cards));
    TUTTI_TRY(begun);
    parts.tuner = std::make_unique<TunedPlanner>(
        *std::move(begun), planning.channels > 0 ? 0 : planning.channel_count);
  }
  parts.config = config;
  parts.options = options;
  parts.timeout = config.timeout;
  parts.ranks_share_cores = shared_cores;
  parts.on_one_host = one_host;
  parts.neighbours = neighbours(*cards, members.rank);
  parts.members = members;
  parts.members.exchange = nullptr;
  parts.members.bad_news = nullptr;
  if (parts.members.job == 0) parts.members.job = (*cards)[0].job;
  return parts;
}

Result<std::shared_ptr<CommunicatorState>> make_communicator(const Members& members,
                                                             const base::Config& config,
                                                             const CommunicatorOptions& options) {
  auto parts = make_parts(members, config, options);
  TUTTI_TRY(parts);
  return std::make_shared<CommunicatorState>(*std::move(parts));
}

}  // namespace tutti::runtime
