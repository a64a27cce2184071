// host_test.cc: the card that a rank shows the others: there and back, and nothing else.
#include "runtime/host.hpp"

#include <gtest/gtest.h>

namespace tutti::runtime {
namespace {

TEST(HostCard, RoundTrips) {
  const HostCard card{"b00t/net:[1]",    {0, 1, 5}, "transport auto, channels 0",
                      ~std::uint64_t{0}, 7,         "/a"};
  const auto read = decode_host_card(encode(card));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, card);
}

TEST(HostCard, BytesThatAreNoTextDoNotEndTheProcess) {
  const auto read = decode_host_card(encode({"host\xc3", {0}, "algorithm \xff", 1, 0, "\xff"}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->settings, "algorithm \xef\xbf\xbd");
}

TEST(HostCard, OtherTextsAreNone) {
  for (const char* text : {"", "{}", "[1]", R"({"host": 1, "settings": "", "cpus": []})",
                           R"({"host": "", "settings": "", "cpus": [1.5], "job": 1})",
                           R"({"host": "", "settings": "", "cpus": {}, "job": 1})",
                           R"({"host": "", "settings": "", "cpus": [], "job": -1})",
                           R"({"host": "", "settings": "", "cpus": [], "job": 1})",
                           R"({"host": "", "settings": "", "cpus": [], "job": 1, "tuning": "x",
                               "tuning_source": ""})",
                           R"({"host": "", "settings": "", "cpus": []})"})
    EXPECT_EQ(decode_host_card(text).status().code(), StatusCode::corrupt_data) << text;
}

}  // namespace
}  // namespace tutti::runtime
