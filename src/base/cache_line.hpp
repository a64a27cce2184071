// cache_line.hpp: what one core fetches from another, and how to ask for it in time.
#pragma once

#include <cstddef>

namespace tutti::base {

inline constexpr std::size_t kLineBytes = 64;

// Asks for the line of `address` in order to write it. A store takes the line away from whoever
// used it last, which takes about as long as a hundred additions; asked for early, it is there in
// time. A hint: changes nothing that anybody can read.
inline void claim_line(const void* address) {
#if defined(__x86_64__)
  // By hand: compilers turn their built-in into a prefetch for reading unless they may assume more
  // than the baseline, and the processors that lack the instruction take it for no operation.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1, 3);
#endif
}

// The same for `bytes` bytes from the beginning of a line, of which nobody needs the contents: some
// are lost. By stores, because on an EPYC a claim was seen to do nothing for a line that this core
// wrote and another one has a copy of. Nothing waits for them but the stores that follow.
inline void own_lines(std::byte* first, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLineBytes) first[at] = std::byte{};
}

}  // namespace tutti::base
