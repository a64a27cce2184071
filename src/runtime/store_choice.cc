// store_choice.cc: see store_choice.hpp.
#include "runtime/store_choice.hpp"

#include <algorithm>
#include <bit>

#include "base/assert.hpp"

namespace tutti::runtime {

kernels::StoreHint StoreChoice::choose(std::size_t bytes, Kind kind) {
  TUTTI_ASSERT(bytes >= kLeastBytes, "smaller stores go through the caches");
  const auto power = static_cast<std::size_t>(std::bit_width(bytes / kLeastBytes) - 1);
  const std::size_t table = (kind.reduces ? 1 : 0) + (kind.queued ? 2 : 0);
  size_ = &ways_[table][std::min(power, kSizes - 1)];
  way_ = size_->next();
  bytes_ = bytes;
  return static_cast<kernels::StoreHint>(way_);
}

void StoreChoice::took(std::uint64_t ticks) {
  size_->took(way_, static_cast<double>(ticks) / static_cast<double>(bytes_));
}

}  // namespace tutti::runtime
