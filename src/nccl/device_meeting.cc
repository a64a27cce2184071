// device_meeting.cc: see device_meeting.hpp.
#include "nccl/device_meeting.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/gpu_direct.hpp"
#include "nccl/process.hpp"
#include "nccl/topology_file.hpp"
#include "runtime/access.hpp"
#include "runtime/host.hpp"
#include "runtime/split.hpp"
#include "runtime/world.hpp"

namespace tutti::nccl {
namespace {

constexpr std::size_t kNameBytes = 64;

// Where hosts carry messages, each rank keeps some 2 MiB of page-locked memory for every peer of
// another host, and looks at all of it in turn.
constexpr std::size_t kCarriedRanksMax = 64;

using Name = std::array<char, kNameBytes>;  // the beginning of one

Name name_of(std::string_view text) {
  Name name = {};
  std::copy_n(text.begin(), std::min(text.size(), name.size()), name.begin());
  return name;
}

std::string text_of(const Name& name) {
  return std::string(name.begin(), std::find(name.begin(), name.end(), '\0'));
}

// What ranks tell each other.
struct Card {
  Name machine = {};              // its kernel
  Name process = {};              // its process_identity()
  Name device = {};               // on the bus of the machine
  std::uint64_t names = 0;        // of processes by their numbers: equal where these mean the same
  std::uint64_t meeting = 0;      // rank 0's: which of its process's
  std::uint64_t description = 0;  // hash of the machine's; 0: none
  std::int32_t number = 0;        // of the process
  std::int32_t ordinal = 0;       // of the device, in its process
  std::uint32_t has_device = 0;
  std::uint32_t wants_copies = 0;  // by copy engines
};

// Kernels are loaded into the primary context, and can do nothing in others.
bool is_primary(const transport::cuda::Driver& driver, const DevicePlace& place) {
  const auto device = driver.device(place.ordinal);
  if (!device.ok()) return false;
  const auto primary = driver.retain_primary(*device);
  if (!primary.ok()) return false;
  static_cast<void>(driver.release_primary(*device));
  return *primary == place.context;
}

// Whether the settings want all messages to go as between hosts.
bool wants_network(const base::Config& config) {
  return config.transport == base::TransportChoice::tcp ||
         config.transport == base::TransportChoice::ucx ||
         config.transport == base::TransportChoice::net_plugin;
}

// What of the settings kernels do not heed is heeded by staging.
bool kernels_may(const base::Config& config) {
  const bool possible = wants_network(config) ||
                        config.transport == base::TransportChoice::automatic ||
                        config.transport == base::TransportChoice::memory;
  return config.gpu_kernels && possible && !config.checksums &&
         config.reduce_order == base::ReduceOrder::any && config.check == base::CheckChoice::late;
}

Result<base::Config> config_of_settings() {
  CommunicatorOptions options;
  settings().apply(options);
  return runtime::effective_config(options);
}

bool has_device(const base::Config& config, const DevicePlace& place) {
  const transport::cuda::Driver* const driver = loaded_driver();
  return driver != nullptr && place.context != nullptr && kernels_may(config) &&
         is_primary(*driver, place);
}

runtime::gpu::GpuOptions options_of(const base::Config& config, AgreedTopology topology) {
  runtime::gpu::GpuOptions options;
  options.topology = std::move(topology);
  options.algorithm = config.algorithm;
  options.timeout = config.timeout;
  options.direct = config.lowering != base::LoweringChoice::staged;
  options.network = network_wishes(config.gpu_direct, settings().gpu_direct, has_rdma_card());
  return options;
}

// What has become of it, to who wants to know (NCCL_DEBUG=INFO).
std::shared_ptr<DeviceGroup> told(Result<std::shared_ptr<DeviceGroup>> group, std::size_t ranks) {
  if (group.ok()) {
    const std::string carrier = (*group)->describe_carrier();
    log().info(fmt::format(
        "{} ranks: kernels make calls in device memory, with {} bytes of it "
        "for each rank{}{}",
        ranks, (*group)->memory_bytes(), carrier.empty() ? "" : "; between hosts it ", carrier));
    return *std::move(group);
  }
  log().info(fmt::format("{} ranks: calls in device memory are staged in the host's: {}", ranks,
                         group.status().message()));
  return nullptr;
}

std::shared_ptr<DeviceGroup> make_group(const base::Config& config, std::vector<int> ordinals,
                                        AgreedTopology topology, bool with_copies) {
  const std::size_t ranks = ordinals.size();
  auto group = DeviceGroup::make(std::move(ordinals), options_of(config, std::move(topology)),
                                 DeviceGroup::Stock::of_process());
  if (group.ok() && with_copies)
    if (const Status status = (*group)->use_copy_engines(); !status.ok()) group = status;
  return told(std::move(group), ranks);
}

// Whether all ranks want copy engines; where only some do, or none can have them, those hear why.
bool all_want_copies(std::span<const Card> cards, const Card& mine, bool one_process) {
  const auto wants = [](const Card& card) { return card.wants_copies != 0; };
  const bool all = std::all_of(cards.begin(), cards.end(), wants);
  if (all && one_process) return true;
  if (wants(mine))
    log().info(fmt::format("{} ranks: kernels make what copy engines were asked for: {}",
                           cards.size(),
                           all ? "ranks are of several processes"
                               : "not all ranks ask for them, or some do not block"));
  return false;
}

// Groups whose ranks are coming to them, by meeting.
class Meetings {
 public:
  // The first to come makes it for all.
  std::shared_ptr<DeviceGroup> at(std::uint64_t meeting, std::size_t ranks,
                                  const std::function<std::shared_ptr<DeviceGroup>()>& make) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = meetings_.try_emplace(meeting);
    Meeting& here = found->second;
    if (is_new) here.group = make();
    std::shared_ptr<DeviceGroup> group = here.group;
    if (++here.came == ranks) meetings_.erase(found);
    return group;
  }

 private:
  struct Meeting {
    std::shared_ptr<DeviceGroup> group;
    std::size_t came = 0;
  };
  std::mutex mutex_;
  std::map<std::uint64_t, Meeting> meetings_;
};

// Never destroyed: threads of the program may outlive static objects.
Meetings& meetings() {
  static auto* const all = new Meetings;
  return *all;
}

std::uint64_t next_meeting() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::uint64_t namespace_of_processes() {
  struct stat status = {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

Card card_of(const base::Config& config, const DevicePlace& place, const DeviceWishes& wishes) {
  Card card;
  card.wants_copies = (config.gpu_copy_engines || wishes.copy_engines) && wishes.blocking ? 1 : 0;
  card.machine = name_of(runtime::describe_host().machine());
  card.process = name_of(process_identity());
  card.names = namespace_of_processes();
  card.meeting = next_meeting();
  card.number = static_cast<std::int32_t>(::getpid());
  card.ordinal = place.ordinal;
  if (!has_device(config, place)) return card;
  const auto device = loaded_driver()->device(place.ordinal);
  if (!device.ok()) return card;
  const auto bus_id = loaded_driver()->device_pci_bus_id(*device);
  if (!bus_id.ok()) return card;
  card.device = name_of(*bus_id);
  card.description = own_description().hash();
  card.has_device = 1;
  return card;
}

// ---- Ranks of several processes ----

constexpr std::size_t kTextBytes = 512;

// Texts of all ranks, by collectives; longer ones are cut.
Result<std::vector<std::string>> exchange(Communicator& communicator, const std::string& mine) {
  struct Text {
    std::uint64_t bytes = 0;
    std::array<char, kTextBytes> content = {};
  };
  Text sent;
  sent.bytes = std::min(mine.size(), kTextBytes);
  std::copy_n(mine.begin(), sent.bytes, sent.content.begin());
  std::vector<Text> received(static_cast<std::size_t>(communicator.size()));
  TUTTI_TRY(communicator.all_gather(&sent, received.data(), sizeof sent, DataType::uint8));
  std::vector<std::string> texts;
  for (const Text& text : received)
    texts.emplace_back(text.content.data(), std::min<std::size_t>(text.bytes, kTextBytes));
  return texts;
}

int ranks_on_one_device(std::span<const Card> cards) {
  std::map<Name, int> ranks;
  int most = 0;
  for (const Card& card : cards) most = std::max(most, ++ranks[card.device]);
  return most;
}

std::vector<PeerProcess> processes_of(std::span<const Card> cards, const Card& mine) {
  std::vector<PeerProcess> peers;
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (cards[rank].process != mine.process && cards[rank].machine == mine.machine &&
        cards[rank].names == mine.names)
      peers.push_back({static_cast<Rank>(rank), cards[rank].number});
  return peers;
}

// By rank: which host it is on, in the order of their first ranks.
std::vector<int> hosts_of(std::span<const Card> cards, const base::Config& config) {
  std::map<Name, int> numbers;
  std::vector<int> hosts;
  for (const Card& card : cards) {
    const auto rank = static_cast<int>(hosts.size());
    const auto number = static_cast<int>(numbers.size());
    hosts.push_back(
        wants_network(config) ? rank : numbers.try_emplace(card.machine, number).first->second);
  }
  return hosts;
}

// As many channels as every rank has. An error of the exchange's is not only this rank's.
Result<int> agree_on_channels(Communicator& communicator, int mine) {
  std::vector<int> all(static_cast<std::size_t>(communicator.size()));
  TUTTI_TRY(communicator.all_gather(&mine, all.data(), 1, DataType::int32));
  return *std::min_element(all.begin(), all.end());
}

// What the machines are, as the ranks describe them.
Result<AgreedTopology> agreed_topology(Communicator& communicator, std::span<const Card> cards,
                                       std::span<const int> hosts) {
  std::vector<DescribedRank> ranks;
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    ranks.push_back({hosts[rank], text_of(cards[rank].device), cards[rank].description});
  auto topology = agree_on_topology(communicator, own_description(), ranks, log());
  TUTTI_TRY(topology);
  dump_topology(*topology, communicator.rank());
  return topology;
}

Result<std::shared_ptr<DeviceGroup>> join_group(Communicator& communicator,
                                                const base::Config& config,
                                                std::span<const Card> cards, std::vector<int> hosts,
                                                AgreedTopology topology) {
  const bool several = *std::max_element(hosts.begin(), hosts.end()) > 0;
  if (several && cards.size() > kCarriedRanksMax)
    return told(
        Status(StatusCode::unsupported,
               fmt::format("they are on several hosts, and more than {}", kCarriedRanksMax)),
        cards.size());
  DeviceGroup::Stock& stock = DeviceGroup::Stock::of_process();
  const Card& mine = cards[static_cast<std::size_t>(communicator.rank())];
  const auto here = std::count_if(cards.begin(), cards.end(), [&](const Card& card) {
    return card.process == mine.process && card.device == mine.device;
  });
  auto taken = stock.take_seat(mine.ordinal, static_cast<int>(here));
  const auto channels = agree_on_channels(communicator, taken.ok() ? (*taken)->channels() : 0);
  TUTTI_TRY(channels);
  if (*channels == 0)
    return told(taken.ok() ? Status(StatusCode::unsupported, "a peer's device has no room left")
                           : taken.status(),
                cards.size());
  runtime::gpu::GpuSeat seat;
  seat.rank = communicator.rank();
  seat.ranks = communicator.size();
  seat.ranks_per_device = ranks_on_one_device(cards);
  seat.process = std::string(mine.process.begin(), mine.process.end());
  if (several) seat.hosts = std::move(hosts);
  seat.connect = [&] {
    return runtime::connect_beside(runtime::CommunicatorAccess::state(communicator));
  };
  seat.tell = [](const std::string& text) { log().info(text); };
  Status exchanged;  // told from what the ranks found out together
  seat.exchange = [&](const std::string& text) {
    auto texts = exchange(communicator, text);
    exchanged = texts.status();
    return texts;
  };
  runtime::gpu::GpuOptions options = options_of(config, std::move(topology));
  options.channels = several ? std::min(*channels, runtime::gpu::kCarriedChannelsMax) : *channels;
  const Status joined = (*taken)->join(seat, options);
  TUTTI_TRY(exchanged);
  if (!joined.ok()) return told(joined, cards.size());
  auto group =
      DeviceGroup::make_joined(seat.rank, seat.ranks, mine.ordinal, *std::move(taken), stock);
  if (const Status watched = group->watch(processes_of(cards, mine)); !watched.ok())
    log().warn(fmt::format("rank {} hears of lost peers by deadlines only: {}", seat.rank,
                           watched.message()));
  return told(std::move(group), cards.size());
}

}  // namespace

Result<std::shared_ptr<DeviceGroup>> meet_on_devices(Communicator& communicator,
                                                     const DevicePlace& place,
                                                     const DeviceWishes& wishes) {
  const auto config = config_of_settings();
  TUTTI_TRY(config);
  const Card mine = card_of(*config, place, wishes);
  std::vector<Card> cards(static_cast<std::size_t>(communicator.size()));
  TUTTI_TRY(communicator.all_gather(&mine, cards.data(), sizeof mine, DataType::uint8)
                .with_context("what devices the ranks are on"));
  const auto all = [&](auto&& holds) { return std::all_of(cards.begin(), cards.end(), holds); };
  if (!all([](const Card& card) { return card.has_device != 0; }))
    return std::shared_ptr<DeviceGroup>();
  std::vector<int> hosts = hosts_of(cards, *config);
  auto topology = agreed_topology(communicator, cards, hosts);
  TUTTI_TRY(topology);
  const bool one_host = std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; });
  const bool one_process =
      one_host && all([&](const Card& card) { return card.process == mine.process; });
  const bool with_copies = all_want_copies(cards, mine, one_process);
  if (!one_process)
    return join_group(communicator, *config, cards, std::move(hosts), *std::move(topology));
  return meetings().at(cards.front().meeting, cards.size(), [&] {
    std::vector<int> ordinals;
    for (const Card& card : cards) ordinals.push_back(card.ordinal);
    return make_group(*config, std::move(ordinals), *topology, with_copies);
  });
}

std::shared_ptr<DeviceGroup> group_of_process(std::span<const DevicePlace> places) {
  const auto config = config_of_settings();
  if (!config.ok()) return nullptr;  // whoever joins hears why
  std::vector<int> ordinals;
  std::vector<std::string> bus_ids;
  for (const DevicePlace& place : places) {
    const Card card = card_of(*config, place, {});
    if (card.has_device == 0) return nullptr;
    ordinals.push_back(place.ordinal);
    bus_ids.push_back(text_of(card.device));
  }
  AgreedTopology topology = topology_of_process(own_description(), bus_ids, log());
  dump_topology(topology, settings().topology_dump_rank);
  return make_group(*config, std::move(ordinals), std::move(topology), config->gpu_copy_engines);
}

}  // namespace tutti::nccl
