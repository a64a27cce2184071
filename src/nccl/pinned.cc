// pinned.cc: see pinned.hpp.
#include "nccl/pinned.hpp"

#include <algorithm>
#include <cstring>

#include "base/cache_line.hpp"
#include "base/try.hpp"

namespace tutti::nccl {
namespace {

constexpr std::size_t kSmallestBlock = 64 * 1024;
constexpr std::size_t kCellsPage = 4096;

std::size_t whole_blocks(std::size_t bytes) {
  return (bytes + kSmallestBlock - 1) / kSmallestBlock * kSmallestBlock;
}

}  // namespace

Result<PinnedArena::Block> PinnedArena::make_block(const transport::cuda::Driver& driver,
                                                   std::size_t bytes) {
  const transport::cuda::RelaxedCapture relaxed(driver);
  Block block;
  block.memory.reset(tutti::allocate(bytes));
  if (block.memory != nullptr) {
    auto pinned = transport::cuda::PinnedMemory::pin(driver, block.memory.get(), bytes);
    if (pinned.ok()) {
      block.pinned = *std::move(pinned);
      return block;
    }
    block.memory.reset();
  }
  auto allocated = transport::cuda::PinnedMemory::allocate(driver, bytes);
  TUTTI_TRY(allocated);
  block.pinned = *std::move(allocated);
  return block;
}

Result<std::byte*> PinnedArena::reserve(const transport::cuda::Driver& driver, std::size_t bytes) {
  const std::size_t had = blocks_.empty() ? 0 : blocks_.back().pinned.bytes();
  if (bytes > had) {
    // Twice as much as before, so that all old blocks together are no more than the last.
    Result<Block> grown = make_block(driver, std::max(whole_blocks(bytes), 2 * had));
    TUTTI_TRY(grown);
    blocks_.push_back(*std::move(grown));
  }
  return blocks_.empty() ? nullptr : blocks_.back().pinned.data();
}

Result<std::uint32_t*> PinnedCells::take(const transport::cuda::Driver& driver) {
  if (free_.empty()) {
    const transport::cuda::RelaxedCapture relaxed(driver);
    auto page = transport::cuda::PinnedMemory::allocate(driver, kCellsPage);
    TUTTI_TRY(page);
    std::memset(page->data(), 0, kCellsPage);
    for (std::size_t at = 0; at < kCellsPage; at += base::kLineBytes)
      free_.push_back(reinterpret_cast<std::uint32_t*>(page->data() + at));
    pages_.push_back(*std::move(page));
  }
  std::uint32_t* const cell = free_.back();
  free_.pop_back();
  return cell;
}

}  // namespace tutti::nccl
