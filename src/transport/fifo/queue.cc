// queue.cc: how a queue's memory is laid out, and what happens off the hot path.
#include "transport/fifo/queue.hpp"

#include <algorithm>
#include <new>

namespace tutti::transport::fifo {
namespace {

constexpr std::uint64_t kMagic = 0x3630717574747574;  // "tuttuq06"
constexpr std::size_t kPageBytes = 4096;
// Of a reserved payload, claimed at once: the consumer read these lines last. What is longer keeps
// its writer busy long enough to claim the rest on the way.
constexpr std::size_t kClaimedBytes = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

Control* control_in(std::byte* memory) { return std::launder(reinterpret_cast<Control*>(memory)); }

}  // namespace

Layout Layout::of(std::size_t frame_bytes_max, std::size_t queue_bytes) {
  Layout layout;
  layout.frame_bytes_max = round_up(std::max(frame_bytes_max, kLineBytes), kLineBytes);
  // One frame more than promised: a payload is never cut in two, so up to a frame less a line is
  // left unused at the end of the ring, and two frames must fit whatever came before.
  layout.payload_bytes = std::max(round_up(queue_bytes, kLineBytes), 2 * layout.frame_bytes_max) +
                         layout.frame_bytes_max;
  // Places are 31-bit numbers of lines.
  TUTTI_ASSERT(layout.payload_bytes / kLineBytes < kInOutbox, "a queue has less than 128 GiB");
  return layout;
}

std::size_t Layout::cells_offset() const { return round_up(sizeof(Control), alignof(Cell)); }

std::size_t Layout::payloads_offset() const {
  return round_up(cells_offset() + offset_of(kCellCount), kPageBytes);
}

std::size_t Layout::bytes() const {
  return round_up(payloads_offset() + payload_bytes, kPageBytes);
}

void initialize(std::byte* memory, const Layout& layout) {
  auto* control = new (memory) Control;
  control->released.value.store(0, std::memory_order_relaxed);
  control->outbox.offset.store(0, std::memory_order_relaxed);
  control->outbox.region.store(0, std::memory_order_relaxed);
  control->loan.value.store(0, std::memory_order_relaxed);
  for (auto& value : control->signals.values) value.store(0, std::memory_order_relaxed);
  for (std::size_t cell = 0; cell < kCellCount; ++cell)
    new (memory + layout.cells_offset() + offset_of(cell)) Cell{};
  control->description = {kMagic, layout};
}

bool describes(const std::byte* memory, const Layout& layout) {
  Control::Description description;
  std::memcpy(&description, memory, sizeof description);
  return description.magic == kMagic && description.layout == layout;
}

void Producer::attach(std::byte* memory, const Layout& layout, Reuse reuse) {
  layout_ = layout;
  reuse_ = reuse;
  carried_ = 0;
  control_ = control_in(memory);
  cells_ = memory + layout.cells_offset();
  cell_ = std::launder(reinterpret_cast<Cell*>(cells_));
  payloads_ = memory + layout.payloads_offset();
  ends_ = {};
  used_ = 0;
}

// Looks at the consumer's position, which never goes back.
void Producer::refresh() {
  const std::uint64_t frames = control_->released.value.load(std::memory_order_acquire);
  corrupt_ |= frames < released_;
  note_released(frames);
}

// A payload lies in one piece: one that does not fit before the ring's end goes to its beginning.
std::span<std::byte> Producer::reserve_in_ring(std::size_t bytes) {
  if (written_ % layout_.payload_bytes + bytes > used_) stay_in_used_memory();
  const std::size_t place = written_ % layout_.payload_bytes;
  const bool fits = place + bytes <= layout_.payload_bytes;
  reserved_ = fits ? written_ : written_ - place + layout_.payload_bytes;
  if (reserved_ + bytes - freed_ > layout_.payload_bytes) refresh();
  if (reserved_ + bytes - freed_ > layout_.payload_bytes) return full();
  const std::size_t begin = reserved_ % layout_.payload_bytes;
  place_ = static_cast<std::uint32_t>(begin / kLineBytes);
  used_ = std::max(used_, begin + bytes);
  std::byte* room = payloads_ + begin;
  claim(room, std::min(bytes, kClaimedBytes));
  return {room, bytes};
}

// A queue that the consumer has emptied begins anew, if that is wanted, or as long as the memory in
// use has not been gone through a few times.
void Producer::stay_in_used_memory() {
  constexpr std::uint64_t kRounds = 4;
  if (reuse_ == Reuse::late && carried_ >= kRounds * used_) return;
  const std::size_t place = written_ % layout_.payload_bytes;
  if (place == 0) return;
  refresh();
  if (released_ == sent_) freed_ = written_ += layout_.payload_bytes - place;
}

void Producer::announce(const MemoryReference& outbox) {
  control_->outbox.offset.store(outbox.offset, std::memory_order_relaxed);
  control_->outbox.region.store(outbox.region, std::memory_order_relaxed);
}

std::span<std::byte> Producer::reserve_on_loan(std::span<std::byte> place) {
  if (control_ == nullptr) return {};
  if (!has_cell()) return full();
  base::claim_line(cell_);
  place_ = kOnLoan;
  claim(place.data(), std::min(place.size(), kClaimedBytes));
  return place;
}

void Producer::lend(std::uint32_t line) {
  control_->loan.value.store(Loan{++loans_, line}.word(), std::memory_order_release);
}

std::span<std::byte> Producer::full() {
  starve();
  return {};
}

void Producer::starve() {
  starved_ = true;
  starved_at_ = released_;
}

bool Producer::room_appeared() {
  if (!starved_ || control_ == nullptr) return false;
  if (control_->released.value.load(std::memory_order_acquire) == starved_at_) return false;
  starved_ = false;
  return true;
}

void Consumer::attach(std::byte* memory, const Layout& layout) {
  layout_ = layout;
  control_ = control_in(memory);
  cells_ = memory + layout.cells_offset();
  cell_ = std::launder(reinterpret_cast<const Cell*>(cells_));
  payloads_ = memory + layout.payloads_offset();
}

MemoryReference Consumer::outbox() const {
  return {control_->outbox.region.load(std::memory_order_relaxed),
          control_->outbox.offset.load(std::memory_order_relaxed)};
}

bool Consumer::news() {
  if (control_ == nullptr) return false;
  bool found = false;
  if (shown_ != taken_ + 1 && readable()) {
    shown_ = taken_ + 1;
    found = true;
  }
  for (std::size_t i = 0; i < kSignalCount; ++i) {
    const std::uint64_t value = control_->signals.values[i].load(std::memory_order_acquire);
    found = found || value != seen_[i];
    seen_[i] = value;
  }
  return found;
}

}  // namespace tutti::transport::fifo
