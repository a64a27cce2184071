// What a machine's drivers write into /sys, and lists of processors as the kernel writes them.
//
// Beyond not crashing: a bandwidth is positive and finite, or not told; a list of processors is
// within bounds, and its memory within a multiple of the text.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <unistd.h>
#include "base/cpu.hpp"
#include "fuzz.hpp"
#include "topology/sysfs.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::topology;

constexpr std::size_t kListMemory = std::size_t{16} << 20;

void check(const std::optional<double>& bandwidth) {
  TUTTI_ASSERT(!bandwidth || (std::isfinite(*bandwidth) && *bandwidth > 0),
               "a bandwidth makes sense, or is not told");
}

// A made-up tree with one device of each kind, gone when the program ends.
class Tree {
 public:
  Tree() {
    // In memory where that is possible: a disk takes a thousand times as long.
    const std::filesystem::path shm = "/dev/shm";
    const bool in_memory = std::filesystem::is_directory(shm);
    const auto base = in_memory ? shm : std::filesystem::temp_directory_path();
    std::string pattern = (base / "tutti-fuzz-XXXXXX").string();
    TUTTI_ASSERT(::mkdtemp(pattern.data()) != nullptr, "a temporary folder");
    root_ = pattern;
    for (const char* folder :
         {"sys/bus/pci/devices/a", "sys/class/net/e0/device", "sys/class/infiniband/m/ports/1"})
      std::filesystem::create_directories(root_ / folder);
  }
  ~Tree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  // What a file is to say from now on; true when that is news.
  bool write(const std::string& path, std::string_view text) {
    const auto [place, made] = texts_.try_emplace(path);
    if (!made && place->second == text) return false;
    place->second = text;
    std::ofstream(root_ / path, std::ios::binary) << text;
    return true;
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
  std::map<std::string, std::string> texts_;
};

// Opening a file costs more than to understand it: only what changed is read again.
void check_tree(Decisions decisions) {
  static Tree tree;
  static const Sysfs sysfs(tree.root());
  const auto changed = [&](const std::string& folder, const char* one, const char* other) {
    const bool news = tree.write(folder + one, decisions.text());
    return tree.write(folder + other, decisions.text()) || news;
  };
  if (changed("sys/bus/pci/devices/a/", "max_link_speed", "current_link_width"))
    check(sysfs.pci_link_bandwidth("a", ""));
  if (changed("sys/class/net/e0/", "operstate", "speed"))
    for (const NetworkInterface& interface : sysfs.network_interfaces()) check(interface.bandwidth);
  if (changed("sys/class/infiniband/m/ports/1/", "state", "rate"))
    check(sysfs.infiniband_bandwidth_of("m"));
}

bool has_long_number(std::string_view text) {
  int digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > 3) return true;
  }
  return false;
}

TUTTI_FUZZ_PLAIN bool within_bounds(const std::vector<int>& cpus) {
  const int* const end = cpus.data() + cpus.size();
  for (const int* cpu = cpus.data(); cpu != end; ++cpu)
    if (*cpu < 0 || *cpu > 1 << 20) return false;
  return true;
}

void check_list(const std::string& text) {
  const AllocationLimit limit(kListMemory);
  TUTTI_ASSERT(within_bounds(base::parse_cpu_list(text)), "a processor's number is within bounds");
}

}  // namespace

std::size_t input_bytes_max() { return 256; }

void run(std::string_view input) {
  Decisions decisions(input);
  const int kind = decisions.number<std::uint8_t>() % 64;
  if (kind == 0) return check_tree(decisions);  // files are slow
  if (kind % 2 == 1) {
    // A range of a million takes its time, however short its text.
    if (kind == 1 || !has_long_number(decisions.rest())) check_list(std::string(decisions.rest()));
    return;
  }
  const std::string_view first = decisions.text();
  check(pcie_bandwidth(first, decisions.rest()));
  check(infiniband_bandwidth(decisions.rest()));
}

std::vector<std::string> seeds() {
  Script tree;
  tree.byte(0);
  for (const char* text :
       {"16.0 GT/s PCIe", "16\n", "up", "100000", "4: ACTIVE", "100 Gb/sec (4X)"})
    tree.text(text);
  return {tree, Script().byte(3).bytes("0-3,8"), Script().byte(1).bytes("1048570-1048576"),
          Script().byte(2).text("2.5 GT/s").bytes("32"),
          Script().byte(2).text("").bytes("200 Gb/sec (4X HDR)")};
}

}  // namespace tutti::fuzz
