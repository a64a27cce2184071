// token_file.hpp: one file of tokens, mapped into memory: any text as bytes, and the binary files
// of llm.c and of the nanogpt speed runs.
//
// Knows nothing of what the tokens mean, and nothing of training and held-out parts.
//
// Source  llm.c and NeMo Automodel: a header of 256 int32 (magic, version, number of tokens, and
// for
//         nanogpt the bytes of each), then the tokens, all little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "training/files/output_file.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

enum class TokenFormat : unsigned char {
  text,         // no header; a token is a byte
  llmc,         // magic 20240520, version 1: uint16
  llmc_llama3,  // magic 20240801, version 7: uint32
  nanogpt,      // magic 278895051, version 1: uint16 or uint32, as the header says
};

std::string_view to_string(TokenFormat format);

inline constexpr std::size_t kTokenHeaderBytes = 1024;

// Where a file's tokens lie.
struct TokenLayout {
  TokenFormat format = TokenFormat::text;
  std::int64_t token_bytes = 1;
  std::int64_t begin_bytes = 0;
  std::int64_t count = 0;

  friend bool operator==(const TokenLayout&, const TokenLayout&) = default;
};

// Finds out the layout of a file of `file_bytes` that begins with `head`: its first
// kTokenHeaderBytes, or all of it where it is shorter. What begins with no known magic is text,
// unless its name ends in ".bin".
//
// Errors  corrupt_data, naming the file and the field, and both sizes where they disagree.
Result<TokenLayout> token_layout(std::string_view path, std::span<const std::byte> head,
                                 std::uint64_t file_bytes);

// A value: copies share the mapping.
//
// Threading  const functions from any thread.
// Lifetime   the file must not be shortened while it is mapped; the system ends a process that
//            reads past its end.
class TokenFile {
 public:
  // Errors  system_error, or those of token_layout().
  static Result<TokenFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  TokenFormat format() const { return layout_.format; }
  std::int64_t size() const { return layout_.count; }  // tokens, at least one

  // Tokens [begin, begin + out.size()). One that no int32 can hold is given as the largest int32.
  // Requires  a range within size().
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

  // The format has only tokens below this: 256, 2^16 or 2^31.
  std::int64_t vocabulary_bound() const;

  // Whether all tokens are below `vocabulary`. Cost  reads the whole file, unless the format says
  // so already. Errors  corrupt_data, naming the first token that is not, and its place.
  Status check_vocabulary(std::int64_t vocabulary) const;

 private:
  TokenFile(std::string path, TokenLayout layout, std::shared_ptr<const std::byte> mapping)
      : path_(std::move(path)), layout_(layout), mapping_(std::move(mapping)) {}

  std::string path_;
  TokenLayout layout_;
  std::shared_ptr<const std::byte> mapping_;
};

// Writes a token file piece by piece. The file has its name only after finish(); a writer that goes
// away before leaves nothing behind.
class TokenWriter {
 public:
  // `token_bytes` matters to nanogpt alone: 2 or 4.
  static Result<TokenWriter> create(const std::string& path, TokenFormat format,
                                    std::int64_t token_bytes = 2);
  ~TokenWriter();
  TokenWriter(TokenWriter&&) noexcept;
  TokenWriter& operator=(TokenWriter&&) = delete;

  // Errors  invalid_argument for a token that the format cannot hold (nothing of `tokens` is
  //         written then), or more than 2^31 - 1 tokens under a header; system_error.
  Status append(std::span<const std::int32_t> tokens);
  // Requires  called once, last.
  Status finish();

 private:
  TokenWriter(OutputFile file, std::string path, TokenLayout layout)
      : file_(std::move(file)), path_(std::move(path)), layout_(layout) {}

  OutputFile file_;
  std::string path_;    // the name it will have
  TokenLayout layout_;  // its count: tokens so far
};

}  // namespace tutti::training
