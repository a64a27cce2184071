// bytes.hpp: writing numbers and strings into messages, and reading them back with every bound
// checked. Messages are little-endian.
//
// Knows no message; a reader that runs over the end stays failed and returns zeros, so that a
// parser checks once, at its end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace tutti::transport {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

class ByteWriter {
 public:
  template <typename T>
  ByteWriter& number(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  ByteWriter& raw(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  // Prefixed by its length, so that no two lists of strings give the same bytes.
  ByteWriter& text(std::string_view bytes) {
    return number(static_cast<std::uint32_t>(bytes.size())).raw(bytes);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    static_assert(std::is_integral_v<T>);
    T value = 0;
    const std::string_view from = raw(sizeof(T));
    if (from.size() == sizeof(T)) std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }
  std::string_view raw(std::size_t bytes) {
    if (failed_ || bytes > rest_.size()) {
      failed_ = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::string_view text(std::size_t bytes_max) {
    const auto bytes = number<std::uint32_t>();
    if (bytes > bytes_max) failed_ = true;
    return raw(bytes);
  }
  std::string_view rest() { return raw(rest_.size()); }

  // True when everything was read and nothing was missing.
  bool complete() const { return !failed_ && rest_.empty(); }
  bool failed() const { return failed_; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace tutti::transport
