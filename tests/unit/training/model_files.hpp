// model_files.hpp: model files made by hand for tests, byte by byte, so that our reader is not
// tested against our writer alone.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training::testing {

// A folder that is gone after the test.
class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-model-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string put(std::string_view name, std::string_view bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }
  std::string get(std::string_view name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool has(std::string_view name) const { return std::filesystem::exists(file(name)); }

 private:
  std::string path_;
};

inline std::span<const std::byte> as_bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The bytes of numbers as they lie in memory.
template <typename T>
std::string bytes_of_numbers(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

inline std::string prefix_of(std::uint64_t length) {
  std::string made;
  for (int i = 0; i < 8; ++i) made += static_cast<char>(length >> (8 * i) & 0xff);
  return made;
}

// A safetensors file with this header, right or not.
inline std::string file_by_hand(std::string_view header, std::string_view data) {
  return prefix_of(header.size()) + std::string(header) + std::string(data);
}

// Joins tensors one after the other, with no order and no padding, as the format allows.
class FileByHand {
 public:
  FileByHand& add(std::string_view name, std::string_view type, std::string_view shape,
                  std::string_view data) {
    header_ += header_.empty() ? "{" : ",";
    header_ += "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(type) +
               "\",\"shape\":" + std::string(shape) + ",\"data_offsets\":[" +
               std::to_string(data_.size()) + "," + std::to_string(data_.size() + data.size()) +
               "]}";
    data_ += data;
    return *this;
  }
  std::string text() const { return file_by_hand(header_.empty() ? "{}" : header_ + "}", data_); }

 private:
  std::string header_, data_;
};

}  // namespace tutti::training::testing
