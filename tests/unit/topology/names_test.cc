// Names of kinds and sources go there and back.
#include "topology/names.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti::topology {
namespace {

TEST(Names, KindsReadBack) {
  for (int i = 0; i <= static_cast<int>(VertexKind::network_switch); ++i) {
    const auto kind = static_cast<VertexKind>(i);
    EXPECT_EQ(parse_vertex_kind(to_string(kind)), kind);
  }
  for (int i = 0; i <= static_cast<int>(LinkKind::network); ++i) {
    const auto kind = static_cast<LinkKind>(i);
    EXPECT_EQ(parse_link_kind(to_string(kind)), kind);
  }
  for (int i = 0; i <= static_cast<int>(LinkSource::measured); ++i) {
    const auto source = static_cast<LinkSource>(i);
    EXPECT_EQ(parse_link_source(to_string(source)), source);
  }
}

TEST(Names, UnknownOnesDoNot) {
  EXPECT_EQ(parse_vertex_kind("Node"), std::nullopt);
  EXPECT_EQ(parse_link_kind(""), std::nullopt);
  EXPECT_EQ(parse_link_source("guessed"), std::nullopt);
}

TEST(Names, PlainNamesAndTexts) {
  EXPECT_TRUE(is_plain_name("n0/pci-0000:01:00.0"));
  for (const char* bad : {"", "-", "a b", "a\"b", "a=b", "\xc3\xa4"})
    EXPECT_FALSE(is_plain_name(bad)) << bad;
  EXPECT_FALSE(is_plain_name(std::string(256, 'a')));
  EXPECT_TRUE(is_plain_text(""));
  EXPECT_TRUE(is_plain_text("Xeon(R) \"Gold\" = 1"));
  for (const char* bad : {"a\nb", "\x7f", "\xc3\xa4"}) EXPECT_FALSE(is_plain_text(bad));
  EXPECT_FALSE(is_plain_text(std::string(4097, 'a')));
}

}  // namespace
}  // namespace tutti::topology
