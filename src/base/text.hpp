// text.hpp: reading and writing the small texts that people type and read: sizes, whole numbers,
// lists, and "did you mean". One place, so that "64M" means the same in every program and variable.
//
// Knows nothing of where a text came from; callers add the name of the variable or option.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::base {

// Reads "8", "512B", "64M", "64MiB", "1.5G" or "2MB".
//
// Units   bytes. K, M, G, T alone and with "iB" are powers of 1024, as nccl-tests has them; kB, MB,
//         GB, TB are powers of 1000. Upper or lower case.
// Errors  invalid_argument: not a number, an unknown unit, a fraction of a byte, or above 2^63.
Result<std::uint64_t> parse_bytes(std::string_view text);

// "8 B", "1.5 KiB", "64 MiB": at most two digits after the point, none that are zero.
std::string format_bytes(std::uint64_t bytes);

// Reads a decimal whole number; the whole text must be one.
// Errors  invalid_argument, naming the allowed range.
Result<std::int64_t> parse_integer(std::string_view text, std::int64_t lowest,
                                   std::int64_t highest);

// The pieces between separators; "a,,b" has an empty one, "" has none.
std::vector<std::string_view> split(std::string_view text, char separator);

// "memory, shm, tcp"
std::string join(std::span<const std::string_view> pieces, std::string_view separator);

// FNV-1a over the bytes: equal for equal texts, on every machine. `start` tells uses apart.
// Source  Fowler, Noll, Vo, draft-eastlake-fnv.
constexpr std::uint64_t hash_of_text(std::string_view text,
                                     std::uint64_t start = 0xcbf29ce484222325ULL) {
  for (const char c : text) start = (start ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
  return start;
}

// How many letters must be inserted, deleted, replaced or swapped with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that a misspelt name most likely meant; none if all are too far off.
std::optional<std::string_view> nearest(std::string_view name,
                                        std::span<const std::string_view> candidates);

}  // namespace tutti::base
