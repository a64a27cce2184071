// pages.hpp: whole pages are copied, and put in the place of others.
//
// Does not know why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/shm/file.hpp"

namespace tutti::transport::shm {

inline constexpr std::size_t kPageBytes = 4096;

inline std::byte* at_address(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Copies memory that is not ours: with parts that a sanitizer knows to be nobody's, and bytes that
// other threads have written and the kernel keeps them from writing. Requires  whole pages.
void copy_pages(std::byte* to, const std::byte* from, std::size_t bytes);

// The same from a file, whatever is mapped where. False when the system refuses.
bool read_pages(std::byte* to, int file, std::uint64_t offset, std::size_t bytes);

// Gives every page of some memory an entry in the page tables, if only for zeros: what has none
// cannot be held. False when the system refuses.
bool make_present(std::byte* memory, std::size_t bytes);

// Fresh memory of this process alone; an empty Mapping when there is none left.
Mapping private_memory(std::size_t bytes);

// Maps what `fresh` maps at `place`, in one step for whoever looks, instead of what is there.
// `fresh` is empty then. False, with nothing changed, when the system refuses.
bool put_in_place(Mapping& fresh, std::byte* place);

}  // namespace tutti::transport::shm
