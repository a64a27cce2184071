// safetensors_output.cc: writing; see safetensors.hpp. A file appears under its name only when all
// of it is on the disk.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "training/architecture/bounded_json.hpp"
#include "training/files/whole_file.hpp"
#include "training/model/safetensors.hpp"
#include "training/model/safetensors_types.hpp"

namespace tutti::training {
namespace {

using Json = nlohmann::ordered_json;

Status invalid(std::string text) { return {StatusCode::invalid_argument, std::move(text)}; }

std::string temporary(const std::string& path) { return path + ".tmp"; }

// Wide elements first, as the reference has them: then each tensor is aligned to its elements.
bool comes_before(const SafetensorsPlan& a, const SafetensorsPlan& b) {
  const std::size_t wide_a = size_of(a.type), wide_b = size_of(b.type);
  return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
}

// So that a disk that is too small says so now. Not every file system can.
Status set_aside(int file, std::string_view path, std::uint64_t bytes) {
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) return system_failure("extend", path);
  if (bytes == 0 || ::fallocate(file, 0, 0, static_cast<off_t>(bytes)) == 0) return {};
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) return system_failure("extend", path);
  return {};
}

}  // namespace

Result<SafetensorsLayout> SafetensorsLayout::make(std::vector<SafetensorsPlan> tensors,
                                                  const SafetensorsMetadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), comes_before);
  SafetensorsLayout made;
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (const SafetensorsPlan& tensor : tensors) {
    const SafetensorsType& type = safetensors_type_of(tensor.type);
    const std::optional<std::uint64_t> bytes = safetensors_bytes(type, tensor.extents);
    if (!bytes || end + *bytes > std::uint64_t{1} << 60)
      return invalid(fmt::format("tensor \"{}\": its extents are negative or beyond all disks",
                                 shown(tensor.name)));
    if (tensor.name == "__metadata__") return invalid("a tensor cannot be named \"__metadata__\"");
    if (!made.ranges_.emplace(tensor.name, Range{end, *bytes}).second)
      return invalid(fmt::format("tensor \"{}\" is there twice", shown(tensor.name)));
    header.push_back(
        {tensor.name,
         {{"dtype", type.name}, {"shape", tensor.extents}, {"data_offsets", {end, end + *bytes}}}});
    end += *bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    return invalid("a name or the metadata of a safetensors file is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kSafetensorsHeaderMax)
    return invalid(fmt::format("a safetensors header of {} bytes; at most {} are allowed",
                               text.size(), kSafetensorsHeaderMax));
  for (std::size_t i = 0; i < kSafetensorsPrefix; ++i)
    made.header_ += static_cast<char>(text.size() >> (8 * i) & 0xff);
  made.header_ += text;
  for (auto& [name, range] : made.ranges_) range.offset += made.header_.size();
  made.file_bytes_ = made.header_.size() + end;
  return made;
}

std::optional<SafetensorsLayout::Range> SafetensorsLayout::find(std::string_view name) const {
  const auto found = ranges_.find(name);
  return found == ranges_.end() ? std::nullopt : std::optional<Range>(found->second);
}

// Closes, and removes what was not committed.
class SafetensorsOutput::Descriptor {
 public:
  Descriptor(int file, std::string path) : file_(file), path_(std::move(path)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    ::close(file_);
    if (remove_) ::unlink(path_.c_str());
  }

  int file() const { return file_; }
  const std::string& path() const { return path_; }
  void set_remove(bool remove) { remove_ = remove; }

 private:
  int file_;
  std::string path_;
  bool remove_ = false;
};

SafetensorsOutput::SafetensorsOutput(std::string path, SafetensorsLayout layout,
                                     std::unique_ptr<Descriptor> file)
    : path_(std::move(path)), layout_(std::move(layout)), file_(std::move(file)) {}

SafetensorsOutput::SafetensorsOutput(SafetensorsOutput&&) noexcept = default;
SafetensorsOutput& SafetensorsOutput::operator=(SafetensorsOutput&&) noexcept = default;
SafetensorsOutput::~SafetensorsOutput() = default;

Result<SafetensorsOutput> SafetensorsOutput::create(const std::string& path,
                                                    SafetensorsLayout layout) {
  const std::string name = temporary(path);
  const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return system_failure("create", name);
  auto descriptor = std::make_unique<Descriptor>(file, name);
  descriptor->set_remove(true);
  if (Status status = set_aside(file, name, layout.file_bytes()); !status.ok()) return status;
  if (Status status = write_at(file, name, 0, bytes_of(layout.header())); !status.ok())
    return status;
  return SafetensorsOutput(path, std::move(layout), std::move(descriptor));
}

Result<SafetensorsOutput> SafetensorsOutput::join(const std::string& path,
                                                  SafetensorsLayout layout) {
  const std::string name = temporary(path);
  const int file = ::open(name.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return system_failure("open", name);
  auto descriptor = std::make_unique<Descriptor>(file, name);
  struct stat about {};
  if (::fstat(file, &about) != 0) return system_failure("stat", name);
  if (static_cast<std::uint64_t>(about.st_size) != layout.file_bytes())
    return Status(StatusCode::system_error,
                  fmt::format("{} has {} bytes, not the {} of the layout: another file", name,
                              about.st_size, layout.file_bytes()));
  return SafetensorsOutput(path, std::move(layout), std::move(descriptor));
}

Status SafetensorsOutput::write(std::string_view name, std::uint64_t at,
                                std::span<const std::byte> bytes) {
  const std::optional<SafetensorsLayout::Range> range = layout_.find(name);
  if (!range) return invalid(fmt::format("{} has no tensor \"{}\"", path_, shown(name)));
  if (at > range->bytes || bytes.size() > range->bytes - at)
    return invalid(fmt::format("{}: bytes {} + {} of tensor \"{}\", which has {}", path_, at,
                               bytes.size(), shown(name), range->bytes));
  return write_at(file_->file(), file_->path(), range->offset + at, bytes);
}

Status SafetensorsOutput::sync() {
  return ::fsync(file_->file()) == 0 ? Status() : system_failure("sync", file_->path());
}

Status SafetensorsOutput::commit() {
  if (Status status = sync(); !status.ok()) return status;
  if (Status status = rename_durably(temporary(path_), path_); !status.ok()) return status;
  file_->set_remove(false);
  return {};
}

Status write_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                         const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsPlan> plans;
  for (const NamedBytes& tensor : tensors) plans.push_back(tensor.plan);
  Result<SafetensorsLayout> layout = SafetensorsLayout::make(std::move(plans), metadata);
  if (!layout.ok()) return layout.status().with_context(path);
  for (const NamedBytes& tensor : tensors)
    if (const std::uint64_t needed = layout->find(tensor.plan.name)->bytes;
        tensor.bytes.size() != needed)
      return invalid(fmt::format("{}: tensor \"{}\" has {} bytes; its extents need {}", path,
                                 shown(tensor.plan.name), tensor.bytes.size(), needed));
  Result<SafetensorsOutput> output = SafetensorsOutput::create(path, std::move(layout).value());
  if (!output.ok()) return output.status();
  for (const NamedBytes& tensor : tensors)
    if (Status status = output->write(tensor.plan.name, 0, tensor.bytes); !status.ok())
      return status;
  return output->commit();
}

}  // namespace tutti::training
