// Configs of callers that were compiled with any NCCL's header.
#include "nccl/init_config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace tutti::nccl::test {
namespace {

ncclConfig_t fresh() { return NCCL_CONFIG_INITIALIZER; }

std::string why_not(const ncclConfig_t& config) { return read_config(&config).status().message(); }

TEST(InitConfig, OfNothingIsTheDefault) {
  for (const ncclConfig_t& config : {fresh()}) {
    const auto read = read_config(&config);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_TRUE(read->blocking);
    EXPECT_EQ(read->name, "");
  }
  EXPECT_TRUE(read_config(nullptr).ok());
}

TEST(InitConfig, SaysWhatItIs) {
  ncclConfig_t config = fresh();
  config.blocking = 0;
  config.commName = "expert";
  const auto read = read_config(&config);
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->blocking);
  EXPECT_EQ(read->name, "expert");
}

TEST(InitConfig, AsksForCopyEngines) {
  EXPECT_FALSE(read_config(nullptr)->copy_engines);
  for (const auto& [policy, wanted] :
       {std::pair(NCCL_CONFIG_UNDEF_INT, false), std::pair(NCCL_CTA_POLICY_DEFAULT, false),
        std::pair(NCCL_CTA_POLICY_EFFICIENCY, false), std::pair(NCCL_CTA_POLICY_ZERO, true)}) {
    ncclConfig_t config = fresh();
    config.CTAPolicy = policy;
    EXPECT_EQ(read_config(&config)->copy_engines, wanted) << policy;
  }
  ncclConfig_t config = fresh();
  config.CTAPolicy = 4;
  EXPECT_EQ(why_not(config), "ncclConfig_t: CTAPolicy is 4, expected 0..3");
}

// Every length from the head to far beyond what this library knows.
TEST(InitConfig, OfAnyLengthIsRead) {
  ncclConfig_t whole = fresh();
  whole.blocking = 0;
  whole.commName = "name";
  for (std::size_t size = offsetof(ncclConfig_t, blocking); size < sizeof whole + 64; ++size) {
    // Exactly as many bytes as the caller has: a sanitizer sees one too many that is read.
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), &whole, std::min(size, sizeof whole));
    std::memcpy(bytes.data(), &size, sizeof size);
    const auto read = read_config(reinterpret_cast<const ncclConfig_t*>(bytes.data()));
    ASSERT_TRUE(read.ok()) << size << ": " << read.status().to_string();
    const std::size_t whole_members = size - size % alignof(ncclConfig_t);
    const bool has_blocking = whole_members > offsetof(ncclConfig_t, blocking);
    const bool has_name = whole_members > offsetof(ncclConfig_t, commName);
    EXPECT_EQ(read->blocking, !has_blocking) << size;
    EXPECT_EQ(read->name, has_name ? "name" : "") << size;
  }
}

TEST(InitConfig, ThatIsNoneIsRefused) {
  ncclConfig_t config = fresh();
  config.magic = 7;
  EXPECT_NE(why_not(config).find("magic 0x7"), std::string::npos);
  config = fresh();
  config.size = 3;
  EXPECT_NE(why_not(config).find("size 3"), std::string::npos);
}

TEST(InitConfig, OfValuesThatCannotBeIsRefusedByName) {
  ncclConfig_t config = fresh();
  config.blocking = 2;
  EXPECT_EQ(why_not(config), "ncclConfig_t: blocking is 2, expected 0..1");
  config = fresh();
  config.minCTAs = 0;
  EXPECT_NE(why_not(config).find("minCTAs is 0"), std::string::npos);
  config = fresh();
  config.minCTAs = 4;
  config.maxCTAs = 3;
  EXPECT_NE(why_not(config).find("minCTAs 4 is more than maxCTAs 3"), std::string::npos);
}

}  // namespace
}  // namespace tutti::nccl::test
