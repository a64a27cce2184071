// A file that a user names as a topology, in hwloc's XML: machines as odd as values can make them.
//
// Inputs decide the values in a tree of objects that is well formed: names, texts, sizes, speeds,
// classes, distances, how many there are of what. The form itself is hwloc's to read, before our
// code sees anything, and hwloc trusts it: an object without its processors ends the process inside
// hwloc 2.9. No target of ours can mend that, so XML is for files that one would trust anyway.
//
// Beyond not crashing: what is accepted has all the properties of topology_checks.hpp.
#include <fmt/format.h>
#include <hwloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <iterator>
#include <string>
#include <utility>

#include "fuzz.hpp"
#include "topology_checks.hpp"

namespace tutti::fuzz {
namespace {

// Text as it may stand between quotes.
std::string quoted(std::string_view text) {
  std::string clean(text);
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '&' || c == '<' || c == '>')
      c = '_';
  return clean;
}

class Writer {
 public:
  explicit Writer(Decisions decisions) : in_(decisions) {}

  std::string write() {
    const int packages = 1 + small(2);
    const int cores = 1 + small(2);
    out_ =
        "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
        "<topology version=\"2.0\">";
    open("Machine", mask(0, packages * cores), " os_index=\"0\"");
    info("HostName");
    for (int package = 0; package < packages; ++package) write_package(package, cores);
    out_ += "</object>";
    if (gpus_ > 1) write_distances();
    return out_ + "</topology>";
  }

 private:
  int small(int bound) { return in_.number<std::uint8_t>() % bound; }

  static unsigned long mask(int first, int count) { return ((1UL << count) - 1) << first; }

  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }

  void open(std::string_view type, unsigned long cpus, const std::string& more) {
    add("<object type=\"{}\" cpuset=\"{:#x}\" complete_cpuset=\"{:#x}\" nodeset=\"0x1\" "
        "complete_nodeset=\"0x1\" gp_index=\"{}\"{}>",
        type, cpus, cpus, ++serial_, more);
  }

  void info(std::string_view name) {
    add("<info name=\"{}\" value=\"{}\"/>", name, quoted(in_.text()));
  }

  void write_package(int package, int cores) {
    const unsigned long cpus = mask(package * cores, cores);
    open("Package", cpus, fmt::format(" os_index=\"{}\"", package));
    info("CPUModel");
    if (package == 0) {
      open("NUMANode", cpus,
           fmt::format(" os_index=\"0\" local_memory=\"{}\"", in_.number<std::uint64_t>()));
      out_ += "</object>";
    }
    const bool cached = small(2) == 0;
    if (cached)
      open("L3Cache", cpus,
           fmt::format(" cache_size=\"{}\" depth=\"3\" cache_type=\"0\"",
                       in_.number<std::uint64_t>()));
    for (int core = package * cores; core < (package + 1) * cores; ++core) {
      open("Core", mask(core, 1), fmt::format(" os_index=\"{}\"", small(8)));
      open("PU", mask(core, 1), fmt::format(" os_index=\"{}\"", core));
      out_ += "</object></object>";
    }
    if (cached) out_ += "</object>";
    write_devices(package);
    out_ += "</object>";
  }

  void write_devices(int package) {
    const int count = small(3);
    if (count == 0) return;
    add("<object type=\"Bridge\" gp_index=\"{}\" bridge_type=\"0-1\" depth=\"0\" "
        "bridge_pci=\"000{}:[00-0f]\">",
        ++serial_, package);
    for (int i = 0; i < count; ++i) write_device(package, i);
    out_ += "</object>";
  }

  void write_device(int package, int number) {
    constexpr int kClasses[] = {0x0302, 0x0300, 0x0207, 0x0200, 0x0680, 0x0108, 0x0b40, 0x0c03};
    constexpr int kVendors[] = {0x10de, 0x15b3, 0x1002, 0x8086};
    const int device_class =
        small(4) == 0 ? in_.number<std::uint16_t>() : kClasses[small(std::size(kClasses))];
    // One after the other: which argument of a call is worked out first is the compiler's choice.
    const int bus = 1 + small(3) + 4 * number;
    const int function = small(8);
    const int vendor = kVendors[small(std::size(kVendors))];
    const int model = in_.number<std::uint16_t>();
    const std::string speed = quoted(in_.text());
    add("<object type=\"PCIDev\" gp_index=\"{}\" pci_busid=\"000{}:{:02x}:00.{}\" "
        "pci_type=\"{:04x} [{:04x}:{:04x}] [0000:0000] 00\" pci_link_speed=\"{}\">",
        ++serial_, package, bus, function, device_class, vendor, model, speed);
    if (device_class == 0x0302) gpus_ += 1, last_gpus_[gpus_ % 2] = serial_;
    info("PCIDevice");
    for (int i = small(3); i > 0; --i) {
      const std::string name = quoted(in_.text());
      add("<object type=\"OSDev\" gp_index=\"{}\" name=\"{}\" osdev_type=\"{}\"/>", ++serial_, name,
          small(6));
    }
    out_ += "</object>";
  }

  // How fast the last two GPUs reach each other.
  void write_distances() {
    const std::string indexes = fmt::format("PCIDev:{} PCIDev:{} ", last_gpus_[0], last_gpus_[1]);
    std::string values;
    for (int i = 0; i < 4; ++i) values += fmt::format("{} ", in_.number<std::uint64_t>());
    add("<distances2hetero nbobjs=\"2\" kind=\"25\" name=\"NVLinkBandwidth\"><indexes "
        "length=\"{}\">{}</indexes><u64values length=\"{}\">{}</u64values></distances2hetero>",
        indexes.size(), indexes, values.size(), values);
  }

  Decisions in_;
  std::string out_;
  int serial_ = 0;
  int gpus_ = 0;
  int last_gpus_[2] = {};
};

// A file in memory, the same for all inputs.
int file() {
  static const int made = ::memfd_create("topology.xml", MFD_CLOEXEC);
  return made;
}

// hwloc opens its plugins for the first topology and closes them with the last one, which takes
// longer than all that is tested; so one topology is always there.
void keep_plugins_open() {
  static hwloc_topology_t kept = [] {
    hwloc_topology_t topology = nullptr;
    TUTTI_ASSERT(hwloc_topology_init(&topology) == 0, "hwloc makes an empty topology");
    return topology;
  }();
  static_cast<void>(kept);
}

Result<Topology> read_machine(const std::string& xml) {
  keep_plugins_open();
  const auto bytes = static_cast<ssize_t>(xml.size());
  const bool written =
      ::pwrite(file(), xml.data(), xml.size(), 0) == bytes && ::ftruncate(file(), bytes) == 0;
  TUTTI_ASSERT(written, "a file in memory can be written");
  const std::string path = "/proc/self/fd/" + std::to_string(file());
  return discover_topology({.hwloc_xml = path});
}

}  // namespace

std::size_t input_bytes_max() { return 512; }

void run(std::string_view input) {
  const std::string xml = Writer(Decisions(input)).write();
  if (!is_new(xml)) return;
  const Result<Topology> topology = read_machine(xml);
  if (topology.ok()) check_topology(*topology);
}

std::vector<std::string> seeds() {
  Script two_gpus;
  two_gpus.byte(1)
      .byte(1)
      .text("host")
      .text("chip")
      .number(std::uint64_t{1} << 30)
      .byte(0)
      .number(std::uint64_t{1} << 24);
  two_gpus.byte(0).byte(1).byte(2);
  const auto device = [&](int device_class, int vendor) {
    two_gpus.byte(1).byte(device_class).byte(1).byte(0).byte(vendor).number(std::uint16_t{0x2330});
    two_gpus.text("15.75").text("model").byte(1).text("nvml0").byte(1);
  };
  device(0, 0);
  device(0, 0);
  two_gpus.text("other chip").byte(1).byte(0).byte(1).byte(1);
  device(2, 1);
  for (const std::uint64_t speed : {1000000U, 450000U, 450000U, 1000000U}) two_gpus.number(speed);
  // Were hwloc to refuse what we write, nothing would be tested.
  const auto machine = read_machine(Writer(Decisions(std::string(two_gpus))).write());
  TUTTI_ASSERT(machine.ok() && machine->of_kind(VertexKind::gpu).size() == 2,
               "hwloc reads a good machine");
  return {two_gpus, "", std::string(64, '\1')};
}

}  // namespace tutti::fuzz
