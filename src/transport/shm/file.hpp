// file.hpp: mappings with an owner, and memory files.
//
// A memory file (memfd) has no name in any file system: it lives as long as somebody has it open
// or mapped, and kill -9 leaves nothing behind. Its size is sealed when it is made, so that a peer
// that maps it cannot be killed by its owner's truncating it.
//
// Does not know what the memory is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/descriptor.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::shm {

using base::Descriptor;

// Memory shared through a file, unmapped on destruction.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return base_ != nullptr; }
  // From now on somebody else unmaps it.
  void release() { base_ = nullptr, bytes_ = 0; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

// "what: the reason that errno gives", as a system_error.
Status system_error(const char* what);

// A new zero-filled memory file. Its name is for people, and for the list of mappings. Errors:
// system_error.
Result<Descriptor> make_memory_file(std::size_t bytes, const char* name = "tutti");

// When the pages of a mapping are asked for: on first touch (2 us for a new page of 4 KiB, 1 us
// for one that exists), or all at once (1.5 us and 0.15 us).
enum class Pages { when_touched, at_once };

// What a processor's page tables can map with one entry instead of 512 (x86-64, and AArch64 with
// pages of 4 KiB). A mapping of at least so many bytes begins at a multiple of it if it can.
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Maps `bytes` of a file to read and write. Errors: system_error.
Result<Mapping> map_file(int file, std::size_t bytes, Pages pages);

// The same of a part of it, from a page on; huge pages of the file can be huge ones here, too.
Result<Mapping> map_part(int file, std::uint64_t offset, std::size_t bytes, Pages pages);

// Asks for all pages of a new file's mapping now, huge ones as far as the system gives them: 16 MiB
// are there in 1 ms instead of 18. False when there is not that much memory.
bool populate(const Mapping& mapping);

// Puts pages of a file that are there into the page tables. Requires  whole pages.
bool populate_quickly(std::byte* memory, std::size_t bytes);

// Maps a file that a peer sent: only if it is a memory file of at least `bytes` whose size is
// sealed. Errors: corrupt_data, system_error.
Result<Mapping> map_received(int file, std::size_t bytes, Pages pages);

// Those conditions alone. Errors: corrupt_data.
Status check_received(int file, std::uint64_t bytes);

}  // namespace tutti::transport::shm
