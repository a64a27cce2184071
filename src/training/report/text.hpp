// text.hpp: numbers as people read them, and the name that a misspelt one most likely meant.
//
// Knows nothing of where texts go. The library has the like of some of it in src/base, which its
// clients do not see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::training {

std::string format_bytes(std::uint64_t bytes);  // "640 B", "1.5 KiB", "12.25 GiB"
std::string format_count(double count);         // "950", "12.3k", "124M", "1.76B"
std::string format_duration(double seconds);    // "12.5 ms", "3.20 s", "4 min 05 s", "3 d 04 h"
std::string format_share(double share);         // "41.2%"; "-" for what is no number
std::string exact(double value);                // as C's %a: "0x1.8p+1"; "nan", "inf", "-inf"
std::optional<double> parse_exact(std::string_view text);  // what exact() wrote

// How many letters must be inserted, deleted, replaced or swapped with their neighbour.
// Cost  the product of the lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to a misspelt name, the first of several; none if all are too far off.
std::optional<std::string_view> nearest(std::string_view name,
                                        std::span<const std::string_view> candidates);

// For the end of an error's text: "did you mean 'adamw'?", or "known are adamw, sgd, lion".
std::string suggestion(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace tutti::training
