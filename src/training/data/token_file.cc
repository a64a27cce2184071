// token_file.cc: see token_file.hpp.
#include "training/data/token_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();

// A format with a header. token_bytes 0: the header's fourth word says it.
struct Signature {
  TokenFormat format;
  std::int32_t magic;
  std::int32_t version;
  std::int64_t token_bytes;
};

constexpr std::array<Signature, 3> kSignatures = {{
    {TokenFormat::llmc, 20240520, 1, 2},
    {TokenFormat::llmc_llama3, 20240801, 7, 4},
    {TokenFormat::nanogpt, 278895051, 1, 0},
}};

const Signature* signature_of(TokenFormat format) {
  for (const Signature& signature : kSignatures)
    if (signature.format == format) return &signature;
  return nullptr;
}

std::int32_t header_word(std::span<const std::byte> head, std::size_t index) {
  std::int32_t word = 0;
  std::memcpy(&word, head.data() + index * sizeof(word), sizeof(word));
  return word;
}

const Signature* signature_in(std::span<const std::byte> head) {
  if (head.size() < sizeof(std::int32_t)) return nullptr;
  for (const Signature& signature : kSignatures)
    if (signature.magic == header_word(head, 0)) return &signature;
  return nullptr;
}

Status corrupt(std::string_view path, std::string text) {
  return Status(StatusCode::corrupt_data, fmt::format("'{}': {}", path, std::move(text)));
}

Result<TokenLayout> text_layout(std::string_view path, std::uint64_t file_bytes) {
  if (path.ends_with(".bin"))
    return corrupt(path,
                   "begins like no known token file: the first int32 should be 20240520 or "
                   "20240801 (llm.c) or 278895051 (nanogpt); to train on its bytes, give it "
                   "another name");
  if (file_bytes == 0) return corrupt(path, "is empty; a token file has at least one token");
  return TokenLayout{TokenFormat::text, 1, 0, static_cast<std::int64_t>(file_bytes)};
}

// Copies tokens of type T, widened.
template <typename T>
void copy_tokens(const std::byte* from, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T token{};
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) == sizeof(std::uint32_t))
      out[i] = static_cast<std::int32_t>(std::min(token, static_cast<T>(kInt32Max)));
    else
      out[i] = static_cast<std::int32_t>(token);
  }
}

std::int64_t bound_of(std::int64_t token_bytes) {
  return token_bytes == 4 ? kInt32Max + 1 : std::int64_t{1} << (8 * token_bytes);
}

std::string partial_name(const std::string& path) {
  return fmt::format("{}.partial.{}", path, ::getpid());
}

std::array<std::int32_t, kTokenHeaderBytes / 4> header_of(const TokenLayout& layout) {
  std::array<std::int32_t, kTokenHeaderBytes / 4> header{};
  const Signature* signature = signature_of(layout.format);
  header[0] = signature->magic;
  header[1] = signature->version;
  header[2] = static_cast<std::int32_t>(layout.count);
  if (signature->token_bytes == 0) header[3] = static_cast<std::int32_t>(layout.token_bytes);
  return header;
}

}  // namespace

std::string_view to_string(TokenFormat format) {
  switch (format) {
    case TokenFormat::text:
      return "text";
    case TokenFormat::llmc:
      return "llmc";
    case TokenFormat::llmc_llama3:
      return "llmc_llama3";
    case TokenFormat::nanogpt:
      return "nanogpt";
  }
  return "?";
}

Result<TokenLayout> token_layout(std::string_view path, std::span<const std::byte> head,
                                 std::uint64_t file_bytes) {
  const Signature* signature = signature_in(head);
  if (!signature) return text_layout(path, file_bytes);
  if (head.size() < kTokenHeaderBytes)
    return corrupt(path, fmt::format("is cut off: its header alone should be {} bytes, and the "
                                     "file has {}",
                                     kTokenHeaderBytes, head.size()));
  const std::int32_t version = header_word(head, 1), count = header_word(head, 2);
  if (version != signature->version)
    return corrupt(path, fmt::format("says version {}; of magic {} we read version {}", version,
                                     signature->magic, signature->version));
  const std::int64_t token_bytes =
      signature->token_bytes != 0 ? signature->token_bytes : header_word(head, 3);
  if (token_bytes != 2 && token_bytes != 4)
    return corrupt(path, fmt::format("says {} bytes for a token; 2 or 4 are right", token_bytes));
  if (count < 1)
    return corrupt(path, fmt::format("says that it has {} tokens; at least 1 is right", count));
  const std::uint64_t expected = kTokenHeaderBytes + static_cast<std::uint64_t>(count) *
                                                         static_cast<std::uint64_t>(token_bytes);
  if (file_bytes != expected)
    return corrupt(path,
                   fmt::format("has {} bytes, but {} tokens of {} bytes and the header are {}",
                               file_bytes, count, token_bytes, expected));
  return TokenLayout{signature->format, token_bytes, kTokenHeaderBytes, count};
}

Result<TokenFile> TokenFile::open(const std::string& path) {
  // Opening a pipe that nobody writes must not wait; of files O_NONBLOCK changes nothing.
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.is_open()) return file_error("read", path);
  struct stat facts = {};
  if (::fstat(descriptor.number(), &facts) != 0) return file_error("read", path);
  if (!S_ISREG(facts.st_mode))
    return Status(StatusCode::invalid_argument,
                  fmt::format("'{}' is not a regular file, so it cannot be mapped", path));
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  if (bytes == 0) return corrupt(path, "is empty; a token file has at least one token");

  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor.number(), 0);
  if (address == MAP_FAILED) return file_error("map", path);
  const std::shared_ptr<const std::byte> mapping(
      static_cast<const std::byte*>(address),
      [address, bytes](const std::byte*) { ::munmap(address, bytes); });
  const auto layout =
      token_layout(path, {mapping.get(), std::min(bytes, kTokenHeaderBytes)}, bytes);
  if (!layout.ok()) return layout.status();
  return TokenFile(path, *layout, mapping);
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  TRAINING_CHECK(begin >= 0 && begin <= size() && count <= size() - begin, "tokens past the end");
  const std::byte* from = mapping_.get() + layout_.begin_bytes + begin * layout_.token_bytes;
  switch (layout_.token_bytes) {
    case 1:
      return copy_tokens<std::uint8_t>(from, out);
    case 2:
      return copy_tokens<std::uint16_t>(from, out);
    default:
      return copy_tokens<std::uint32_t>(from, out);
  }
}

std::int64_t TokenFile::vocabulary_bound() const { return bound_of(layout_.token_bytes); }

Status TokenFile::check_vocabulary(std::int64_t vocabulary) const {
  // Four bytes hold numbers past the bound, too, which read() gives as the largest.
  if (layout_.token_bytes < 4 && vocabulary >= vocabulary_bound()) return {};
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(kPiece, size())));
  for (std::int64_t begin = 0; begin < size(); begin += kPiece) {
    const auto count = static_cast<std::size_t>(std::min(kPiece, size() - begin));
    const std::span<std::int32_t> piece(tokens.data(), count);
    read(begin, piece);
    const auto bad = std::find_if(piece.begin(), piece.end(), [vocabulary](std::int32_t token) {
      return token >= vocabulary || token == kInt32Max;
    });
    if (bad != piece.end())
      return corrupt(path_, fmt::format("token {} is {}; the vocabulary has {}, so it should be "
                                        "below that",
                                        begin + (bad - piece.begin()), *bad, vocabulary));
  }
  return {};
}

Result<TokenWriter> TokenWriter::create(const std::string& path, TokenFormat format,
                                        std::int64_t token_bytes) {
  TokenLayout layout{format, 1, 0, 0};
  if (const Signature* signature = signature_of(format)) {
    layout.begin_bytes = kTokenHeaderBytes;
    layout.token_bytes = signature->token_bytes != 0 ? signature->token_bytes : token_bytes;
    if (layout.token_bytes != 2 && layout.token_bytes != 4)
      return Status(StatusCode::invalid_argument,
                    fmt::format("{} bytes for a token; 2 or 4 are right", token_bytes));
  }
  auto file = OutputFile::open(partial_name(path), OutputFile::Mode::replace);
  if (!file.ok()) return file.status();
  TokenWriter writer(*std::move(file), path, layout);
  // Room for the header, which finish() fills in.
  const Status status =
      writer.file_.write(std::string(static_cast<std::size_t>(layout.begin_bytes), '\0'));
  if (!status.ok()) return status;
  return writer;
}

TokenWriter::TokenWriter(TokenWriter&& other) noexcept
    : file_(std::move(other.file_)),
      path_(std::exchange(other.path_, {})),
      layout_(other.layout_) {}

TokenWriter::~TokenWriter() {
  if (!path_.empty()) ::unlink(file_.path().c_str());
}

Status TokenWriter::append(std::span<const std::int32_t> tokens) {
  const auto more = static_cast<std::int64_t>(tokens.size());
  if (layout_.begin_bytes > 0 && more > kInt32Max - layout_.count)
    return Status(
        StatusCode::invalid_argument,
        fmt::format("'{}': a header counts up to {} tokens; make several files", path_, kInt32Max));
  const auto width = static_cast<std::size_t>(layout_.token_bytes);
  std::string bytes(tokens.size() * width, '\0');
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= bound_of(layout_.token_bytes))
      return Status(
          StatusCode::invalid_argument,
          fmt::format("'{}': token {} does not fit {}, which holds 0 to {}", path_, tokens[i],
                      to_string(layout_.format), bound_of(layout_.token_bytes) - 1));
    std::memcpy(bytes.data() + i * width, &tokens[i], width);  // little-endian: the low bytes
  }
  const Status status = file_.write(bytes);
  if (status.ok()) layout_.count += more;
  return status;
}

Status TokenWriter::finish() {
  TRAINING_CHECK(!path_.empty(), "a token file is finished once");
  if (layout_.begin_bytes > 0) {
    const auto header = header_of(layout_);
    const std::string_view bytes(reinterpret_cast<const char*>(header.data()), kTokenHeaderBytes);
    const Status status = file_.write_at(0, bytes);
    if (!status.ok()) return status;
  }
  Status status = file_.close();
  if (status.ok()) status = rename_file(file_.path(), path_);
  if (status.ok()) path_.clear();  // nothing is left to remove
  return status;
}

}  // namespace tutti::training
