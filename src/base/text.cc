// text.cc: sizes, numbers and near misses; see text.hpp.
#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace tutti::base {
namespace {

struct Unit {
  std::string_view name;  // lower case
  std::uint64_t bytes;
};

constexpr Unit kUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", 1ULL << 10},
    {"kib", 1ULL << 10},
    {"m", 1ULL << 20},
    {"mib", 1ULL << 20},
    {"g", 1ULL << 30},
    {"gib", 1ULL << 30},
    {"t", 1ULL << 40},
    {"tib", 1ULL << 40},
    {"kb", 1'000},
    {"mb", 1'000'000},
    {"gb", 1'000'000'000},
    {"tb", 1'000'000'000'000},
};

// Not std::tolower: the locale must not change what a size means.
char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

const Unit* find_unit(std::string_view text) {
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), lower);
  const auto* found = std::find_if(std::begin(kUnits), std::end(kUnits),
                                   [&](const Unit& u) { return u.name == name; });
  return found == std::end(kUnits) ? nullptr : found;
}

Status not_a_size(std::string_view text) {
  return Status(
      StatusCode::invalid_argument,
      fmt::format("'{}' is not a size in bytes; write for example 8, 512K, 64MiB or 1.5G", text));
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  const std::size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, number_end);
  std::string_view rest = text.substr(number_end);
  if (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const Unit* unit = find_unit(rest);
  if (number.empty() || unit == nullptr) return not_a_size(text);

  // Whole numbers stay exact; only fractions go through floating point.
  std::uint64_t whole = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), whole);
  if (error == std::errc() && end == number.data() + number.size()) {
    if (whole > static_cast<std::uint64_t>(INT64_MAX) / unit->bytes) return not_a_size(text);
    return whole * unit->bytes;
  }
  double value = 0;
  const auto [stop, bad] = std::from_chars(number.data(), number.data() + number.size(), value);
  const double bytes = value * static_cast<double>(unit->bytes);
  if (bad != std::errc() || stop != number.data() + number.size() || bytes >= 0x1p63 ||
      bytes != std::floor(bytes))
    return not_a_size(text);
  return static_cast<std::uint64_t>(bytes);
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::string_view names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(names)) {
    value /= 1024;
    ++unit;
  }
  std::string number = fmt::format("{:.2f}", value);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return fmt::format("{} {}", number, names[unit]);
}

Result<std::int64_t> parse_integer(std::string_view text, std::int64_t lowest,
                                   std::int64_t highest) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= lowest &&
      value <= highest)
    return value;
  const std::string range = highest == std::numeric_limits<std::int64_t>::max()
                                ? fmt::format("of at least {}", lowest)
                                : fmt::format("from {} to {}", lowest, highest);
  return Status(StatusCode::invalid_argument,
                fmt::format("'{}' is not a whole number {}", text, range));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  if (text.empty()) return pieces;
  for (std::size_t end = 0; (end = text.find(separator)) != std::string_view::npos;) {
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  pieces.push_back(text);
  return pieces;
}

std::string join(std::span<const std::string_view> pieces, std::string_view separator) {
  return fmt::format("{}", fmt::join(pieces.begin(), pieces.end(), separator));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // rows[i % 3][j]: the distance from the first i letters of a to the first j of b.
  std::vector<std::size_t> rows[3];
  for (auto& row : rows) row.resize(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i - 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::optional<std::string_view> nearest(std::string_view name,
                                        std::span<const std::string_view> candidates) {
  std::optional<std::string_view> best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    // Lengths alone tell most apart, and a name of any length may come from outside.
    const std::size_t longer = std::max(name.size(), candidate.size());
    if (longer - std::min(name.size(), candidate.size()) >= best_distance) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace tutti::base
