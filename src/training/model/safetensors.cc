// safetensors.cc: reading; see safetensors.hpp. The header comes from outside: it is read event by
// event, so that what is not allowed ends the reading where it stands, and its numbers are checked
// before they are used.
#include "training/model/safetensors.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "training/architecture/bounded_json.hpp"
#include "training/files/whole_file.hpp"
#include "training/model/safetensors_types.hpp"

namespace tutti::training {
namespace {

static_assert(std::endian::native == std::endian::little, "files are, and are used in place");

Status corrupt(std::string text) { return {StatusCode::corrupt_data, std::move(text)}; }

// One tensor as the header has it, before anything is checked.
struct RawEntry {
  std::string name;
  const SafetensorsType* type = nullptr;
  Extents extents;
  std::vector<std::uint64_t> offsets;
  bool has_type = false, has_extents = false, has_offsets = false;
};

// A state machine over the events of nlohmann's parser: every method says whether to go on.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<RawEntry> entries;
  SafetensorsMetadata metadata;
  bool metadata_seen = false;
  std::string failure;

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) return go(Place::top);
    if (place_ == Place::name) return go(Place::entry);
    if (place_ == Place::metadata_name) return go(Place::metadata);
    return fail("an object where none belongs");
  }

  bool end_object() override {
    if (place_ == Place::entry && !complete(entries.back())) return false;
    return go(place_ == Place::top ? Place::outside : Place::top);
  }

  bool key(std::string& text) override {
    if (place_ == Place::top) return open_entry(text);
    if (place_ == Place::entry) return open_field(text);
    key_ = text;
    if (metadata.count(key_) != 0) return fail("the metadata has a key twice");
    return go(Place::metadata_value);
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata_value) {
      metadata.emplace(std::move(key_), text);
      return go(Place::metadata);
    }
    if (place_ != Place::type) return fail("a text where none belongs");
    entries.back().type = find_safetensors_type(text);
    if (entries.back().type == nullptr)
      return fail(fmt::format("dtype \"{}\" does not exist", shown(text)));
    return go(Place::entry);
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::extents_next) return go(Place::extents);
    if (place_ == Place::offsets_next) return go(Place::offsets);
    return fail("an array where none belongs");
  }

  bool end_array() override { return go(Place::entry); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::offsets) {
      entries.back().offsets.push_back(value);
      return entries.back().offsets.size() <= 2 || fail("more than two data_offsets");
    }
    if (place_ != Place::extents) return fail("a number where none belongs");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail("an extent above 2^63");
    entries.back().extents.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool null() override { return fail("a null"); }
  bool boolean(bool) override { return fail("a true or false"); }
  bool number_integer(std::int64_t) override { return fail("a negative number"); }
  bool number_float(double, const std::string&) override { return fail("a number with a point"); }
  bool binary(nlohmann::json::binary_t&) override { return fail("binary data"); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    if (failure.empty()) failure = fmt::format("the header is not JSON at byte {}", at);
    return false;
  }

 private:
  enum class Place : unsigned char {
    outside,
    top,             // among the names
    name,            // after a tensor's name
    entry,           // among its fields
    type,            // after "dtype"
    extents_next,    // after "shape"
    extents,         // within its array
    offsets_next,    // after "data_offsets"
    offsets,         // within its array
    metadata_name,   // after "__metadata__"
    metadata,        // among its keys
    metadata_value,  // after one of them
  };

  bool go(Place place) {
    place_ = place;
    return true;
  }

  bool fail(std::string_view what) {
    const bool inside = !entries.empty() && place_ >= Place::name && place_ <= Place::offsets;
    failure = inside ? fmt::format("tensor \"{}\": {}", shown(entries.back().name), what)
                     : fmt::format("the header: {}", what);
    return false;
  }

  bool open_entry(std::string& name) {
    if (name == "__metadata__") {
      if (std::exchange(metadata_seen, true)) return fail("\"__metadata__\" is there twice");
      return go(Place::metadata_name);
    }
    entries.emplace_back().name = std::move(name);
    return go(Place::name);
  }

  bool open_field(const std::string& name) {
    RawEntry& entry = entries.back();
    if (name == "dtype" && !std::exchange(entry.has_type, true)) return go(Place::type);
    if (name == "shape" && !std::exchange(entry.has_extents, true)) return go(Place::extents_next);
    if (name == "data_offsets" && !std::exchange(entry.has_offsets, true))
      return go(Place::offsets_next);
    return fail(fmt::format("the key \"{}\" is unknown or there twice", shown(name)));
  }

  bool complete(const RawEntry& entry) {
    if (!entry.has_type) return fail("dtype is missing");
    if (!entry.has_extents) return fail("shape is missing");
    if (entry.offsets.size() != 2) return fail("data_offsets must be two numbers");
    return true;
  }

  Place place_ = Place::outside;
  std::string key_;
};

// The header's length, once it is known to lie within the file.
Result<std::size_t> header_length(std::span<const std::byte> file) {
  if (file.size() < kSafetensorsPrefix)
    return corrupt(fmt::format("{} bytes, too short for a safetensors file", file.size()));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kSafetensorsPrefix; ++i)
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > kSafetensorsHeaderMax)
    return corrupt(
        fmt::format("a header of {} bytes; at most {} are allowed", length, kSafetensorsHeaderMax));
  if (length > file.size() - kSafetensorsPrefix)
    return corrupt(fmt::format("a header of {} bytes in a file of {}", length, file.size()));
  if (length == 0 || file[kSafetensorsPrefix] != std::byte{'{'})
    return corrupt("the header does not begin with '{'");
  return static_cast<std::size_t>(length);
}

Status check_extent(const RawEntry& raw) {
  const auto failed = [&](const std::string& why) {
    return corrupt(fmt::format("tensor \"{}\": {}", shown(raw.name), why));
  };
  if (raw.offsets[0] > raw.offsets[1])
    return failed(
        fmt::format("data_offsets [{}, {}] are not ascending", raw.offsets[0], raw.offsets[1]));
  const std::optional<std::uint64_t> bytes = safetensors_bytes(*raw.type, raw.extents);
  if (!bytes) return failed("its shape has no whole number of bytes that fits 64 bits");
  if (*bytes != raw.offsets[1] - raw.offsets[0])
    return failed(fmt::format("{} of its shape needs {} bytes; its data_offsets hold {}",
                              raw.type->name, *bytes, raw.offsets[1] - raw.offsets[0]));
  return {};
}

// Each tensor must begin where the one before ends, and the last end where the file does.
Status check_layout(const std::vector<RawEntry>& entries, std::uint64_t data_bytes) {
  std::vector<const RawEntry*> order;
  order.reserve(entries.size());
  for (const RawEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const RawEntry* a, const RawEntry* b) { return a->offsets < b->offsets; });
  std::uint64_t end = 0;
  for (const RawEntry* entry : order) {
    if (entry->offsets[0] != end)
      return corrupt(fmt::format("tensor \"{}\" begins at {}, {} the end {} of what is before it",
                                 shown(entry->name), entry->offsets[0],
                                 entry->offsets[0] < end ? "overlapping" : "leaving a hole after",
                                 end));
    if (Status status = check_extent(*entry); !status.ok()) return status;
    end = entry->offsets[1];
  }
  if (end != data_bytes)
    return corrupt(fmt::format("the tensors take {} bytes; the file has {}", end, data_bytes));
  return {};
}

Status check_names(const std::vector<SafetensorsEntry>& sorted) {
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i].name == sorted[i - 1].name)
      return corrupt(fmt::format("tensor \"{}\" is there twice", shown(sorted[i].name)));
  return {};
}

}  // namespace

Result<SafetensorsContents> parse_safetensors(std::span<const std::byte> file) {
  const Result<std::size_t> length = header_length(file);
  if (!length.ok()) return length.status();
  const char* text = reinterpret_cast<const char*>(file.data()) + kSafetensorsPrefix;
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text, text + *length, &reader)) return corrupt(reader.failure);

  const std::span<const std::byte> data = file.subspan(kSafetensorsPrefix + *length);
  if (Status status = check_layout(reader.entries, data.size()); !status.ok()) return status;
  SafetensorsContents contents;
  contents.metadata = std::move(reader.metadata);
  contents.entries.reserve(reader.entries.size());
  for (RawEntry& raw : reader.entries)
    contents.entries.push_back({std::move(raw.name), raw.type->name, raw.type->type,
                                std::move(raw.extents),
                                data.subspan(raw.offsets[0], raw.offsets[1] - raw.offsets[0])});
  std::sort(contents.entries.begin(), contents.entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  if (Status status = check_names(contents.entries); !status.ok()) return status;
  return contents;
}

class SafetensorsFile::Mapping {
 public:
  static Result<std::shared_ptr<const Mapping>> of(const std::string& path) {
    // Opening a pipe that nobody writes must not wait; of files O_NONBLOCK changes nothing.
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return system_failure("open", path);
    Result<std::shared_ptr<const Mapping>> mapping = of_descriptor(file, path);
    ::close(file);
    return mapping;
  }

  explicit Mapping(std::span<const std::byte> bytes) : bytes_(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static Result<std::shared_ptr<const Mapping>> of_descriptor(int file, const std::string& path) {
    struct stat about {};
    if (::fstat(file, &about) != 0) return system_failure("stat", path);
    if (!S_ISREG(about.st_mode))
      return Status(StatusCode::system_error, fmt::format("{}: not a regular file", path));
    const auto size = static_cast<std::size_t>(about.st_size);
    if (size == 0) return std::make_shared<const Mapping>(std::span<const std::byte>());
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) return system_failure("map", path);
    return std::make_shared<const Mapping>(
        std::span<const std::byte>(static_cast<const std::byte*>(memory), size));
  }

  std::span<const std::byte> bytes_;
};

SafetensorsFile::SafetensorsFile(std::string path, std::shared_ptr<const Mapping> mapping,
                                 std::shared_ptr<const SafetensorsContents> contents)
    : path_(std::move(path)), mapping_(std::move(mapping)), contents_(std::move(contents)) {}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const Result<std::shared_ptr<const Mapping>> mapping = Mapping::of(path);
  if (!mapping.ok()) return mapping.status();
  Result<SafetensorsContents> contents = parse_safetensors((*mapping)->bytes());
  if (!contents.ok()) return contents.status().with_context(path);
  return SafetensorsFile(path, *mapping,
                         std::make_shared<const SafetensorsContents>(std::move(contents).value()));
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto all = entries();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const SafetensorsEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found == all.end() || found->name != name ? nullptr : &*found;
}

}  // namespace tutti::training
