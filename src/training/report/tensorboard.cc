// tensorboard.cc: see tensorboard.hpp.
#include "training/report/tensorboard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace tutti::training {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

template <typename Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(value); ++i)
    out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

// protobuf's wire format: a key is the field's number and the type of what follows.
enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7f)));
  out.push_back(static_cast<char>(value));
}

void append_key(std::string& out, unsigned field, Wire wire) {
  append_varint(out, field << 3 | static_cast<unsigned>(wire));
}

void append_bytes(std::string& out, unsigned field, std::string_view bytes) {
  append_key(out, field, Wire::bytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

std::string event_at(double wall_time_s) {
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_little_endian(event, std::bit_cast<std::uint64_t>(wall_time_s));
  return event;
}

std::string encode_value(const Scalar& scalar) {
  std::string value;
  append_bytes(value, 1, scalar.tag);
  append_key(value, 2, Wire::fixed32);
  append_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
  return value;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

std::vector<Scalar> scalars_of(const StepMetrics& metrics) {
  std::vector<Scalar> scalars = {
      {"train/loss", metrics.loss},
      {"train/lr", metrics.learning_rate},
      {"train/gradient_norm", metrics.gradient_norm},
      {"speed/tokens_per_second", metrics.tokens_per_second},
      {"speed/mfu", metrics.mfu},
      {"speed/exposed_communication", metrics.exposed_communication},
      {"speed/step_seconds", metrics.seconds},
  };
  for (const auto& [name, value] : metrics.more) scalars.push_back({"train/" + name, value});
  return scalars;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes)
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::string encode_version_event(double wall_time_s) {
  std::string event = event_at(wall_time_s);
  append_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string encode_scalars_event(double wall_time_s, std::int64_t step,
                                 std::span<const Scalar> scalars) {
  std::string event = event_at(wall_time_s);
  if (step != 0) {  // protobuf leaves out numbers that are 0
    append_key(event, 2, Wire::varint);
    append_varint(event, static_cast<std::uint64_t>(step));
  }
  std::string summary;
  for (const Scalar& scalar : scalars) append_bytes(summary, 1, encode_value(scalar));
  append_bytes(event, 5, summary);
  return event;
}

std::string frame_record(std::string_view message) {
  std::string record;
  append_little_endian(record, std::uint64_t{message.size()});
  append_little_endian(record, masked_crc(record));
  record.append(message);
  append_little_endian(record, masked_crc(message));
  return record;
}

Result<EventWriter> EventWriter::create(const std::string& folder, double wall_time_s) {
  if (const Status status = make_folder(folder); !status.ok()) return status;
  const std::string stem =
      fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder,
                  static_cast<std::int64_t>(wall_time_s), host_name(), ::getpid());
  for (int attempt = 0;; ++attempt) {
    auto file = OutputFile::open(fmt::format("{}.{}", stem, attempt), OutputFile::Mode::fresh);
    if (file.status().code() == StatusCode::invalid_argument) continue;  // that name is taken
    if (!file.ok()) return file.status();
    EventWriter writer(*std::move(file));
    const Status status = writer.file_.write(frame_record(encode_version_event(wall_time_s)));
    if (!status.ok()) return status;
    return writer;
  }
}

Status EventWriter::write(double wall_time_s, std::int64_t step, std::span<const Scalar> scalars) {
  return file_.write(frame_record(encode_scalars_event(wall_time_s, step, scalars)));
}

Status EventWriter::write(double wall_time_s, const StepMetrics& metrics) {
  return write(wall_time_s, metrics.step, scalars_of(metrics));
}

double wall_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace tutti::training
