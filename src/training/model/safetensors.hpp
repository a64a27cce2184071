// safetensors.hpp: files of named tensors, as Hugging Face's safetensors defines them: eight bytes
// with the header's length, a JSON header, then the tensors' bytes, little-endian and row-major,
// without overlap or holes.
//
// Reading maps the file; writing lays the file out first, so that several processes can each write
// their own ranges of one file. Knows nothing of models; weights.hpp does.
//
// Source  https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::training {

// Extents of a tensor in a file: of any rank, unlike Shape.
using Extents = std::vector<std::int64_t>;

using SafetensorsMetadata = std::map<std::string, std::string>;

// One tensor of a file.
// Lifetime  `bytes` is the file's.
struct SafetensorsEntry {
  std::string name;
  std::string_view type_name;    // "F32", "BF16", ...
  std::optional<DataType> type;  // none: a type that exists there but not here, such as "BOOL"
  Extents extents;
  std::span<const std::byte> bytes;  // not aligned
};

// What a file's bytes say.
struct SafetensorsContents {
  std::vector<SafetensorsEntry> entries;  // by name, ascending
  SafetensorsMetadata metadata;
};

// Reads a whole file in memory; nothing is copied but names.
// Errors  corrupt_data: anything that the format does not allow, naming the tensor.
// Cost    of the header only.
Result<SafetensorsContents> parse_safetensors(std::span<const std::byte> file);

// A file that is open for reading.
//
// Threading  reading from any thread. Copies share the mapping.
// Errors     whoever shortens the file meanwhile ends this process (SIGBUS); files are replaced by
//            renaming, as SafetensorsOutput does.
class SafetensorsFile {
 public:
  // Errors  system_error; corrupt_data. Both name the path.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::span<const SafetensorsEntry> entries() const { return contents_->entries; }
  const SafetensorsMetadata& metadata() const { return contents_->metadata; }

  // Null when there is none.
  const SafetensorsEntry* find(std::string_view name) const;

 private:
  class Mapping;

  SafetensorsFile(std::string path, std::shared_ptr<const Mapping> mapping,
                  std::shared_ptr<const SafetensorsContents> contents);

  std::string path_;
  std::shared_ptr<const Mapping> mapping_;
  std::shared_ptr<const SafetensorsContents> contents_;
};

// A tensor that will be in a file.
struct SafetensorsPlan {
  std::string name;
  DataType type = DataType::float32;
  Extents extents;
};

// Where everything of a file will lie: a function of what is in it, so that all processes that
// write one file agree without talking.
class SafetensorsLayout {
 public:
  // Errors  invalid_argument: a name twice, "__metadata__" as a name, text that is not UTF-8, or a
  //         header or file larger than the format allows.
  static Result<SafetensorsLayout> make(std::vector<SafetensorsPlan> tensors,
                                        const SafetensorsMetadata& metadata = {});

  struct Range {
    std::uint64_t offset = 0;  // from the beginning of the file
    std::uint64_t bytes = 0;
  };

  // The eight bytes of length and the padded JSON: how the file begins.
  const std::string& header() const { return header_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::optional<Range> find(std::string_view name) const;

 private:
  std::string header_;
  std::uint64_t file_bytes_ = 0;
  std::map<std::string, Range, std::less<>> ranges_;
};

// A file that is being written, under the name PATH.tmp until it is complete. One process creates
// it, others may join; each writes its ranges, calls sync(), and after all of them have, the
// creator calls commit(). How they wait for each other is theirs.
//
// Threading  write() from any thread, on ranges that do not overlap.
// Errors     system_error with the path, of every call.
class SafetensorsOutput {
 public:
  // The whole file's space is set aside; tensors' bytes that nobody writes are zeros.
  static Result<SafetensorsOutput> create(const std::string& path, SafetensorsLayout layout);
  // Requires  create() by another process, done, with an equal layout.
  static Result<SafetensorsOutput> join(const std::string& path, SafetensorsLayout layout);

  SafetensorsOutput(SafetensorsOutput&&) noexcept;
  SafetensorsOutput& operator=(SafetensorsOutput&&) noexcept;
  ~SafetensorsOutput();  // a creator without commit() removes PATH.tmp

  // Puts `bytes` into tensor `name`, `at` bytes from its beginning.
  // Errors  invalid_argument: no such tensor, or past its end.
  Status write(std::string_view name, std::uint64_t at, std::span<const std::byte> bytes);

  // What this process wrote is on the disk.
  Status sync();

  // Syncs, and gives the file its name, in place of what had it.
  Status commit();

 private:
  class Descriptor;

  SafetensorsOutput(std::string path, SafetensorsLayout layout, std::unique_ptr<Descriptor> file);

  std::string path_;
  SafetensorsLayout layout_;
  std::unique_ptr<Descriptor> file_;
};

// A tensor in memory, to be written.
struct NamedBytes {
  SafetensorsPlan plan;
  std::span<const std::byte> bytes;
};

// Writes a whole file at once, by way of PATH.tmp.
// Errors  those of SafetensorsLayout and SafetensorsOutput; invalid_argument: bytes that are more
//         or fewer than the extents say.
Status write_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                         const SafetensorsMetadata& metadata = {});

}  // namespace tutti::training
