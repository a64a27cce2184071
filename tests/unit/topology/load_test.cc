// Every way to name a topology.
#include <gtest/gtest.h>

#include <string>

#include "files.hpp"
#include "little_machine.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

using testing::TempDir;

TEST(Load, TellsFilesApartByContent) {
  const TempDir dir;
  const Topology topology = parse_synthetic_topology("2x2 nvlink=450").value();
  EXPECT_EQ(load_topology(dir.write("a", to_text(topology))).value(), topology);
  EXPECT_EQ(load_topology(dir.write("b", "\n " + to_json(topology))).value(), topology);
  const auto machine = load_topology(dir.write("c", testing::kLittleMachineXml));
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine.value().of_kind(VertexKind::core).size(), 4u);
}

TEST(Load, OtherwiseALineOrThisMachine) {
  EXPECT_EQ(load_topology("2x2 nvlink=450").value(),
            parse_synthetic_topology("2x2 nvlink=450").value());
  // Links alone: a virtual machine's memory may change between two looks.
  const Topology here = discover_topology().value();
  EXPECT_EQ(load_topology("auto").value().links(), here.links());
  EXPECT_EQ(load_topology("").value().links(), here.links());
}

TEST(Load, ErrorsNameTheFile) {
  const TempDir dir;
  for (const char* text : {"", "hello", "{}", "<xml/>", "tutti-topology 1\n"}) {
    const std::string path = dir.write("bad", text);
    const Result<Topology> loaded = load_topology(path);
    ASSERT_FALSE(loaded.ok()) << text;
    EXPECT_EQ(loaded.status().code(), StatusCode::corrupt_data) << text;
    EXPECT_NE(loaded.status().message().find(path), std::string::npos);
  }
  const Result<Topology> missing = load_topology(dir.path() + "/none");
  EXPECT_EQ(missing.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(missing.status().message().find("file that exists"), std::string::npos);
}

}  // namespace
}  // namespace tutti
