// crc32c_test.cc: published checksums, and every length and alignment against the definition.
#include "base/crc32c.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

namespace tutti::base {
namespace {

std::vector<std::byte> bytes_of(const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// One bit at a time, as the polynomial says.
std::uint32_t by_definition(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
  }
  return ~crc;
}

TEST(Crc32c, OfTheExamplesInRfc3720) {
  EXPECT_EQ(crc32c(bytes_of(std::vector<int>(32, 0))), 0x8a9136aaU);
  EXPECT_EQ(crc32c(bytes_of(std::vector<int>(32, 255))), 0x62a8ab43U);
  std::vector<int> rising(32);
  std::iota(rising.begin(), rising.end(), 0);
  EXPECT_EQ(crc32c(bytes_of(rising)), 0x46dd794eU);
  std::reverse(rising.begin(), rising.end());
  EXPECT_EQ(crc32c(bytes_of(rising)), 0x113fdb5cU);
  std::vector<int> read_command(48, 0);
  read_command[0] = 0x01;
  read_command[1] = 0xc0;
  read_command[16] = 0x14;
  read_command[22] = 0x04;
  read_command[27] = 0x14;
  read_command[31] = 0x18;
  read_command[32] = 0x28;
  read_command[40] = 0x02;
  EXPECT_EQ(crc32c(bytes_of(read_command)), 0xd9963a56U);
}

TEST(Crc32c, OfTheUsualNineDigitsAndOfNothing) {
  EXPECT_EQ(crc32c(std::as_bytes(std::span(std::string_view("123456789")))), 0xe3069283U);
  EXPECT_EQ(crc32c({}), 0U);
  EXPECT_EQ(crc32c({}, 0x12345678U), 0x12345678U);
}

// Fast forms treat heads, tails and long middles differently.
TEST(Crc32c, OfEveryLengthAndAlignmentAgreesWithTheDefinition) {
  std::minstd_rand random(1);
  std::vector<std::byte> data(70'000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random() >> 7);
  const std::span<const std::byte> all(data);
  for (std::size_t start = 0; start < 17; ++start)
    for (std::size_t length = 0; length < 600; ++length)
      ASSERT_EQ(crc32c(all.subspan(start, length)), by_definition(all.subspan(start, length)))
          << start << " " << length;
  for (const std::size_t length : {1023U, 1024U, 1025U, 3072U, 4096U, 10'000U, 65'536U, 69'999U})
    ASSERT_EQ(crc32c(all.subspan(1, length)), by_definition(all.subspan(1, length))) << length;
}

TEST(Crc32c, GoesOnWhereItLeftOff) {
  std::minstd_rand random(2);
  std::vector<std::byte> data(5000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random() >> 7);
  const std::span<const std::byte> all(data);
  for (const std::size_t cut : {0U, 1U, 7U, 24U, 500U, 4096U, 4999U, 5000U})
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all)) << cut;
}

}  // namespace
}  // namespace tutti::base
