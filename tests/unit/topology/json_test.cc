// The JSON form: what other programs find in it, the way back, and damage.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tutti/topology.hpp"

namespace tutti {
namespace {

TEST(TopologyJson, HoldsWhatOtherProgramsLookFor) {
  const Topology topology = parse_synthetic_topology("2x2 nvlink=450 nic=50").value();
  const auto json = nlohmann::json::parse(to_json(topology));
  EXPECT_EQ(json["format"], "tutti-topology");
  EXPECT_EQ(json["version"], 1);
  ASSERT_EQ(json["vertices"].size(), topology.vertices().size());
  ASSERT_EQ(json["links"].size(), topology.links().size());
  std::size_t nvlinks = 0;
  for (const auto& link : json["links"])
    if (link["kind"] == "nvlink") {
      ++nvlinks;
      EXPECT_EQ(link["bandwidth_ab"], 450.0);
      EXPECT_EQ(link["source"], "given");
      EXPECT_EQ(link["half_duplex"], false);
    }
  EXPECT_EQ(nvlinks, 4u);
}

TEST(TopologyJson, ReadsBackUnchanged) {
  for (const char* line : {"1", "4x8 nvlink=450.125 nic=50", "3x5 numa=2 memory=0.1"}) {
    const Topology topology = parse_synthetic_topology(line).value();
    const Result<Topology> read = topology_from_json(to_json(topology));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value(), topology) << line;
  }
}

TEST(TopologyJson, RefusesWhatItDoesNotKnow) {
  const auto good = nlohmann::json::parse(to_json(parse_synthetic_topology("1x2").value()));
  ASSERT_TRUE(topology_from_json(good.dump()).ok());
  const auto expect_corrupt = [&](const char* pointer, const nlohmann::json& value) {
    auto bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    const Result<Topology> read = topology_from_json(bad.dump());
    ASSERT_FALSE(read.ok()) << pointer << " " << value.dump();
    EXPECT_EQ(read.status().code(), StatusCode::corrupt_data);
  };
  expect_corrupt("/format", "something else");
  expect_corrupt("/version", 2);
  expect_corrupt("/vertices", nlohmann::json::object());
  expect_corrupt("/links", nullptr);
  expect_corrupt("/vertices/0", 7);
  expect_corrupt("/vertices/0/kind", "host");
  expect_corrupt("/vertices/1/name", "");
  expect_corrupt("/vertices/1/name", "n0");
  expect_corrupt("/vertices/1/parent", "nobody");
  expect_corrupt("/vertices/1/parent", 3);
  expect_corrupt("/vertices/2/info", nlohmann::json::array());
  expect_corrupt("/vertices/2/info/pus", 3);
  expect_corrupt("/links/0/a", "nobody");
  expect_corrupt("/links/0/latency_ns", "fast");
  expect_corrupt("/links/0/bandwidth_ab", -1);
  expect_corrupt("/links/0/half_duplex", 1);
  expect_corrupt("/links/0/source", "");
  for (const char* text : {"", "[]", "{", "null", "{}"})
    EXPECT_EQ(topology_from_json(text).status().code(), StatusCode::corrupt_data) << text;
  EXPECT_FALSE(topology_from_json(std::string(100000, '[')).ok());
}

TEST(TopologyJson, SurvivesDamage) {
  const std::string whole = to_json(parse_synthetic_topology("1x2 nvlink=450").value());
  std::mt19937 random(21);
  int noticed = 0;
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = whole;
    const std::size_t at = random() % text.size();
    if (round % 2 == 0)
      text[at] = static_cast<char>(random() % 256);
    else
      text.erase(at, 1 + random() % 20);
    const Result<Topology> read = topology_from_json(text);
    if (!read.ok()) {
      ++noticed;
      EXPECT_EQ(read.status().code(), StatusCode::corrupt_data);
    } else {
      EXPECT_EQ(topology_from_json(to_json(read.value())).value(), read.value());
    }
  }
  EXPECT_GT(noticed, kRounds / 4);
}

}  // namespace
}  // namespace tutti
