// Scaling is a product with a block of equal numbers, so that it rounds as every product does.
#include "runtime/special_reduction.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "base/assert.hpp"
#include "base/text.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti {
namespace {

std::uint64_t hash_of(std::string_view name, std::size_t width) {
  return base::hash_of_text(name, base::hash_of_text({}) ^ width);
}

}  // namespace

Reduction Reduction::premul_sum(DataType type, const void* scalar) {
  auto special = std::make_shared<runtime::SpecialReduction>();
  special->kind = runtime::SpecialKind::premul_sum;
  special->type = type;
  std::memcpy(special->scalar.data(), scalar, size_of(type));
  return Reduction(std::move(special));
}

Reduction Reduction::custom(std::string name, Function function, std::size_t width) {
  auto special = std::make_shared<runtime::SpecialReduction>();
  special->kind = runtime::SpecialKind::custom;
  special->hash = hash_of(name, width);
  special->name = std::move(name);
  special->function = std::move(function);
  special->width = width;
  return Reduction(std::move(special));
}

std::string Reduction::name() const {
  if (special_ == nullptr) return std::string(to_string(op_));
  if (special_->kind == runtime::SpecialKind::premul_sum) return "premul_sum";
  return fmt::format("custom operation '{}'", special_->name);
}

namespace runtime {
namespace {

constexpr std::size_t kBlockBytes = 8192;

// A binary counter of partial results: sums of equally many sources are combined as they come, what
// is left at the end from the right. A level has room for two results, because a function does not
// write where it reads.
class Fold {
 public:
  Fold(const CustomFold& call, std::size_t block_bytes, std::vector<std::byte>& memory)
      : call_(call), block_bytes_(block_bytes) {
    const auto levels = static_cast<std::size_t>(std::bit_width(call.sources.size())) + 1;
    if (memory.size() < 2 * levels * block_bytes) memory.resize(2 * levels * block_bytes);
    memory_ = memory.data();
    stack_.reserve(levels);
  }

  const std::byte* block(std::size_t offset, std::size_t bytes, std::size_t count) {
    stack_.clear();
    for (std::size_t i = 0; i < call_.sources.size(); ++i) {
      stack_.push_back(aligned(call_.sources[i] + offset, bytes));
      for (std::size_t pairs = i; pairs & 1; pairs >>= 1) combine_top(count);
    }
    while (stack_.size() > 1) combine_top(count);
    return stack_.back();
  }

 private:
  std::byte* slot(std::size_t level, std::size_t half) {
    return memory_ + (2 * level + half) * block_bytes_;
  }

  // Frames begin anywhere.
  const std::byte* aligned(const std::byte* source, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(source) % size_of(call_.type) == 0) return source;
    std::byte* copy = slot(stack_.size(), 0);
    std::memcpy(copy, source, bytes);
    return copy;
  }

  void combine_top(std::size_t count) {
    const std::byte* right = stack_.back();
    stack_.pop_back();
    const std::size_t level = stack_.size() - 1;
    const std::byte* left = stack_.back();
    std::byte* result = slot(level, left == slot(level, 0) ? 1 : 0);
    call_.custom.function(left, right, result, count, call_.type);
    stack_.back() = result;
  }

  const CustomFold& call_;
  const std::size_t block_bytes_;
  std::byte* memory_ = nullptr;
  std::vector<const std::byte*> stack_;
};

}  // namespace

std::string refusal(const SpecialReduction& special, std::size_t count, DataType type) {
  if (special.kind == SpecialKind::premul_sum) {
    if (special.type == type) return {};
    return fmt::format("the scalar of premul_sum is {}, the elements are {}",
                       to_string(special.type), to_string(type));
  }
  if (special.name.empty() || !special.function || special.width == 0)
    return "a custom operation needs a name, a function and a width of at least 1";
  if (count % special.width == 0) return {};
  return fmt::format("{} elements are no whole number of values of '{}', which are {} wide", count,
                     special.name, special.width);
}

void scale(const SpecialReduction& premul, const std::byte* input, std::byte* output,
           std::size_t count) {
  const std::size_t element = size_of(premul.type);
  std::array<std::byte, kBlockBytes> scalars;
  const std::size_t per_block = kBlockBytes / element;
  for (std::size_t i = 0; i < std::min(count, per_block); ++i)
    std::memcpy(scalars.data() + i * element, premul.scalar.data(), element);
  for (std::size_t done = 0; done < count; done += per_block) {
    const std::byte* const sources[] = {input + done * element, scalars.data()};
    std::byte* const destinations[] = {output + done * element};
    kernels::reduce({.type = premul.type,
                     .op = ReduceOp::prod,
                     .sources = sources,
                     .destinations = destinations,
                     .count = std::min(per_block, count - done)});
  }
}

void fold(const CustomFold& call, std::vector<std::byte>& memory) {
  TUTTI_ASSERT(!call.sources.empty(), "a reduction needs a source");
  const std::size_t value_bytes = size_of(call.type) * call.custom.width;
  const std::size_t per_block = std::max<std::size_t>(1, kBlockBytes / value_bytes);
  Fold fold(call, (per_block * value_bytes + 63) / 64 * 64, memory);
  for (std::size_t done = 0; done < call.count; done += per_block) {
    const std::size_t count = std::min(per_block, call.count - done);
    const std::byte* result = fold.block(done * value_bytes, count * value_bytes, count);
    for (std::byte* destination : call.destinations)
      if (destination + done * value_bytes != result)
        std::memcpy(destination + done * value_bytes, result, count * value_bytes);
  }
}

ScaledMemory::~ScaledMemory() { release(); }

void ScaledMemory::release() {
  if (shareable_)
    transport_.release_shareable(memory_);
  else
    std::free(memory_);
  memory_ = nullptr;
  bytes_ = 0;
}

std::byte* ScaledMemory::take(std::size_t bytes) {
  if (bytes <= bytes_) return memory_;
  release();
  memory_ = static_cast<std::byte*>(transport_.allocate_shareable(bytes));
  shareable_ = memory_ != nullptr;
  if (memory_ == nullptr) memory_ = static_cast<std::byte*>(std::malloc(bytes));
  bytes_ = memory_ == nullptr ? 0 : bytes;
  return memory_;
}

}  // namespace runtime
}  // namespace tutti
