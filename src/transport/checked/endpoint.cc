// endpoint.cc: see endpoint.hpp.
#include "transport/checked/endpoint.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "base/crc32c.hpp"

namespace tutti::transport::checked {
namespace {

// How far from its place a frame is looked for when one does not agree.
constexpr std::uint64_t kNeighbours = 64;

std::span<const std::byte> payload_of(const Frame& frame) {
  return frame.payload.first(frame.payload.size() - kChecksumBytes);
}

}  // namespace

Summer::Summer(const Direction& direction) {
  const std::array<std::uint64_t, 3> same = {
      direction.context,
      (static_cast<std::uint64_t>(direction.from) << 32) | static_cast<std::uint32_t>(direction.to),
      static_cast<std::uint64_t>(direction.channel)};
  start_ = base::crc32c(std::as_bytes(std::span(same)));
}

// What comes beside the payload goes first, so that the checksum lies right behind all it covers:
// then what is proved of such codes holds for flips in the checksum itself, too.
std::uint32_t Summer::sum(std::uint64_t number, std::uint32_t tag,
                          std::span<const std::byte> payload) const {
  const std::array<std::uint64_t, 3> beside = {number, tag, payload.size()};
  return base::crc32c(payload, base::crc32c(std::as_bytes(std::span(beside)), start_));
}

CheckedEndpoint::CheckedEndpoint(Endpoint& inner, const Direction& out, Status& first_failure)
    : inner_(inner),
      out_(out),
      sent_sums_(out),
      received_sums_({out.context, out.to, out.from, out.channel}),
      first_failure_(first_failure) {}

std::span<std::byte> CheckedEndpoint::reserve(std::size_t bytes) {
  if (!status_.ok()) return {};
  room_ = inner_.reserve(bytes + kChecksumBytes);
  if (room_.data() == nullptr) return {};
  return room_.first(bytes);
}

void CheckedEndpoint::commit(std::uint32_t tag, std::size_t bytes) {
  if (!status_.ok()) return;
  TUTTI_ASSERT(bytes + kChecksumBytes <= room_.size(), "no more is sent than was reserved");
  const std::uint32_t sum = sent_sums_.sum(sent_, tag, room_.first(bytes));
  std::memcpy(room_.data() + bytes, &sum, kChecksumBytes);
  room_ = {};
  inner_.commit(tag, bytes + kChecksumBytes);
  sent_ += 1;
}

bool CheckedEndpoint::peek(Frame& frame) {
  Frame arrived;
  if (!status_.ok() || !inner_.peek(arrived)) return false;
  if (!verified_ && !agrees(arrived)) return false;
  verified_ = true;
  frame = {arrived.tag, payload_of(arrived)};
  return true;
}

void CheckedEndpoint::release() {
  if (!status_.ok()) return;
  inner_.release();
  verified_ = false;
  received_ += 1;
}

bool CheckedEndpoint::agrees(const Frame& frame) {
  if (frame.payload.size() < kChecksumBytes) {
    report_short(frame);
    return false;
  }
  std::uint32_t found = 0;
  std::memcpy(&found, frame.payload.data() + payload_of(frame).size(), kChecksumBytes);
  const std::uint32_t expected = received_sums_.sum(received_, frame.tag, payload_of(frame));
  if (found == expected) return true;
  report(frame, expected, found);
  return false;
}

// ---- Off the hot path: what to tell about a frame that does not agree ----

std::string CheckedEndpoint::place() const {
  return fmt::format("rank {}: from rank {} on channel {}, frame {}", out_.from, out_.to,
                     out_.channel, received_);
}

void CheckedEndpoint::report(const Frame& frame, std::uint32_t expected, std::uint32_t found) {
  fail(fmt::format("{} (tag {}, {} bytes) is damaged: checksum {:08x} expected, {:08x} found{}",
                   place(), frame.tag, payload_of(frame).size(), expected, found,
                   likely_cause(frame, found)));
}

void CheckedEndpoint::report_short(const Frame& frame) {
  fail(fmt::format("{} (tag {}) is damaged: {} bytes cannot hold a checksum of {}", place(),
                   frame.tag, frame.payload.size(), kChecksumBytes));
}

// A whole frame out of place, or a peer that sends no checksums, is another trouble than a bad
// wire.
std::string CheckedEndpoint::likely_cause(const Frame& frame, std::uint32_t found) const {
  const std::uint64_t first = received_ > kNeighbours ? received_ - kNeighbours : 0;
  for (std::uint64_t number = first; number <= received_ + kNeighbours; ++number)
    if (received_sums_.sum(number, frame.tag, payload_of(frame)) == found)
      return fmt::format("; it is frame {}: frames were lost, repeated or swapped", number);
  if (received_ > 0) return "";
  return fmt::format("; if no frame from rank {} ever agrees, are checksums on here and off there?",
                     out_.to);
}

void CheckedEndpoint::fail(std::string text) {
  status_ = Status(StatusCode::corrupt_data, std::move(text), out_.to);
  if (first_failure_.ok()) first_failure_ = status_;
}

}  // namespace tutti::transport::checked
