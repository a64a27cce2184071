// The text form: reads back unchanged, says where it is wrong, survives anything.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tutti/topology.hpp"

namespace tutti {
namespace {

Topology odd_one() {
  TopologyBuilder builder;
  const VertexId node = builder.add_vertex(
      {VertexKind::node, "n0", VertexId::none, {{"model", "a \"b\" \\ = c"}, {"empty", ""}}});
  const VertexId a = builder.add_vertex({VertexKind::gpu, "n0/gpu0", node, {}});
  const VertexId b = builder.add_vertex({VertexKind::gpu, "n0/gpu1", node, {}});
  builder.add_link({LinkKind::xgmi, a, b, 0.1, 1.0 / 3, 1e-9, false, LinkSource::measured});
  builder.add_link({LinkKind::memory, a, b, 1e300, 7, 7, true, LinkSource::reported});
  return std::move(builder).build().value();
}

void expect_corrupt(const std::string& text, const std::string& says) {
  const Result<Topology> read = topology_from_text(text);
  ASSERT_FALSE(read.ok()) << text;
  EXPECT_EQ(read.status().code(), StatusCode::corrupt_data);
  EXPECT_NE(read.status().message().find(says), std::string::npos) << read.status().message();
}

TEST(Text, LooksLikeThis) {
  EXPECT_EQ(to_text(odd_one()),
            "tutti-topology 1\n"
            "vertex node n0 - empty=\"\" model=\"a \\\"b\\\" \\\\ = c\"\n"
            "vertex gpu n0/gpu0 n0\n"
            "vertex gpu n0/gpu1 n0\n"
            "link xgmi n0/gpu0 n0/gpu1 latency_ns=0.1 bandwidth=0.3333333333333333/1e-09 "
            "source=measured\n"
            "link memory n0/gpu0 n0/gpu1 latency_ns=1e+300 bandwidth=7 half_duplex "
            "source=reported\n"
            "end 3 2\n");
}

TEST(Text, ReadsBackUnchanged) {
  EXPECT_EQ(topology_from_text(to_text(odd_one())).value(), odd_one());
  for (const char* line : {"1", "4x8 nvlink=450 nic=50", "3x5 numa=2", "2x3 pcie=31.5 nics=2"}) {
    const Topology topology = parse_synthetic_topology(line).value();
    EXPECT_EQ(topology_from_text(to_text(topology)).value(), topology) << line;
  }
}

TEST(Text, PeopleMayWriteItThemselves) {
  const Result<Topology> read = topology_from_text(
      "tutti-topology 1\r\n"
      "# two hosts\r\n"
      "\r\n"
      "vertex node a -   model=\"x\"  \n"
      "vertex node b -\n"
      "link network a b source=given bandwidth=5 latency_ns=10\n"
      "end 2 1");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().link(LinkId{0}).bandwidth_ba, 5);
}

TEST(Text, ErrorsNameTheLine) {
  const std::string begin = "tutti-topology 1\nvertex node n0 -\n";
  expect_corrupt("", "end line is missing");
  expect_corrupt("tutti-topology 2\n", "line 1");
  expect_corrupt(begin, "cut short");
  expect_corrupt(begin + "end 1 1\n", "line 3");
  expect_corrupt(begin + "end 1 0\nend 1 0\n", "line 4");
  expect_corrupt(begin + "end 1 0 0\n", "line 3");
  expect_corrupt(begin + "edge n0 n1\nend 1 0\n", "'edge'");
  expect_corrupt(begin + "vertex host n1 -\nend 2 0\n", "kind of vertex");
  expect_corrupt(begin + "vertex gpu g0\nend 2 0\n", "line 3");
  expect_corrupt(begin + "vertex gpu g0 n7\nend 2 0\n", "parent");
  expect_corrupt(begin + "vertex gpu n0 -\nend 2 0\n", "second vertex");
  expect_corrupt(begin + "vertex gpu g=0 -\nend 2 0\n", "name of letters");
  expect_corrupt(begin + "vertex gpu g0 - a=b\nend 2 0\n", "key=");
  expect_corrupt(begin + "vertex gpu g0 - a=\"b\nend 2 0\n", "key=");
  expect_corrupt(begin + "vertex gpu g0 - a=\"b\\\nend 2 0\n", "key=");
  expect_corrupt(begin + "vertex gpu g0 - a=\"b\" a=\"c\"\nend 2 0\n", "twice");
  expect_corrupt(begin + "link pcie n0 n1 bandwidth=1\nend 1 1\n", "end of the link");
  expect_corrupt(begin + "link pcie n0 n0 bandwidth=1 source=given\nend 1 1\n", "same vertex");
  const std::string pair = begin + "vertex gpu g0 n0\n";
  expect_corrupt(pair + "link wire n0 g0 bandwidth=1\nend 2 1\n", "kind of link");
  expect_corrupt(pair + "link pcie n0 g0 bandwidth=1e999\nend 2 1\n", "line 4");
  expect_corrupt(pair + "link pcie n0 g0 bandwidth=nan\nend 2 1\n", "bandwidth");
  expect_corrupt(pair + "link pcie n0 g0 bandwidth=1/\nend 2 1\n", "line 4");
  expect_corrupt(pair + "link pcie n0 g0 latency_ns=1\nend 2 1\n", "bandwidth");
  expect_corrupt(pair + "link pcie n0 g0 speed=1\nend 2 1\n", "latency_ns=, bandwidth=");
  expect_corrupt(pair + "link pcie n0 g0 bandwidth=1 source=me\nend 2 1\n", "cannot be read");
}

// Random damage either is noticed or still makes a topology that reads back unchanged.
TEST(Text, SurvivesDamage) {
  const std::string whole = to_text(parse_synthetic_topology("2x2 nvlink=450").value());
  const std::string alphabet = "\"\\=/-. \n09aenx\0\xff";
  std::mt19937 random(20);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int noticed = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = whole;
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
      const std::size_t at = below(text.size());
      const std::size_t length = below(std::min<std::size_t>(text.size() - at, 12));
      switch (below(4)) {
        case 0:
          text[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          text.erase(at, length + 1);
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), length));
          break;
        default:
          text.insert(at, 1, alphabet[below(alphabet.size())]);
      }
      if (text.empty()) break;
    }
    const Result<Topology> read = topology_from_text(text);
    if (!read.ok()) {
      ++noticed;
      EXPECT_EQ(read.status().code(), StatusCode::corrupt_data);
    } else {
      EXPECT_EQ(topology_from_text(to_text(read.value())).value(), read.value());
    }
  }
  EXPECT_GT(noticed, kRounds / 2);
}

}  // namespace
}  // namespace tutti
