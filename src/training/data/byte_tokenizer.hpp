// byte_tokenizer.hpp: text as tokens without a vocabulary file: a token is a byte. What a model of
// bytes is trained on, and how what it says is read.
//
// Knows nothing of UTF-8; bytes that do not make letters pass as they are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::training {

inline constexpr std::int64_t kByteVocabulary = 256;

std::vector<std::int32_t> encode_bytes(std::string_view text);

// Errors  invalid_argument, naming the first token that is no byte, and its place.
Result<std::string> decode_bytes(std::span<const std::int32_t> tokens);

}  // namespace tutti::training
