// text.hpp: numbers as people read them.
//
// Knows nothing of where texts go. The library has the like of some of it in src/base, which its
// clients do not see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::training {

std::string format_bytes(std::uint64_t bytes);  // "640 B", "1.5 KiB", "12.25 GiB"
std::string format_count(double count);         // "950", "12.3k", "124M", "1.76B"
std::string format_duration(double seconds);    // "12.5 ms", "3.20 s", "4 min 05 s", "3 d 04 h"
std::string format_share(double share);         // "41.2%"; "-" for what is no number
std::string exact(double value);                // as C's %a: "0x1.8p+1"; "nan", "inf", "-inf"
std::optional<double> parse_exact(std::string_view text);  // what exact() wrote

}  // namespace tutti::training
