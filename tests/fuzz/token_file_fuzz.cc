// Token files, which users name and others made: a header that says how many tokens of what width
// follow, or text.
//
// Beyond not crashing: a layout that is accepted lies within the file to the last byte; reading it
// piece by piece gives what reading it at once gives; a token that is past a vocabulary is found.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fuzz.hpp"
#include "training/data/token_file.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::training;

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void check_layout(std::string_view name, std::string_view input) {
  const auto layout =
      token_layout(name, bytes_of(input.substr(0, kTokenHeaderBytes)), input.size());
  if (!layout.ok()) return;
  TUTTI_ASSERT(layout->count >= 1 && layout->begin_bytes >= 0, "a token file has tokens");
  TUTTI_ASSERT(static_cast<std::size_t>(layout->begin_bytes +
                                        layout->count * layout->token_bytes) == input.size(),
               "tokens fill the file");
}

// A file of these bytes without a name in any folder.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : number_(::memfd_create("tokens", MFD_CLOEXEC)) {
    TUTTI_ASSERT(number_ >= 0, "the system has memory for a small file");
    TUTTI_ASSERT(::write(number_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
                 "a small file takes one write");
  }
  ~MemoryFile() { ::close(number_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(number_); }

 private:
  int number_;
};

void check_reading(const TokenFile& file) {
  std::vector<std::int32_t> whole(static_cast<std::size_t>(file.size()));
  file.read(0, whole);
  std::array<std::int32_t, 7> piece{};
  for (std::size_t at = 0; at < whole.size(); at += piece.size()) {
    const auto part = std::span(piece).first(std::min(piece.size(), whole.size() - at));
    file.read(static_cast<std::int64_t>(at), part);
    TUTTI_ASSERT(
        std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(at)),
        "pieces make the whole");
  }
  const auto highest = *std::max_element(whole.begin(), whole.end());
  TUTTI_ASSERT(highest < file.vocabulary_bound(), "tokens are below the format's bound");
  TUTTI_ASSERT(!file.check_vocabulary(highest).ok(), "a token past the vocabulary is found");
}

}  // namespace

std::size_t input_bytes_max() { return 2048; }

void run(std::string_view input) {
  const AllocationLimit limit(64 * input.size() + 64 * 1024);
  check_layout("tokens.bin", input);
  check_layout("tokens.txt", input);
  const MemoryFile memory(input);
  const auto file = TokenFile::open(memory.path());
  TUTTI_ASSERT(file.ok() || file.status().code() == StatusCode::corrupt_data,
               "only what is in a file can be wrong with it");
  if (file.ok()) check_reading(*file);
}

// Headers by hand: the writer makes files with names, and what is wrong in a header it never makes.
std::vector<std::string> seeds() {
  const auto with_header = [](std::array<std::int32_t, 4> words, std::string_view tokens) {
    std::string bytes(kTokenHeaderBytes, '\0');
    std::memcpy(bytes.data(), words.data(), sizeof(words));
    return bytes.append(tokens);
  };
  return {with_header({20240520, 1, 4, 0}, "aabbccdd"),
          with_header({20240801, 7, 2, 0}, "aaaabbbb"),
          with_header({278895051, 1, 4, 2}, "aabbccdd"),
          with_header({278895051, 1, 2, 4}, "aaaa\xff\xff\xff\xff"),
          with_header({278895051, 1, 2147483647, 4}, "aaaa"),
          with_header({20240520, 1, -1, 0}, ""),
          with_header({20240520, 1, 4, 0}, "aabbccdd").substr(0, 12),
          "In the beginning",
          ""};
}

}  // namespace tutti::fuzz
