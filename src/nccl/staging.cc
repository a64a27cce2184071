// staging.cc: see staging.hpp.
#include "nccl/staging.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace tutti::nccl {
namespace {

// Blocks begin as far from a multiple of this as on the device, so that what is aligned stays so.
constexpr std::size_t kAlignment = 256;

std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

// The same bytes as disjoint ranges. Those that only touch stay apart: in the host's memory there
// is no need for them to be neighbours.
std::vector<StagedRange> merged(std::vector<StagedRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const StagedRange& a, const StagedRange& b) { return a.begin < b.begin; });
  std::vector<StagedRange> disjoint;
  for (const StagedRange& range : ranges) {
    if (!disjoint.empty() && range.begin < disjoint.back().end)
      disjoint.back().end = std::max(disjoint.back().end, range.end);
    else
      disjoint.push_back(range);
  }
  return disjoint;
}

std::vector<StagedRange> ranges_of(std::span<const DeviceUse> uses) {
  std::vector<StagedRange> ranges;
  for (const DeviceUse& use : uses)
    ranges.push_back({address_of(use.memory), address_of(use.memory) + use.bytes, 0});
  return merged(std::move(ranges));
}

// Null: in none.
const StagedRange* block_of(const StagingPlan& plan, std::uintptr_t address) {
  const auto after = std::upper_bound(
      plan.blocks.begin(), plan.blocks.end(), address,
      [](std::uintptr_t value, const StagedRange& block) { return value < block.begin; });
  if (after == plan.blocks.begin() || address >= std::prev(after)->end) return nullptr;
  return &*std::prev(after);
}

void place(StagingPlan& plan) {
  for (StagedRange& block : plan.blocks) {
    block.offset = plan.bytes + block.begin % kAlignment;
    plan.bytes = (block.offset + block.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (std::vector<StagedRange>* const side : {&plan.inputs, &plan.outputs}) {
    for (StagedRange& range : *side) {
      const StagedRange* const block = block_of(plan, range.begin);
      TUTTI_ASSERT(block != nullptr, "blocks cover both sides");
      range.offset = block->offset + (range.begin - block->begin);
    }
  }
}

}  // namespace

StagingPlan plan_staging(std::span<const DeviceUse> inputs, std::span<const DeviceUse> outputs) {
  StagingPlan plan;
  plan.inputs = ranges_of(inputs);
  plan.outputs = ranges_of(outputs);
  std::vector<StagedRange> both = plan.inputs;
  both.insert(both.end(), plan.outputs.begin(), plan.outputs.end());
  plan.blocks = merged(std::move(both));
  place(plan);
  return plan;
}

std::byte* staged_place(const StagingPlan& plan, const void* memory, std::byte* staged) {
  const StagedRange* const block = block_of(plan, address_of(memory));
  if (block == nullptr) return nullptr;
  return staged + block->offset + (address_of(memory) - block->begin);
}

}  // namespace tutti::nccl
