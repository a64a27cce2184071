// text_test.cc: sizes, numbers and near misses, as users write them and as they must not.
#include "base/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

namespace tutti::base {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ParseBytes, UnderstandsTheUnitsThatPeopleWrite) {
  const std::pair<std::string_view, std::uint64_t> cases[] = {
      {"0", 0},
      {"8", 8},
      {"512B", 512},
      {"64K", 64 << 10},
      {"64k", 64 << 10},
      {"64KiB", 64 << 10},
      {"64M", 64 << 20},
      {"64MiB", 64 << 20},
      {"64 MiB", 64 << 20},
      {"1.5G", 3ULL << 29},
      {"0.5k", 512},
      {"2T", 2ULL << 40},
      {"2MB", 2'000'000},
      {"1.5kB", 1500},
      {"9007199254740993", 9007199254740993},  // more digits than a double holds
  };
  for (const auto& [text, bytes] : cases) {
    const auto parsed = parse_bytes(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status().to_string();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const std::string_view text :
       {"", "M", "-1", "1.5", "0.3K", "1..5G", "64X", "64Mi", "64MiBs", "8 8", " 8", "0x10", "1e6",
        "9999999999G", "99999999999999999999", "."}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed.ok()) << text << " gave " << *parsed;
    EXPECT_EQ(parsed.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(parsed.status().message(), HasSubstr(text));
  }
}

TEST(FormatBytes, IsShort) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(8), "8 B");
  EXPECT_EQ(format_bytes(1000), "1000 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(64 << 20), "64 MiB");
  EXPECT_EQ(format_bytes((1ULL << 30) + (1ULL << 28)), "1.25 GiB");
  EXPECT_EQ(format_bytes(5000ULL << 40), "5000 TiB");
}

TEST(FormatBytes, IsReadBack) {
  for (const std::uint64_t bytes : {1ULL, 512ULL, 1536ULL, 64ULL << 20, 5ULL << 40}) {
    const auto parsed = parse_bytes(format_bytes(bytes));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, bytes);
  }
}

TEST(ParseInteger, ChecksTheWholeTextAndTheRange) {
  EXPECT_EQ(*parse_integer("0", 0, 10), 0);
  EXPECT_EQ(*parse_integer("-3", -5, 10), -3);
  EXPECT_EQ(*parse_integer("10", 0, 10), 10);
  for (const std::string_view text :
       {"", "11", "-1", "3x", " 3", "3 ", "+3", "0x3", "3.0", "99999999999999999999"}) {
    const auto parsed = parse_integer(text, 0, 10);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(parsed.status().message(), HasSubstr("0 to 10"));
  }
  EXPECT_THAT(parse_integer("0", 1, std::numeric_limits<std::int64_t>::max()).status().message(),
              HasSubstr("at least 1"));
}

TEST(Split, KeepsEmptyPieces) {
  EXPECT_THAT(split("", ','), IsEmpty());
  EXPECT_THAT(split("a", ','), ElementsAre("a"));
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
}

TEST(Join, PutsTheSeparatorBetween) {
  const std::array<std::string_view, 3> pieces = {"shm", "tcp", "memory"};
  EXPECT_EQ(join(pieces, ", "), "shm, tcp, memory");
  EXPECT_EQ(join({}, ", "), "");
}

TEST(EditDistance, CountsChanges) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("ring", "ring"), 0U);
  EXPECT_EQ(edit_distance("ring", "rings"), 1U);  // insert
  EXPECT_EQ(edit_distance("ring", "rng"), 1U);    // delete
  EXPECT_EQ(edit_distance("ring", "rang"), 1U);   // replace
  EXPECT_EQ(edit_distance("ring", "rign"), 1U);   // swap
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Nearest, FindsTheNearMissOnly) {
  const std::array<std::string_view, 3> names = {"TRANSPORT", "TIMEOUT_MS", "LOG"};
  EXPECT_EQ(nearest("TRANPORT", names), "TRANSPORT");
  EXPECT_EQ(nearest("TIMEOUT", names), std::nullopt);  // three letters off: more than a slip
  EXPECT_EQ(nearest("TIMOUT_MS", names), "TIMEOUT_MS");
  EXPECT_EQ(nearest("COLOUR", names), std::nullopt);
}

}  // namespace
}  // namespace tutti::base
