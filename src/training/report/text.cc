// text.cc: see text.hpp.
#include "training/report/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace tutti::training {
namespace {

// "1.50" as "1.5", "2.00" as "2".
std::string without_zeros(std::string digits) {
  if (digits.find('.') == std::string::npos) return digits;
  while (digits.back() == '0') digits.pop_back();
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

// Three digits that count: "1.23", "12.3", "123".
std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  return value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string format_long_duration(double seconds) {
  constexpr double kLongest = 1e12;  // what no one waits for, and an integer holds
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, kLongest)));
  const std::int64_t minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (minutes < 1) return fmt::format("{} s", whole);
  if (hours < 1) return fmt::format("{} min {:02} s", minutes, whole % 60);
  if (days < 1) return fmt::format("{} h {:02} min", hours, minutes % 60);
  return fmt::format("{} d {:02} h", days, hours % 24);
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> units = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.995 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return without_zeros(fmt::format("{:.2f}", value)) + " " + std::string(units[unit]);
}

std::string format_count(double count) {
  constexpr std::array<std::string_view, 5> units = {"", "k", "M", "B", "T"};
  if (!std::isfinite(count)) return fmt::format("{}", count);
  if (count < 0) return "-" + format_count(-count);
  std::size_t unit = 0;
  while (count >= 999.5 && unit + 1 < units.size()) {
    count /= 1000;
    ++unit;
  }
  return without_zeros(three_digits(count)) + std::string(units[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 999.5e-6) return three_digits(seconds * 1e6) + " us";
  if (seconds < 999.5e-3) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  return format_long_duration(seconds);
}

std::string format_share(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f}%", share * 100) : "-";
}

std::string exact(double value) { return std::isnan(value) ? "nan" : fmt::format("{:a}", value); }

std::optional<double> parse_exact(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text == "nan") return std::nan("");
  if (text == "inf") return negative ? -HUGE_VAL : HUGE_VAL;
  if (!text.starts_with("0x")) return std::nullopt;
  text.remove_prefix(2);
  if (text.empty() || text.front() == '-') return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, std::chars_format::hex);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return negative ? -value : value;
}

}  // namespace tutti::training
