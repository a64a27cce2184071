// topology_file.cc: see topology_file.hpp.
#include "nccl/topology_file.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"
#include "nccl/process.hpp"

namespace tutti::nccl {

namespace gpu = runtime::gpu;

namespace {

// Of what ranks tell each other: more than any cluster takes.
constexpr std::uint64_t kTextBytesMax = std::uint64_t{64} << 20;

// By host, in the order of their first ranks.
struct Hosts {
  std::vector<Rank> leaders;         // the first rank of each
  std::vector<std::size_t> of_rank;  // index into them
};

Hosts hosts_of(std::span<const DescribedRank> ranks) {
  Hosts hosts;
  std::map<int, std::size_t> numbers;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [found, is_new] = numbers.try_emplace(ranks[rank].host, hosts.leaders.size());
    if (is_new) hosts.leaders.push_back(static_cast<Rank>(rank));
    hosts.of_rank.push_back(found->second);
  }
  return hosts;
}

Result<std::string> broadcast(Communicator& communicator, const std::string& text, Rank root) {
  std::uint64_t bytes = communicator.rank() == root ? text.size() : 0;
  TUTTI_TRY(communicator.broadcast(&bytes, &bytes, 1, DataType::uint64, root));
  if (bytes > kTextBytesMax)
    return Status(StatusCode::corrupt_data, fmt::format("rank {} sent {} bytes", root, bytes));
  std::string received = communicator.rank() == root ? text : std::string(bytes, '\0');
  TUTTI_TRY(communicator.broadcast(received.data(), received.data(), bytes, DataType::uint8, root));
  return received;
}

// Of every host, what its first rank has been told.
Result<std::vector<std::string>> exchange(Communicator& communicator, const Description& own,
                                          std::span<const DescribedRank> ranks,
                                          const Hosts& hosts) {
  std::map<std::uint64_t, std::string> known;
  std::vector<std::string> texts;
  for (const Rank leader : hosts.leaders) {
    const std::uint64_t hash = ranks[static_cast<std::size_t>(leader)].hash;
    if (const auto found = known.find(hash); found != known.end()) {
      texts.push_back(found->second);
      continue;
    }
    auto text = broadcast(communicator, own.text, leader);
    TUTTI_TRY(text);
    texts.push_back(known[hash] = *std::move(text));
  }
  return texts;
}

Result<gpu::DeviceTopology> merged(std::span<const std::string> texts,
                                   std::span<const gpu::DevicePlace> places) {
  std::vector<Topology> topologies;
  for (const std::string& text : texts) {
    auto topology = topology_from_text(text);
    TUTTI_TRY(topology);
    topologies.push_back(*std::move(topology));
  }
  return gpu::described_topology(topologies, places);
}

AgreedTopology used(Result<gpu::DeviceTopology> made, bool is_told, std::size_t ranks,
                    const base::Log& log) {
  if (made.ok()) {
    log.info(fmt::format("{} ranks: kernels' plans go by NCCL_TOPO_FILE", ranks));
    return std::make_shared<const gpu::DeviceTopology>(*std::move(made));
  }
  if (is_told)
    log.warn(fmt::format("NCCL_TOPO_FILE is not used for a communicator of {} ranks: {}", ranks,
                         made.status().message()));
  return nullptr;
}

}  // namespace

std::uint64_t Description::hash() const {
  return text.empty() ? 0 : std::max<std::uint64_t>(1, base::hash_of_text(text));
}

Description read_description(const std::string& path, const base::Log& log) {
  if (path.empty()) return {};
  std::error_code ignored;
  Result<Topology> loaded =
      std::filesystem::is_regular_file(path, ignored)
          ? load_topology(path)
          : Status(StatusCode::system_error, fmt::format("{}: there is no such file", path));
  if (loaded.ok() && loaded->of_kind(VertexKind::gpu).empty())
    loaded = Status(StatusCode::corrupt_data, fmt::format("{}: has no GPU", path));
  if (loaded.ok()) return {to_text(*loaded)};
  log.warn(fmt::format("NCCL_TOPO_FILE cannot be used, and all goes on without it: {}",
                       loaded.status().message()));
  return {};
}

const Description& own_description() {
  static const Description read = read_description(settings().topology_file, log());
  return read;
}

Result<AgreedTopology> agree_on_topology(Communicator& communicator, const Description& own,
                                         std::span<const DescribedRank> ranks,
                                         const base::Log& log) {
  const auto has_none = [](const DescribedRank& rank) { return rank.hash == 0; };
  if (std::all_of(ranks.begin(), ranks.end(), has_none)) return AgreedTopology();
  const Hosts hosts = hosts_of(ranks);
  const auto me = static_cast<std::size_t>(communicator.rank());
  const Rank leader = hosts.leaders[hosts.of_rank[me]];
  const bool has_own = own.hash() != 0;
  if (has_own && ranks[static_cast<std::size_t>(leader)].hash != own.hash())
    log.warn(
        fmt::format("rank {}: NCCL_TOPO_FILE does not say what it says to rank {} of the same "
                    "host, which counts; give all ranks of a host the same file",
                    me, leader));
  for (const Rank first : hosts.leaders) {
    if (!has_none(ranks[static_cast<std::size_t>(first)])) continue;
    return used(Status(StatusCode::unsupported,
                       fmt::format("rank {}, the first of its host, has none", first)),
                has_own, ranks.size(), log);
  }
  const auto texts = exchange(communicator, own, ranks, hosts);
  if (!texts.ok()) return texts.status().with_context("what NCCL_TOPO_FILE says to the ranks");
  std::vector<gpu::DevicePlace> places;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    places.push_back({hosts.of_rank[rank], ranks[rank].bus_id});
  return used(merged(*texts, places), has_own, ranks.size(), log);
}

AgreedTopology topology_of_process(const Description& own, std::span<const std::string> bus_ids,
                                   const base::Log& log) {
  if (own.hash() == 0) return nullptr;
  std::vector<gpu::DevicePlace> places;
  for (const std::string& bus_id : bus_ids) places.push_back({0, bus_id});
  return used(merged(std::span(&own.text, 1), places), true, bus_ids.size(), log);
}

void dump_topology(const AgreedTopology& topology, Rank rank) {
  const Settings& wanted = settings();
  if (topology == nullptr || wanted.topology_dump_file.empty() || rank != wanted.topology_dump_rank)
    return;
  std::ofstream file(wanted.topology_dump_file);
  file << to_text(topology->topology);
  file.close();
  if (!file)
    log().warn(fmt::format("NCCL_TOPO_DUMP_FILE={}: cannot be written", wanted.topology_dump_file));
}

}  // namespace tutti::nccl
