// The small texts that people type: sizes, numbers, lists, secrets, misspelt names. Variables,
// options and files all lead here.
//
// Beyond not crashing: a size or number that is read prints and reads again to the same; pieces
// joined again are the text; the edit distance is a distance; a near miss is one of the candidates.
#include <algorithm>
#include <array>

#include "base/job_secret.hpp"
#include "base/text.hpp"
#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::base;

void check_numbers(std::string_view text) {
  if (const auto bytes = parse_bytes(text); bytes.ok()) {
    const auto again = parse_bytes(std::to_string(*bytes));
    TUTTI_ASSERT(again.ok() && *again == *bytes, "a size reads again to the same");
    TUTTI_ASSERT(!format_bytes(*bytes).empty(), "a size can be shown");
  }
  if (const auto number = parse_integer(text, -1000, 1'000'000'000'000); number.ok()) {
    TUTTI_ASSERT(*number >= -1000 && *number <= 1'000'000'000'000, "a number is in its range");
    const auto again = parse_integer(std::to_string(*number), -1000, 1'000'000'000'000);
    TUTTI_ASSERT(again.ok() && *again == *number, "a number reads again to the same");
  }
}

void check_lists(std::string_view text) {
  const auto pieces = split(text, ',');
  TUTTI_ASSERT(join(pieces, ",") == text, "pieces make the whole");
  constexpr std::array<std::string_view, 4> names = {"CHANNELS", "TIMEOUT_MS", "LOG", "TRANSPORT"};
  if (const auto near = nearest(text, names))
    TUTTI_ASSERT(std::find(names.begin(), names.end(), *near) != names.end(),
                 "a near miss is a candidate");
  text = text.substr(0, 8);  // the distance costs the product of the lengths
  const std::string_view half = text.substr(0, text.size() / 2);
  const std::size_t there = edit_distance(text, half);
  TUTTI_ASSERT(there == edit_distance(half, text) && edit_distance(text, text) == 0 &&
                   there <= text.size() && there >= text.size() - half.size(),
               "a distance is one");
}

void check_secret(std::string_view text) {
  const auto secret = parse_job_secret(text);
  if (!secret.ok()) return;
  TUTTI_ASSERT(secret->size() >= 16 && secret->size() <= 256, "a secret is of a fit length");
  TUTTI_ASSERT(secret->size() * 2 <= text.size(), "two digits for each byte");
}

}  // namespace

std::size_t input_bytes_max() { return 128; }

void run(std::string_view input) {
  const AllocationLimit limit(256 * input.size() + 16 * 1024);
  check_numbers(input);
  check_lists(input);
  check_secret(input);
}

std::vector<std::string> seeds() {
  return {"8",
          "512B",
          "64 MiB",
          "1.5G",
          "2MB",
          "9223372036854775807",
          "8388607.9T",
          "0.0000001K",
          "-17",
          "CHANELS",
          "a,,b",
          "",
          " 0123456789abcdef0123456789ABCDEF\n"};
}

}  // namespace tutti::fuzz
