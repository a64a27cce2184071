// `tutti topo`: its options, and that what it prints reads back.
#include "cli/topo_command.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tutti/topology.hpp"
#include "unit/cli/command.hpp"

namespace tutti::cli {
namespace {

using testing::Outcome;

Outcome run(std::vector<std::string> arguments) {
  return testing::run_command(add_topo_command, std::move(arguments));
}

TEST(TopoCommand, ShowsASyntheticCluster) {
  const Outcome outcome = run({"topo", "--synthetic", "4x8 nvlink=450 nic=50"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, describe(parse_synthetic_topology("4x8 nvlink=450 nic=50").value()));
}

TEST(TopoCommand, ShowsThisMachine) {
  const Outcome outcome = run({"topo"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.out.find("core0"), std::string::npos);
}

TEST(TopoCommand, TextReadsBackThroughFile) {
  const Topology topology = parse_synthetic_topology("2x2 nvlink=450").value();
  const Outcome text = run({"topo", "--synthetic", "2x2 nvlink=450", "--text"});
  ASSERT_EQ(text.exit_code, 0);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tutti-topo-test-" + std::to_string(::getpid())))
          .string();
  std::ofstream(path) << text.out;
  const Outcome json = run({"topo", "--file", path, "--json"});
  std::filesystem::remove(path);
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_EQ(topology_from_json(json.out).value(), topology);
}

TEST(TopoCommand, SaysWhatIsWrong) {
  const Outcome outcome = run({"topo", "--synthetic", "4x8 nvlnk=450"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("'nvlnk=450'"), std::string::npos);
  EXPECT_EQ(run({"topo", "--json", "--text"}).exit_code, 2);
  EXPECT_EQ(run({"topo", "--file", "/no/such/file"}).exit_code, 2);
}

}  // namespace
}  // namespace tutti::cli
