// remap.hpp: memory that the program got elsewhere (malloc, new, mmap) made shareable where it is.
//
// Its pages are moved into a memory file and mapped again at the same address: contents, addresses
// and neighbours on the same pages stay what they are, and peers can map the file. One file serves
// the whole process. It is as long as the address space and nearly empty: what lies at an address
// lies at that offset. So buffers that share a page, grow into each other or overlap need no rule,
// and a peer that mapped a piece has the right bytes whatever happened in between.
//
// What makes this dangerous is that the memory is not ours, and how each danger is met:
//
//   other threads store into it, or into its neighbours, while it is moved
//       All of it is held (watch.hpp): they wait for as long as the copy takes.
//   the program frees it and gets other memory at the address
//       The watch hears of it before whoever frees goes on, and settled() tells those who got the
//       address even before that.
//   realloc() moves it, or lets it grow in place
//       What was moved becomes private memory again before realloc() returns: at its new address it
//       would be at the wrong offset, and where it grew it would map what others have there. In
//       place there is room: the offsets of addresses that were free.
//   an allocator empties it (madvise) and expects zeros
//       The file's pages are dropped before anybody can look at them.
//   fork(): the child would share what it must have a copy of
//       Before a fork all of it becomes private memory again; the next calls share it anew. While a
//       call uses it that cannot be: the fork waits, and ends the process with an error in the end.
//   a peer that was given up may still store into it
//       withdraw() moves it back into memory of the process alone, and retires the file.
//
// The watching thread must never wait for somebody who waits for it: under the lock of the table
// nothing may be freed that could lie in watched memory. Hence a table without allocations.
//
// Does not know peers, as heap.hpp; this is the other half of what find_shared() looks through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/shm/heap.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::shm {

// Numbers of files that hold remapped memory begin here; those of the heap's regions count from 1.
inline constexpr std::uint32_t kFirstRemapRegion = std::uint32_t{1} << 31;

inline bool is_remapped(std::uint32_t region) { return region >= kFirstRemapRegion; }

// `patient`: memory that went soon after it was moved, or could not be, is not tried each time.
enum class Insistence { patient, now };

// Makes all pages of [memory, memory + bytes) shareable. Cost: at first a copy, then a look-up.
// Threading  any thread.
// Errors     unsupported: the system does not let us, or that memory is of a kind that cannot be
//            moved (a file's, a stack, read-only, locked, pinned).
Status remap(const void* memory, std::size_t bytes, Insistence insistence);

// Whether remap() can work at all here. Errors: unsupported, with the remedy.
Status remap_possible();

// As find_shared, withdraw and exists of the heap. The block's base is the address at which the
// file's offset would be 0, and its bytes are those of the file.
std::optional<SharedBlock> find_remapped(const void* memory, std::size_t bytes);
void withdraw_remapped(const void* memory, std::size_t bytes);
bool remapped_file_exists(std::uint32_t region);

// Grows when remapped memory goes. Cost: a load.
std::uint64_t remap_generation();

// False while memory of ours is being unmapped by another thread and the table does not know yet.
// Whoever asks after it got a buffer, and reads the generation then, is not misled about it.
// Cost  where something is remapped, a system call.
bool remap_settled();

// Whether all of that is memory of the program break (what malloc() has for buffers that are not
// large), for which nobody needs to ask: an address there is given out again by the break alone,
// and the sbrk() that took it away does not return before the table knows. Cost: a few loads.
bool remapped_of_break(const void* memory, std::size_t bytes);

// A call that may be using remapped memory. Begins before the memory is looked for.
class RemapUse {
 public:
  RemapUse() = default;
  RemapUse(const RemapUse&) = delete;
  RemapUse& operator=(const RemapUse&) = delete;
  ~RemapUse();
  void begin();  // a second time does nothing
  void end();

 private:
  void* used_ = nullptr;
};

// How much is remapped, for tests. Units: bytes.
std::size_t remapped_bytes();

}  // namespace tutti::transport::shm
