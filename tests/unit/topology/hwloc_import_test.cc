// What hwloc knows, from an invented machine and, where they are at hand, recorded ones.
#include "topology/hwloc_import.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "files.hpp"
#include "little_machine.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define TUTTI_LOOKS_FOR_LEAKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TUTTI_LOOKS_FOR_LEAKS
#endif
#endif
#ifdef TUTTI_LOOKS_FOR_LEAKS
#include <sanitizer/lsan_interface.h>
#endif

namespace tutti {
namespace {

// hwloc 2.9 forgets the object that it was reading when it refuses a file, unless its plugin for
// libxml2 is installed, which most machines do without.
#ifdef TUTTI_LOOKS_FOR_LEAKS
using HwlocMayLeak = __lsan::ScopedDisabler;
#else
struct HwlocMayLeak {
  HwlocMayLeak() {}  // so that nobody calls it unused
};
#endif

using testing::TempDir;

Result<Topology> import_file(const std::string& path) {
  return discover_topology({.hwloc_xml = path});
}

Topology little_machine() {
  const TempDir dir;
  const auto read = import_file(dir.write("little.xml", testing::kLittleMachineXml));
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? read.value() : Topology();
}

std::string parent_of(const Topology& topology, const char* name) {
  const VertexId parent = topology.vertex(topology.find(name).value()).parent;
  return parent == VertexId::none ? "" : topology.vertex(parent).name;
}

const Link& link_between(const Topology& topology, const char* a, const char* b) {
  const VertexId other = topology.find(b).value();
  for (const LinkId id : topology.links_at(topology.find(a).value()))
    if (topology.link(id).a == other || topology.link(id).b == other) return topology.link(id);
  ADD_FAILURE() << a << " and " << b << " are not linked";
  return topology.links().front();
}

TEST(HwlocImport, NestsByProcessors) {
  const Topology topology = little_machine();
  EXPECT_EQ(parent_of(topology, "n0/core3"), "n0/l3-1");
  EXPECT_EQ(parent_of(topology, "n0/l3-1"), "n0/numa1");
  EXPECT_EQ(parent_of(topology, "n0/numa1"), "n0/package1");
  EXPECT_EQ(parent_of(topology, "n0/package1"), "n0");
  EXPECT_EQ(topology.of_kind(VertexKind::cache).size(), 2u);  // L2 is private
  const auto info = [&](const char* name) {
    return topology.vertex(topology.find(name).value()).info;
  };
  EXPECT_EQ(info("n0/core3"),
            (std::map<std::string, std::string>{{"pus", "3"}, {"l2_bytes", "1048576"}}));
  EXPECT_EQ(info("n0/numa0").at("memory_bytes"), "1073741824");
  EXPECT_EQ(info("n0/package0").at("model"), "Little Chip");
  EXPECT_EQ(info("n0").at("host"), "little");
  EXPECT_EQ(info("n0").at("memory_bytes"), "2147483648");
}

TEST(HwlocImport, KeepsTheDevicesThatMatter) {
  const Topology topology = little_machine();
  EXPECT_EQ(topology.of_kind(VertexKind::gpu).size(), 2u);
  EXPECT_EQ(topology.of_kind(VertexKind::gpu_switch).size(), 1u);
  EXPECT_EQ(topology.of_kind(VertexKind::nic).size(), 1u);
  EXPECT_EQ(topology.of_kind(VertexKind::pci_device).size(), 2u);  // screen and disk
  EXPECT_EQ(topology.of_kind(VertexKind::pci_bridge).size(), 4u);  // not the port of USB alone
  EXPECT_EQ(parent_of(topology, "n0/gpu1"), "n0/pci-0000:00:01.0");
  EXPECT_EQ(parent_of(topology, "n0/hostbridge1"), "n0/numa1");
  const Vertex& nic = topology.vertex(topology.find("n0/nic0").value());
  EXPECT_EQ(nic.info.at("net"), "ib0");
  EXPECT_EQ(nic.info.at("fabric"), "mlx5_0");
  EXPECT_EQ(nic.info.at("pci"), "0001:01:00.0");
}

TEST(HwlocImport, LinkSpeeds) {
  const Topology topology = little_machine();
  const Link& known = link_between(topology, "n0/nic0", "n0/pci-0001:00:01.0");
  EXPECT_NEAR(known.bandwidth_ab, 31.51, 0.01);
  EXPECT_EQ(known.source, LinkSource::reported);
  const Link& unknown = link_between(topology, "n0/gpu1", "n0/pci-0000:00:01.0");
  EXPECT_EQ(unknown.source, LinkSource::assumed);
  const Link& nvlink = link_between(topology, "n0/gpu1", "n0/nvswitch0");
  EXPECT_EQ(nvlink.kind, LinkKind::nvlink);
  EXPECT_EQ(nvlink.bandwidth_ab, 450);
  EXPECT_EQ(nvlink.source, LinkSource::reported);
  EXPECT_EQ(link_between(topology, "n0/package0", "n0/package1").kind, LinkKind::interconnect);
}

TEST(HwlocImport, PathsFollow) {
  const Topology topology = little_machine();
  const auto path = [&](const char* a, const char* b) {
    return find_path(topology, topology.find(a).value(), topology.find(b).value()).value();
  };
  EXPECT_EQ(path("n0/gpu0", "n0/gpu1").bandwidth, 450);
  EXPECT_EQ(path("n0/core0", "n0/core1").hops.size(), 2u);
  EXPECT_GT(path("n0/core0", "n0/core2").latency_ns, path("n0/core0", "n0/core1").latency_ns);
  EXPECT_NEAR(path("n0/gpu0", "n0/nic0").bandwidth, 15.75, 0.01);
}

TEST(HwlocImport, RefusesWhatHwlocRefuses) {
  const HwlocMayLeak while_it_refuses;
  const TempDir dir;
  const std::string whole = testing::kLittleMachineXml;
  std::string newer = whole;
  newer.replace(newer.find("version=\"2.0\""), 13, "version=\"3.0\"");
  for (const std::string& text : {std::string(), std::string("<topology"), std::string("hello"),
                                  whole.substr(0, whole.size() / 2), newer}) {
    const Result<Topology> read = import_file(dir.write("bad.xml", text));
    ASSERT_FALSE(read.ok()) << text.substr(0, 80);
    EXPECT_EQ(read.status().code(), StatusCode::corrupt_data);
    EXPECT_NE(read.status().message().find("bad.xml"), std::string::npos);
  }
  EXPECT_EQ(import_file(dir.path() + "/none.xml").status().code(), StatusCode::corrupt_data);
}

// Every pair of seats of a machine must reach each other.
void expect_connected(const Topology& topology) {
  const auto all = default_placement(topology, static_cast<int>(seats(topology).size()));
  for (const VertexId seat : all) {
    const Result<Path> path = find_path(topology, all.front(), seat);
    EXPECT_TRUE(path.ok()) << path.status().message();
  }
}

TEST(HwlocImport, RecordedMachines) {
  const auto files = testing::recorded_files("hwloc", ".xml");
  if (files.empty()) GTEST_SKIP() << "TUTTI_TEST_DATA holds no recorded hwloc machines";
  int read = 0;
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    std::ifstream stream(file);
    std::stringstream text;
    text << stream.rdbuf();
    const Result<Topology> topology = import_file(file);
    if (text.str().find("<topology version=\"3.0\"") != std::string::npos) {
      EXPECT_EQ(topology.status().code(), StatusCode::corrupt_data);
      continue;
    }
    ASSERT_TRUE(topology.ok()) << topology.status().message();
    ++read;
    EXPECT_EQ(topology_from_text(to_text(*topology)).value(), *topology);
    EXPECT_EQ(topology_from_json(to_json(*topology)).value(), *topology);
    expect_connected(*topology);
  }
  EXPECT_GT(read, 0);
}

TEST(HwlocImport, RecordedShapes) {
  struct Shape {
    std::size_t packages, cores, gpus;
  };
  const std::map<std::string, Shape> expected = {
      {"coral-lassen.xml", {2, 40, 4}},
      {"epyc-corona.xml", {2, 48, 4}},
      {"cts1-pascal.xml", {2, 36, 2}},
      {"cts1-quartz-smt1.xml", {2, 36, 0}},
  };
  std::size_t checked = 0;
  for (const std::string& file : testing::recorded_files("hwloc", ".xml")) {
    const auto shape = expected.find(std::filesystem::path(file).filename().string());
    if (shape == expected.end()) continue;
    SCOPED_TRACE(file);
    const Result<Topology> topology = import_file(file);
    ASSERT_TRUE(topology.ok()) << topology.status().message();
    EXPECT_EQ(topology->of_kind(VertexKind::package).size(), shape->second.packages);
    EXPECT_EQ(topology->of_kind(VertexKind::core).size(), shape->second.cores);
    EXPECT_EQ(topology->of_kind(VertexKind::gpu).size(), shape->second.gpus);
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "TUTTI_TEST_DATA holds no recorded hwloc machines";
}

}  // namespace
}  // namespace tutti
