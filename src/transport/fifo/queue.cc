// queue.cc: how a queue's memory is laid out, and what happens off the hot path.
#include "transport/fifo/queue.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace tutti::transport::fifo {
namespace {

constexpr std::uint64_t kMagic = 0x3130717574747574;  // "tuttuq01"
constexpr std::uint32_t kCellCountMin = 64;
constexpr std::size_t kPageBytes = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

Control* control_in(std::byte* memory) { return std::launder(reinterpret_cast<Control*>(memory)); }

Cell* cells_in(std::byte* memory, const Layout& layout) {
  return std::launder(reinterpret_cast<Cell*>(memory + layout.cells_offset()));
}

}  // namespace

Layout Layout::of(std::size_t frame_bytes_max, std::size_t queue_bytes) {
  Layout layout;
  layout.slot_bytes = round_up(std::max(frame_bytes_max, kLineBytes), kLineBytes);
  layout.slot_count =
      static_cast<std::uint32_t>(std::max<std::size_t>(2, queue_bytes / layout.slot_bytes));
  layout.cell_count = std::max(kCellCountMin, std::bit_ceil(layout.slot_count));
  return layout;
}

std::size_t Layout::cells_offset() const { return round_up(sizeof(Control), kLineBytes); }

std::size_t Layout::slots_offset() const {
  return round_up(cells_offset() + cell_count * sizeof(Cell), kPageBytes);
}

std::size_t Layout::bytes() const {
  return round_up(slots_offset() + slot_count * slot_bytes, kPageBytes);
}

void initialize(std::byte* memory, const Layout& layout) {
  auto* control = new (memory) Control;
  control->released.value.store(0, std::memory_order_relaxed);
  for (auto& counter : control->signals) counter.value.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < layout.cell_count; ++i)
    new (memory + layout.cells_offset() + i * sizeof(Cell)) Cell{};
  control->description = {kMagic, layout};
}

bool describes(const std::byte* memory, const Layout& layout) {
  Control::Description description;
  std::memcpy(&description, memory, sizeof description);
  return description.magic == kMagic && description.layout == layout;
}

void Producer::attach(std::byte* memory, const Layout& layout) {
  layout_ = layout;
  control_ = control_in(memory);
  cells_ = cells_in(memory, layout);
  slots_ = memory + layout.slots_offset();
}

// Looks at the consumer's position. One that is not between what it was and what was sent leaves
// the queue full forever.
void Producer::refresh() {
  const std::uint64_t position = control_->released.value.load(std::memory_order_acquire);
  const auto frames = static_cast<std::uint32_t>(position);
  const auto slots = static_cast<std::uint32_t>(position >> 32);
  if (sent_ - frames > sent_ - released_ || slots_sent_ - slots > slots_sent_ - slots_released_) {
    corrupt_ = true;
    return;
  }
  released_ = frames;
  slots_released_ = slots;
}

std::span<std::byte> Producer::full() {
  starved_ = true;
  return {};
}

bool Producer::room_appeared() {
  if (!starved_ || control_ == nullptr) return false;
  const std::uint64_t known = (std::uint64_t{slots_released_} << 32) | released_;
  if (control_->released.value.load(std::memory_order_acquire) == known) return false;
  starved_ = false;
  return true;
}

void Consumer::attach(std::byte* memory, const Layout& layout) {
  layout_ = layout;
  control_ = control_in(memory);
  cells_ = cells_in(memory, layout);
  slots_ = memory + layout.slots_offset();
}

bool Consumer::news() {
  if (control_ == nullptr) return false;
  bool found = false;
  if (shown_ != taken_ + 1 && readable()) {
    shown_ = taken_ + 1;
    found = true;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint64_t value = control_->signals[i].value.load(std::memory_order_acquire);
    found = found || value != seen_[i];
    seen_[i] = value;
  }
  return found;
}

}  // namespace tutti::transport::fifo
