// numbers.hpp: strict reading of numbers for every text that topologies come from. All of the
// text must be the number; locale, signs and spaces play no part.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace tutti::topology {

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace tutti::topology
