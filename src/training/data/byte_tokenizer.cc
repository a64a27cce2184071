// byte_tokenizer.cc: see byte_tokenizer.hpp.
#include "training/data/byte_tokenizer.hpp"

#include <fmt/format.h>

namespace tutti::training {

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

Result<std::string> decode_bytes(std::span<const std::int32_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= kByteVocabulary)
      return Status(StatusCode::invalid_argument,
                    fmt::format("token {} is {}; a byte is 0 to 255", text.size(), token));
    text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace tutti::training
