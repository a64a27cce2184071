// How a small call moves (short_program.hpp): the same six points as any other (lowered.hpp), of
// which only those about queues are left. Sets nothing up and decides nothing; start() has done so.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/pause.hpp"
#include "runtime/executor.hpp"
#include "runtime/frame_tag.hpp"

namespace tutti::runtime {
namespace {

constexpr int kWhole = 0;  // the only channel
constexpr auto kStaged = static_cast<std::size_t>(Way::staged);

}  // namespace

bool Executor::advance_short() {
  const std::uint64_t before = short_complete_;
  std::uint64_t bit = 1;
  for (const ShortStep& step : short_.steps()) {
    const bool due = (short_complete_ & bit) == 0 && (step.depends & ~short_complete_) == 0;
    if (due && try_short(step)) short_complete_ |= bit;
    if (!status_.ok()) [[unlikely]]
      break;
    bit <<= 1;
  }
  if (short_complete_ == short_.all()) slices_left_ = 0;
  return short_complete_ != before;
}

bool Executor::linger(int looks) {
  if (short_.empty()) return false;
  for (int look = 0; look < looks && !done(); ++look) {
    if (advance_short()) {
      conclude();
      return true;
    }
    base::pause_core();
  }
  return false;
}

bool Executor::try_short(const ShortStep& step) {
  if (!find_sources(step) || !find_destinations(step)) return false;
  if (step.elements > 0) compute(step.kind, step.finish, step.elements);
  finish_messages(step);
  return true;
}

bool Executor::find_sources(const ShortStep& step) {
  source_pointers_.clear();
  for (const ShortOperand& source : short_.sources(step)) {
    if (!source.is_message) {
      source_pointers_.push_back(own_memory(source.buffer) + source.offset);
      continue;
    }
    std::span<const std::byte> payload;
    if (!find_message(source, step.elements * element_bytes_, payload)) return false;
    source_pointers_.push_back(payload.data());
  }
  return true;
}

// The data of a message that is at the head of its queue; the first of a call comes behind the
// record of the peer's.
bool Executor::find_message(const ShortOperand& source, std::size_t due,
                            std::span<const std::byte>& payload) {
  Stream& s = stream(kWhole, source.stream);
  Frame frame;
  if (s.received[kStaged] != source.ordinal || !s.endpoint->peek(frame)) return false;
  Peer& p = peers_[source.stream];
  const bool as_expected =
      p.arrival_due && frame.payload.size() == kArrivalBytes + due &&
      frame.tag == static_cast<std::uint32_t>(FrameTag::arrival_with_data) &&
      std::memcmp(frame.payload.data(), call_.record.data(), kArrivalBytes) == 0;
  if (as_expected) [[likely]] {
    p.arrival_due = false;
    --arrivals_due_;
    payload = frame.payload.subspan(kArrivalBytes);
    return true;
  }
  if (p.arrival_due && !take_arrival(source.stream)) return false;
  return find_payload(kWhole, source.stream, due, payload);
}

bool Executor::find_destinations(const ShortStep& step) {
  destination_pointers_.clear();
  for (const ShortOperand& destination : short_.destinations(step)) {
    std::byte* place = nullptr;
    if (!destination.is_message) {
      place = own_memory(destination.buffer) + destination.offset;
      if (step.kind == StepKind::copy && place == source_pointers_[0]) continue;  // in place
    } else {
      const std::size_t peer = destination.stream;
      if (stream(kWhole, peer).sent[kStaged] != destination.ordinal) return false;
      place = reserve_room(kWhole, peer, step.elements * element_bytes_);
      if (place == nullptr) return false;
    }
    destination_pointers_.push_back(place);
  }
  return true;
}

void Executor::finish_messages(const ShortStep& step) {
  for (const ShortOperand& destination : short_.destinations(step)) {
    if (!destination.is_message) continue;
    ++stream(kWhole, destination.stream).sent[kStaged];
    commit_message(kWhole, destination.stream, step.elements * element_bytes_);
  }
  for (const ShortOperand& source : short_.sources(step)) {
    if (!source.is_message) continue;
    Stream& s = stream(kWhole, source.stream);
    ++s.received[kStaged];
    s.endpoint->release();
  }
}

}  // namespace tutti::runtime
