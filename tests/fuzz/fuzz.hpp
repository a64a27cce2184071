// fuzz.hpp: what every fuzz target says of itself, and what the targets share.
//
// A target is one source file that defines the three functions at the top. It is linked twice: with
// libFuzzer (libfuzzer_main.cc) to search for new inputs, and with replay_main.cc to run the seeds,
// mutations of them and saved inputs as an ordinary test. Seeds are made by code, with the encoders
// that the targets attack, so that they keep up with the formats.
//
// Knows no parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.hpp"

// Before a check of a target's own that looks at every byte: compiled without instruments, which
// would make it cost more than the parser, and would let the fuzzer steer by it.
#if defined(__clang__)
#define TUTTI_FUZZ_PLAIN __attribute__((no_sanitize("address", "undefined", "coverage")))
#else
#define TUTTI_FUZZ_PLAIN
#endif

namespace tutti::fuzz {

// ---- What a target defines ----

// Checks all properties on one input; ends the process where one does not hold.
void run(std::string_view input);

// Inputs from which to search on: small, valid, and together covering the format.
std::vector<std::string> seeds();

// Longer inputs are not tried.
std::size_t input_bytes_max();

// ---- What targets use ----

// While it lives, this thread may hold so many bytes from `operator new` more than before; one more
// ends the process, with the allocation on the stack. Not nested.
class AllocationLimit {
 public:
  explicit AllocationLimit(std::size_t bytes);
  ~AllocationLimit();
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
};

// Takes an input apart into decisions; gives zeros and nothing at its end.
class Decisions {
 public:
  explicit Decisions(std::string_view input) : rest_(input) {}

  bool done() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  std::string_view bytes(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  template <typename Number>
  Number number() {
    Number value{};
    const std::string_view taken = bytes(sizeof(Number));
    if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());
    return value;
  }

  // Bytes prefixed by one byte with their number.
  std::string_view text() { return bytes(number<std::uint8_t>()); }

 private:
  std::string_view rest_;
};

// Writes what Decisions reads, for seeds.
class Script {
 public:
  template <typename Number>
  Script& number(Number value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Script& byte(int value) { return number(static_cast<std::uint8_t>(value)); }
  Script& bytes(std::string_view bytes) {
    text_.append(bytes);
    return *this;
  }
  Script& text(std::string_view bytes) {
    TUTTI_ASSERT(bytes.size() < 256, "one byte holds the length");
    return byte(static_cast<int>(bytes.size())).bytes(bytes);
  }
  operator std::string() const { return text_; }

 private:
  std::string text_;
};

}  // namespace tutti::fuzz
