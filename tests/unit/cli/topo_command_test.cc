// `tutti topo`: its options, and that what it prints reads back.
#include "cli/topo_command.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tutti/topology.hpp"

namespace tutti::cli {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Parse errors of CLI11 count as exit code 2.
Outcome run(std::vector<std::string> arguments) {
  CLI::App app{"tutti"};
  Outcome outcome;
  add_topo_command(app, outcome.exit_code);
  std::reverse(arguments.begin(), arguments.end());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError&) {
    outcome.exit_code = 2;
  }
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
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
