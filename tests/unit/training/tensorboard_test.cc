// tensorboard_test.cc: event files as a reader of their own takes them apart, and bytes that
// TensorFlow writes.
#include "training/report/tensorboard.hpp"
#include "unit/training/in_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/files/output_file.hpp"

namespace tutti::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using namespace std::string_literals;

using test::InFolder;

// A reader of its own, bit by bit and field by field as the formats say.
std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool one = ((crc ^ (static_cast<unsigned char>(c) >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (one ? 0x82f63b78u : 0);
    }
  }
  return crc ^ 0xffffffffu;
}

template <typename T>
T take_fixed(std::string_view& bytes) {
  T value{};
  EXPECT_GE(bytes.size(), sizeof(T));
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(T)));
  bytes.remove_prefix(std::min(bytes.size(), sizeof(T)));
  return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = take_fixed<std::uint8_t>(bytes);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

std::string_view take_bytes(std::string_view& bytes) {
  const auto length = static_cast<std::size_t>(take_varint(bytes));
  EXPECT_LE(length, bytes.size());
  const std::string_view taken = bytes.substr(0, length);
  bytes.remove_prefix(taken.size());
  return taken;
}

std::uint32_t unmasked(std::uint32_t masked) { return std::rotl(masked - 0xa282ead8u, 15); }

std::vector<std::string> records_of(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = static_cast<std::size_t>(take_fixed<std::uint64_t>(file));
    EXPECT_EQ(unmasked(take_fixed<std::uint32_t>(file)), slow_crc32c(length_bytes));
    records.emplace_back(file.substr(0, length));
    file.remove_prefix(std::min(length, file.size()));
    EXPECT_EQ(unmasked(take_fixed<std::uint32_t>(file)), slow_crc32c(records.back()));
  }
  return records;
}

struct Event {
  double wall_time = 0;
  std::uint64_t step = 0;
  std::string version;
  std::vector<std::pair<std::string, float>> scalars;
};

std::pair<std::string, float> scalar_of(std::string_view value) {
  std::pair<std::string, float> scalar;
  EXPECT_EQ(take_varint(value), 1u << 3 | 2u);
  scalar.first = take_bytes(value);
  EXPECT_EQ(take_varint(value), 2u << 3 | 5u);
  scalar.second = take_fixed<float>(value);
  EXPECT_TRUE(value.empty());
  return scalar;
}

Event event_of(std::string_view message) {
  Event event;
  while (!message.empty()) {
    switch (take_varint(message)) {
      case 1 << 3 | 1:
        event.wall_time = take_fixed<double>(message);
        break;
      case 2 << 3 | 0:
        event.step = take_varint(message);
        break;
      case 3 << 3 | 2:
        event.version = take_bytes(message);
        break;
      case 5 << 3 | 2:
        for (std::string_view summary = take_bytes(message); !summary.empty();) {
          EXPECT_EQ(take_varint(summary), 1u << 3 | 2u);
          event.scalars.push_back(scalar_of(take_bytes(summary)));
        }
        break;
      default:
        ADD_FAILURE() << "an unknown field";
        return event;
    }
  }
  return event;
}

// Of RFC 3720, B.4.
TEST(Crc32c, IsThatOfIscsi) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, BytesAreThoseOfTensorFlow) {
  // The double 1.0, then "brain.Event:2".
  EXPECT_EQ(encode_version_event(1.0), "\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0d"s + "brain.Event:2");
  const Scalar scalar{"a", 1.0};
  EXPECT_EQ(encode_scalars_event(1.0, 300, {&scalar, 1}),
            "\x09\0\0\0\0\0\0\xf0\x3f"s + "\x10\xac\x02" + "\x2a\x0a" + "\x0a\x08" + "\x0a\x01" +
                "a" + "\x15\0\0\x80\x3f"s);
  // The record that opens each of TensorFlow's event files: 24 bytes, and this checksum of that.
  const std::string record = frame_record(encode_version_event(1.0));
  EXPECT_EQ(record.substr(0, 12), "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22"s);
  EXPECT_EQ(record.size(), 8u + 4 + 24 + 4);
}

using EventFile = InFolder;

TEST_F(EventFile, ReadsBack) {
  auto writer = EventWriter::create(path("runs/a"), 1.7e9);
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  EXPECT_THAT(writer->path(), HasSubstr("runs/a/events.out.tfevents.1700000000."));
  const std::vector<Scalar> scalars = {{"x/y", -0.5}, {std::string(200, 't'), 0}};
  ASSERT_TRUE(writer->write(1.7e9 + 0.25, 0, scalars).ok());
  StepMetrics metrics;
  metrics.step = 1'000'000'007;
  metrics.loss = 1.5;
  metrics.learning_rate = 3e-4;
  metrics.gradient_norm = 0.75;
  metrics.tokens_per_second = 12345;
  metrics.mfu = 0.412;
  metrics.exposed_communication = 0.031;
  metrics.seconds = 0.25;
  metrics.more = {{"validation_loss", 2.5}};
  ASSERT_TRUE(writer->write(1.7e9 + 1, metrics).ok());

  const auto file = read_file(writer->path(), 1 << 20);
  ASSERT_TRUE(file.ok());
  const auto records = records_of(*file);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(event_of(records[0]).version, "brain.Event:2");
  EXPECT_EQ(event_of(records[0]).wall_time, 1.7e9);
  const Event first = event_of(records[1]);
  EXPECT_EQ(first.step, 0u);
  EXPECT_EQ(first.wall_time, 1.7e9 + 0.25);
  EXPECT_THAT(first.scalars,
              ElementsAre(std::pair("x/y"s, -0.5f), std::pair(scalars[1].tag, 0.0f)));
  const Event second = event_of(records[2]);
  EXPECT_EQ(second.step, 1'000'000'007u);
  EXPECT_THAT(
      second.scalars,
      ElementsAre(
          std::pair("train/loss"s, 1.5f), std::pair("train/lr"s, 3e-4f),
          std::pair("train/gradient_norm"s, 0.75f), std::pair("speed/tokens_per_second"s, 12345.0f),
          std::pair("speed/mfu"s, 0.412f), std::pair("speed/exposed_communication"s, 0.031f),
          std::pair("speed/step_seconds"s, 0.25f), std::pair("train/validation_loss"s, 2.5f)));
}

TEST_F(EventFile, WritersOfTheSameSecondHaveFilesOfTheirOwn) {
  const auto a = EventWriter::create(folder_, 5), b = EventWriter::create(folder_, 5);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->path(), b->path());
}

TEST_F(EventFile, AFolderThatCannotBeIsNamed) {
  ASSERT_TRUE(write_file(path("file"), "x").ok());
  const auto writer = EventWriter::create(path("file/runs"), 5);
  EXPECT_EQ(writer.status().code(), StatusCode::system_error);
  EXPECT_THAT(writer.status().message(), HasSubstr("file/runs"));
}

}  // namespace
}  // namespace tutti::training
