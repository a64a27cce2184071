// sysfs.cc: reading links from /sys. Missing, unreadable and nonsensical files all mean "not
// told"; a machine never fails to be discovered because a driver is shy.

#include "topology/sysfs.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "topology/numbers.hpp"

namespace tutti::topology {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLoopbackType = "772";  // ARPHRD_LOOPBACK

struct PcieGeneration {
  double gigatransfers;  // per second and lane
  double coding;         // share that is payload
};

// Two line codes: 8b/10b up to generation 2, 128b/130b up to 5; 6 counts its flits as 242/256.
constexpr std::array<PcieGeneration, 6> kPcieGenerations = {{{2.5, 0.8},
                                                             {5.0, 0.8},
                                                             {8.0, 128.0 / 130.0},
                                                             {16.0, 128.0 / 130.0},
                                                             {32.0, 128.0 / 130.0},
                                                             {64.0, 242.0 / 256.0}}};

std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

}  // namespace

std::optional<double> pcie_bandwidth(std::string_view speed, std::string_view width) {
  const auto gigatransfers = parse_number<double>(first_word(speed));
  const auto lanes = parse_number<int>(width);
  if (!gigatransfers || !lanes || *lanes < 1 || *lanes > 32) return std::nullopt;
  for (const PcieGeneration& generation : kPcieGenerations)
    if (generation.gigatransfers == *gigatransfers)
      return *gigatransfers * *lanes * generation.coding / 8;
  return std::nullopt;
}

std::optional<double> infiniband_bandwidth(std::string_view rate) {
  const auto gigabits = parse_number<double>(first_word(rate));
  const bool understood = gigabits && *gigabits > 0 && *gigabits < 1e6;
  if (!understood || rate.find("Gb/sec") == std::string_view::npos) return std::nullopt;
  return *gigabits / 8;
}

Sysfs::Sysfs(std::string root) : root_(std::move(root)) {
  if (root_.empty() || root_.back() != '/') root_ += '/';
}

std::optional<double> Sysfs::pci_fastest(std::string_view address, std::string_view width) const {
  const std::string device = "sys/bus/pci/devices/" + std::string(address);
  for (const char* file : {"/max_link_speed", "/current_link_speed"})
    if (const auto bandwidth = pcie_bandwidth(read(device + file).value_or(""), width))
      return bandwidth;
  return std::nullopt;
}

std::optional<double> Sysfs::pci_link_bandwidth(std::string_view address,
                                                std::string_view above) const {
  const std::string device = "sys/bus/pci/devices/" + std::string(address);
  const std::string width = read(device + "/current_link_width").value_or("");
  const auto own = pci_fastest(address, width);
  const auto other = above.empty() ? std::nullopt : pci_fastest(above, width);
  return own && other ? std::min(*own, *other) : own;
}

std::optional<NetworkInterface> Sysfs::network_interface(const std::string& name) const {
  const std::string path = "sys/class/net/" + name;
  const auto state = read(path + "/operstate");
  if (!state) return std::nullopt;
  NetworkInterface interface { name, *state == "up", std::nullopt };
  const auto megabits = parse_number<double>(read(path + "/speed").value_or(""));
  if (megabits && *megabits > 0 && *megabits < 1e9) interface.bandwidth = *megabits / 8000;
  return interface;
}

std::optional<double> Sysfs::infiniband_bandwidth_of(const std::string& name) const {
  const std::string ports = "sys/class/infiniband/" + name + "/ports";
  std::optional<double> best;
  for (const std::string& port : list(ports)) {
    const std::string state = read(ports + "/" + port + "/state").value_or("");
    const auto rate = infiniband_bandwidth(read(ports + "/" + port + "/rate").value_or(""));
    if (state.find("ACTIVE") != std::string::npos && rate) best = std::max(best.value_or(0), *rate);
  }
  return best;
}

std::vector<NetworkInterface> Sysfs::network_interfaces() const {
  std::vector<NetworkInterface> found;
  const std::string path = "sys/class/net";
  for (const std::string& name : list(path)) {
    const std::string here = path + "/" + name;
    if (read(here + "/type") == std::string(kLoopbackType)) continue;
    std::error_code ignored;
    const bool has_device = fs::exists(root_ + here + "/device", ignored);
    const bool is_plumbing = fs::exists(root_ + here + "/bridge", ignored) ||
                             (!has_device && fs::exists(root_ + here + "/master", ignored));
    if (is_plumbing) continue;
    auto interface = network_interface(name);
    if (interface && (interface->up || has_device)) found.push_back(std::move(*interface));
  }
  return found;
}

std::optional<std::string> Sysfs::read(const std::string& path) const {
  std::ifstream file(root_ + path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  line.erase(std::find_if(line.rbegin(), line.rend(), [](char c) { return c > ' '; }).base(),
             line.end());
  return line;
}

std::vector<std::string> Sysfs::list(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(root_ + path, error), end; !error && it != end;
       it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tutti::topology
