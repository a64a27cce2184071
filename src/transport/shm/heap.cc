// heap.cc: regions, and the pages within those that small allocations share.
#include "transport/shm/heap.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/assert.hpp"
#include "transport/shm/file.hpp"
#include "transport/shm/remap.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSharedRegionBytes = std::size_t{2} << 20;
constexpr std::size_t kOwnRegionBytes = std::size_t{1} << 20;  // from here on: a region of its own

std::size_t whole_pages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// One memory file and which parts of it are in use.
struct Region {
  shm::Descriptor file;
  shm::Mapping mapping;
  std::uint32_t number = 0;
  bool shared = false;                           // by small allocations
  std::map<std::size_t, std::size_t> used;       // offset -> bytes
  std::size_t touched = 0;                       // below this, memory may have been written before
  std::map<std::size_t, std::size_t> withdrawn;  // offset -> end; pages that are ours alone

  // Where `bytes` fit between what is in use; the lowest place wins.
  std::optional<std::size_t> find_room(std::size_t bytes) const {
    std::size_t free = 0;
    for (const auto& [offset, length] : used) {
      if (offset - free >= bytes) break;
      free = offset + length;
    }
    if (mapping.bytes() - free < bytes) return std::nullopt;
    return free;
  }

  bool is_withdrawn(std::size_t offset, std::size_t bytes) const {
    return std::any_of(withdrawn.begin(), withdrawn.end(), [&](const auto& range) {
      return offset < range.second && range.first < offset + bytes;
    });
  }

  std::byte* take(std::size_t offset, std::size_t bytes) {
    used.emplace(offset, bytes);
    std::byte* memory = mapping.base() + offset;
    if (offset < touched) std::memset(memory, 0, std::min(bytes, touched - offset));
    touched = std::max(touched, offset + bytes);
    return memory;
  }
};

// Puts `fresh`, which was mapped elsewhere, in the place of as many bytes at `place`.
bool move_mapping(void* fresh, void* place, std::size_t bytes) {
  return mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) != MAP_FAILED;
}

class Heap {
 public:
  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    forget_after_fork();
    if (bytes > SIZE_MAX / 2) return nullptr;
    const std::size_t length = whole_pages(bytes);
    if (length >= kOwnRegionBytes) {
      Region* region = make_region(length, false);
      return region == nullptr ? nullptr : region->take(0, length);
    }
    for (auto& [base, region] : regions_)
      if (region.shared)
        if (const auto room = region.find_room(length)) return region.take(*room, length);
    Region* region = make_region(kSharedRegionBytes, true);
    return region == nullptr ? nullptr : region->take(0, length);
  }

  void deallocate(void* memory) {
    const std::lock_guard lock(mutex_);
    forget_after_fork();
    const auto found = find(memory);
    if (found == regions_.end()) {
      TUTTI_ASSERT(!inherited_.empty(), "deallocate() takes what allocate() returned");
      return;
    }
    Region& region = found->second;
    const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(memory) - found->first);
    // Peers may still write to the pages that were there: nobody gets them any more.
    if (const auto used = region.used.find(offset);
        region.shared && used != region.used.end() && region.is_withdrawn(offset, used->second))
      return;
    TUTTI_ASSERT(region.used.erase(offset) == 1, "deallocate() takes what allocate() returned");
    if (region.used.empty() && !(region.shared && only_shared(region))) {
      regions_.erase(found);
      generation_.fetch_add(1, std::memory_order_release);
    }
  }

  std::optional<SharedBlock> find_block(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = find(memory);
    if (found == regions_.end()) return std::nullopt;
    const Region& region = found->second;
    const auto offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(memory) - found->first);
    if (region.mapping.bytes() - offset < bytes) return std::nullopt;
    if (region.is_withdrawn(offset, bytes)) return std::nullopt;
    return SharedBlock{region.file.number(), region.number, found->first, region.mapping.bytes()};
  }

  void withdraw(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = find(memory);
    if (found == regions_.end() || bytes == 0) return;
    Region& region = found->second;
    const auto offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(memory) - found->first);
    const std::size_t begin = offset / kPageBytes * kPageBytes;
    const std::size_t end = std::min(whole_pages(offset + bytes), region.mapping.bytes());
    if (region.is_withdrawn(begin, end - begin)) return;
    const bool renewed = begin == 0 && end == region.mapping.bytes() && renew(region);
    if (!renewed) take_alone(region, begin, end);
    generation_.fetch_add(1, std::memory_order_release);
  }

  bool exists(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    return std::any_of(regions_.begin(), regions_.end(),
                       [&](const auto& entry) { return entry.second.number == number; });
  }

  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  using Regions = std::map<std::byte*, Region, std::greater<>>;

  // The region that `memory` lies in: the first whose base is not above it.
  Regions::iterator find(const void* memory) {
    auto* address = static_cast<std::byte*>(const_cast<void*>(memory));
    const auto found = regions_.lower_bound(address);
    if (found == regions_.end()) return found;
    const auto offset = static_cast<std::size_t>(address - found->first);
    return offset < found->second.mapping.bytes() ? found : regions_.end();
  }

  // One shared region is kept even when empty: programs free and allocate in turns.
  bool only_shared(const Region& region) const {
    return std::none_of(regions_.begin(), regions_.end(), [&](const auto& entry) {
      return entry.second.shared && entry.second.number != region.number;
    });
  }

  Region* make_region(std::size_t bytes, bool shared) {
    Result<shm::Descriptor> file = shm::make_memory_file(bytes);
    if (!file.ok()) return nullptr;
    Result<shm::Mapping> mapping = shm::map_file(file->number(), bytes, shm::Pages::when_touched);
    if (!mapping.ok() || !shm::populate(*mapping)) return nullptr;
    Region region;
    region.number = ++last_number_;
    region.shared = shared;
    region.file = std::move(file).value();
    region.mapping = std::move(mapping).value();
    std::byte* base = region.mapping.base();
    generation_.fetch_add(1, std::memory_order_release);
    return &regions_.emplace(base, std::move(region)).first->second;
  }

  // The same contents in a file that no peer has.
  bool renew(Region& region) {
    const std::size_t bytes = region.mapping.bytes();
    Result<shm::Descriptor> file = shm::make_memory_file(bytes);
    if (!file.ok()) return false;
    void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->number(), 0);
    if (fresh == MAP_FAILED) return false;
    std::memcpy(fresh, region.mapping.base(), bytes);
    if (!move_mapping(fresh, region.mapping.base(), bytes)) {
      munmap(fresh, bytes);
      return false;
    }
    region.file = std::move(file).value();
    region.number = ++last_number_;
    return true;
  }

  void take_alone(Region& region, std::size_t begin, std::size_t end) {
    const std::size_t bytes = end - begin;
    std::byte* place = region.mapping.base() + begin;
    void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TUTTI_ASSERT(fresh != MAP_FAILED, "memory for pages that a lost peer may write to");
    std::memcpy(fresh, place, bytes);
    TUTTI_ASSERT(move_mapping(fresh, place, bytes), "pages can be replaced");
    region.withdrawn[begin] = std::max(region.withdrawn[begin], end);
  }

  void forget_after_fork() {
    if (owner_ == getpid()) return;
    // The memory stays mapped, because the child may be using it.
    inherited_.push_back(std::move(regions_));
    regions_.clear();
    owner_ = getpid();
    generation_.fetch_add(1, std::memory_order_release);
  }

  std::mutex mutex_;
  Regions regions_;
  std::vector<Regions> inherited_;
  std::uint32_t last_number_ = 0;
  pid_t owner_ = getpid();
  std::atomic<std::uint64_t> generation_{1};
};

// The one table of the process (see the header), made on first use and never destroyed: buffers
// with static lifetime may be freed after everything else.
Heap& heap() {
  static Heap* const table = new Heap;
  return *table;
}

}  // namespace

void* shared_allocate(std::size_t bytes) { return heap().allocate(bytes); }

void shared_deallocate(void* memory) {
  if (memory != nullptr) heap().deallocate(memory);
}

std::optional<SharedBlock> find_shared(const void* memory, std::size_t bytes) {
  if (const auto block = heap().find_block(memory, bytes)) return block;
  return shm::find_remapped(memory, bytes);
}

void shared_withdraw(const void* memory, std::size_t bytes) {
  heap().withdraw(memory, bytes);
  shm::withdraw_remapped(memory, bytes);
}

Status share_in_place(const void* memory, std::size_t bytes) {
  if (find_shared(memory, bytes)) return {};
  return shm::remap(memory, bytes, shm::Insistence::now);
}

Status can_share_in_place() { return shm::remap_possible(); }

bool shared_region_exists(std::uint32_t region) {
  return heap().exists(region) || shm::remapped_file_exists(region);
}

std::uint64_t shared_generation() { return heap().generation() + shm::remap_generation(); }

}  // namespace tutti::transport
