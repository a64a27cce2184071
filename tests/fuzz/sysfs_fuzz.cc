// What a machine's drivers write into /sys, and lists of processors as the kernel writes them.
//
// Beyond not crashing: a bandwidth is positive and finite, or not told; a list of processors is
// within bounds, and its memory within a multiple of the text.
#include <cmath>
#include <filesystem>
#include <fstream>

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

  void write(const char* path, std::string_view text) const {
    std::ofstream(root_ / path, std::ios::binary) << text;
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

void check_tree(Decisions decisions) {
  static const Tree tree;
  const char* files[] = {
      "sys/bus/pci/devices/a/max_link_speed", "sys/bus/pci/devices/a/current_link_width",
      "sys/class/net/e0/operstate",           "sys/class/net/e0/speed",
      "sys/class/infiniband/m/ports/1/state", "sys/class/infiniband/m/ports/1/rate"};
  for (const char* file : files) tree.write(file, decisions.text());
  const Sysfs sysfs(tree.root());
  check(sysfs.pci_link_bandwidth("a", ""));
  check(sysfs.infiniband_bandwidth_of("m"));
  for (const NetworkInterface& interface : sysfs.network_interfaces()) check(interface.bandwidth);
}

bool has_long_number(std::string_view text) {
  int digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > 4) return true;
  }
  return false;
}

void check_list(const std::string& text) {
  const AllocationLimit limit(kListMemory);
  for (const int cpu : base::parse_cpu_list(text))
    TUTTI_ASSERT(cpu >= 0 && cpu <= 1 << 20, "a processor's number is within bounds");
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
