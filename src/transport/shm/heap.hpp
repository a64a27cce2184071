// heap.hpp: the memory behind tutti::allocate: memory that every local peer can map.
//
// Memory comes in regions, one memory file each. A big allocation is a region of its own; small
// ones share regions of 2 MiB, page by page, so that a thousand small buffers do not cost a
// thousand descriptors. All pages are asked for when the region is made, huge ones where there are
// any: that is quicker than touching them one by one (1.5 against 2 us per page of 4 KiB), and a
// machine without memory says so here rather than by killing the program later.
//
// The table of regions belongs to the process, because allocate() belongs to no communicator and
// any transport of the process may be asked to export what it returned.
//
// fork: a child shares the parent's regions but not its table. What it allocates is its own; what
// the parent allocated it may read, must not write, and frees without effect.
//
// Does not know peers: which of them was sent which region is the transport's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tutti/status.hpp"

namespace tutti::transport {

// Zero-filled and page-aligned, or null when the system has no memory left.
// Threading  any thread.
void* shared_allocate(std::size_t bytes);

// Requires  shared_allocate returned it, or null.
void shared_deallocate(void* memory);

// The region that some memory lies in.
// Lifetime  of file and base: until the memory is deallocated.
struct SharedBlock {
  int file = -1;
  std::uint32_t region = 0;  // never 0, never used twice in a process
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  bool sparse = false;  // most of it is not there: memory that was remapped (remap.hpp)
};

// The region that holds all of [memory, memory + bytes), if there is one. Threading: any thread.
std::optional<SharedBlock> find_shared(const void* memory, std::size_t bytes);

// Gives the pages of [memory, memory + bytes) that lie in a region to this process alone: what
// peers that have them mapped still store is not seen from here on. Contents stay. The memory can
// be exported again only where that was all of a region. Memory of no region is left alone.
// Threading  any thread; nobody writes to those pages meanwhile.
void shared_withdraw(const void* memory, std::size_t bytes);

// Makes memory that the program got elsewhere shareable where it is (remap.hpp), for good.
// Ensures    find_shared finds it.
// Threading  any thread.
// Errors     unsupported, with the reason.
Status share_in_place(const void* memory, std::size_t bytes);

// Whether any memory can be shared so here. Errors: unsupported, with what would help.
Status can_share_in_place();

// True while the region exists. Threading: any thread.
bool shared_region_exists(std::uint32_t region);

// Changes whenever a region comes or goes: an answer of find_shared holds as long as this number,
// and remap_settled() for memory that was not allocated here.
// Cost: one load. Threading: any thread.
std::uint64_t shared_generation();

}  // namespace tutti::transport
