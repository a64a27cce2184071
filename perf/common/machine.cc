// Where a rank runs, from the kernel's files, and how ranks tell each other.
#include "perf/common/machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <type_traits>

namespace tutti::perf {
namespace {

// A Device as it travels between ranks: plain bytes of a fixed size.
struct Card {
  std::int64_t available_bytes = 0;
  std::int32_t pid = 0, core = 0, package = 0, numa_node = 0, core_in_package = 0, unused = 0;
  char host[64] = {};
  char model[96] = {};
};
static_assert(std::is_trivially_copyable_v<Card> && sizeof(Card) % sizeof(std::int64_t) == 0);

template <std::size_t size>
void copy_text(const std::string& text, char (&to)[size]) {
  std::memcpy(to, text.data(), std::min(text.size(), size - 1));
}

int number_in(const std::string& path) {
  int number = 0;
  std::ifstream(path) >> number;
  return number;
}

// The text after "key<spaces>:<space>" in a file of such lines; empty when there is none.
std::string value_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  const std::string text = name;
  return text.substr(0, text.find('.'));
}

int numa_node_of(const std::string& core_folder) {
  for (int node = 0; node < 1024; ++node)
    if (access((core_folder + "/node" + std::to_string(node)).c_str(), F_OK) == 0) return node;
  return 0;
}

}  // namespace

Device this_device(Rank rank) {
  Device device;
  device.rank = rank;
  device.pid = getpid();
  device.host = host_name();
  device.core = std::max(sched_getcpu(), 0);
  const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(device.core);
  device.package = std::max(number_in(folder + "/topology/physical_package_id"), 0);
  device.core_in_package = std::max(number_in(folder + "/topology/core_id"), 0);
  device.numa_node = numa_node_of(folder);
  device.model = value_of("/proc/cpuinfo", "model name");
  if (device.model.empty()) device.model = "CPU";
  return device;
}

std::size_t available_memory() {
  const std::string kilobytes = value_of("/proc/meminfo", "MemAvailable");
  return kilobytes.empty() ? 0 : std::stoull(kilobytes) * 1024;
}

Result<Neighbourhood> meet(Communicator& communicator) {
  const Device own = this_device(communicator.rank());
  Card card{static_cast<std::int64_t>(available_memory()),
            own.pid,
            own.core,
            own.package,
            own.numa_node,
            own.core_in_package,
            0,
            {},
            {}};
  copy_text(own.host, card.host);
  copy_text(own.model, card.model);
  std::vector<Card> cards(static_cast<std::size_t>(communicator.size()));
  const Status status = communicator.all_gather(
      &card, cards.data(), sizeof(Card) / sizeof(std::int64_t), DataType::int64);
  if (!status.ok()) return status.with_context("exchange of device names");

  Neighbourhood all;
  all.max_buffer_bytes = std::numeric_limits<std::size_t>::max();
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& from = cards[rank];
    all.devices.push_back({static_cast<int>(rank), 0, from.pid, from.host, from.core, from.package,
                           from.numa_node, from.core_in_package, from.model});
    const auto on_host = std::count_if(cards.begin(), cards.end(), [&](const Card& other) {
      return std::strcmp(other.host, from.host) == 0;
    });
    // Two buffers per rank, and as much again as one for the library and everybody else.
    if (from.available_bytes > 0)
      all.max_buffer_bytes = std::min(
          all.max_buffer_bytes, static_cast<std::size_t>(from.available_bytes / (3 * on_host)));
  }
  return all;
}

}  // namespace tutti::perf
