// arena.cc: see arena.hpp. A block is rounded up to a power of two or one and a half times one, so
// that sizes that differ a little share blocks.
#include "training/tensor/arena.hpp"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t rounded_up(std::size_t bytes) {
  const std::size_t power = std::bit_ceil(bytes < kAlignment ? kAlignment : bytes);
  const std::size_t smaller = power / 4 * 3;
  return bytes <= smaller && smaller % kAlignment == 0 ? smaller : power;
}

}  // namespace

std::string_view to_string(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::parameter:
      return "parameters";
    case MemoryKind::gradient:
      return "gradients";
    case MemoryKind::optimizer:
      return "optimizer";
    case MemoryKind::activation:
      return "activations";
    case MemoryKind::communication:
      return "communication";
  }
  return "?";
}

MemorySource MemorySource::of_the_system() {
  return {[](std::size_t bytes) { return std::aligned_alloc(kAlignment, bytes); },
          [](void* memory) { std::free(memory); }};
}

// Shared with the blocks, so that the last of them can still go back.
struct Arena::State {
  explicit State(MemorySource from) : source(std::move(from)) {}
  ~State() {
    for (auto& [size, blocks] : unused)
      for (std::byte* block : blocks) source.free(block);
  }

  void count(MemoryKind kind, std::size_t bytes) {
    const auto i = static_cast<std::size_t>(kind);
    now[i] += bytes;
    total += bytes;
    if (now[i] > peaks[i]) peaks[i] = now[i];
    if (total > total_peak) total_peak = total;
  }

  std::byte* take(MemoryKind kind, std::size_t bytes, std::size_t rounded) {
    const std::lock_guard lock(mutex);
    std::byte* block = nullptr;
    if (auto& blocks = unused[rounded]; !blocks.empty()) {
      block = blocks.back();
      blocks.pop_back();
    } else {
      block = static_cast<std::byte*>(source.allocate(rounded));
    }
    if (block) count(kind, bytes);
    return block;
  }

  void give_back(MemoryKind kind, std::size_t bytes, std::size_t rounded, std::byte* block) {
    const std::lock_guard lock(mutex);
    now[static_cast<std::size_t>(kind)] -= bytes;
    total -= bytes;
    unused[rounded].push_back(block);
  }

  MemorySource source;
  mutable std::mutex mutex;
  std::map<std::size_t, std::vector<std::byte*>> unused;  // by rounded size
  std::array<std::size_t, kMemoryKinds> now{}, peaks{};
  std::size_t total = 0, total_peak = 0;
};

Arena::Arena(MemorySource source) : state_(std::make_shared<State>(std::move(source))) {}
Arena::~Arena() = default;

std::shared_ptr<std::byte> Arena::allocate(MemoryKind kind, std::size_t bytes) {
  const std::size_t rounded = rounded_up(bytes);
  std::byte* block = state_->take(kind, bytes, rounded);
  if (!block) {
    std::fprintf(stderr, "tutti: no memory left for %zu bytes of %s\n", bytes,
                 std::string(to_string(kind)).c_str());
    std::exit(1);
  }
  return {block, [state = state_, kind, bytes, rounded](std::byte* memory) {
            state->give_back(kind, bytes, rounded, memory);
          }};
}

std::size_t Arena::bytes(MemoryKind kind) const {
  const std::lock_guard lock(state_->mutex);
  return state_->now[static_cast<std::size_t>(kind)];
}

std::size_t Arena::peak(MemoryKind kind) const {
  const std::lock_guard lock(state_->mutex);
  return state_->peaks[static_cast<std::size_t>(kind)];
}

std::size_t Arena::total_peak() const {
  const std::lock_guard lock(state_->mutex);
  return state_->total_peak;
}

void Arena::reset_peaks() {
  const std::lock_guard lock(state_->mutex);
  state_->peaks = state_->now;
  state_->total_peak = state_->total;
}

}  // namespace tutti::training
