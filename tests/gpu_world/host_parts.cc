// host_parts.cc: see host_device.hpp: memory of the device for tests that other processes have, as
// a whole and part by part. A part is a file in memory, so that what stands for another process has
// it at addresses of its own, and real descriptors travel.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "gpu_world/host_device.hpp"

namespace tutti::runtime::gpu {

struct HostPart {
  base::Descriptor file;
  std::size_t bytes = 0;
};

// Shared by all who have a part of it, as a device's memory is.
struct PartedMemory {
  PartedMemory() = default;
  PartedMemory(const PartedMemory&) = delete;
  PartedMemory& operator=(const PartedMemory&) = delete;
  ~PartedMemory() { ::munmap(begin, bytes); }

  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
  bool by_handle = false;
  std::vector<HostPart> parts;
};

namespace {

std::byte* reserved(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

bool map_at(std::byte* where, std::size_t bytes, int file) {
  return ::mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
         MAP_FAILED;
}

base::Descriptor duplicate(int number) {
  return base::Descriptor(::fcntl(number, F_DUPFD_CLOEXEC, 0));
}

}  // namespace

// Those parts of a piece that somebody wants to share.
class HostDevice::OwnParts final : public SharedParts {
 public:
  OwnParts(HostDevice& device, std::shared_ptr<const PartedMemory> memory, std::size_t first,
           std::size_t count)
      : device_(device), memory_(std::move(memory)), first_(first), count_(count) {
    ++device_.shared_parts_;
  }
  ~OwnParts() override { --device_.shared_parts_; }

  std::size_t count() const override { return count_; }
  std::size_t bytes(std::size_t part) const override { return at(part).bytes; }
  Result<PartKey> key(std::size_t part) const override {
    if (device_.fails_key_.exchange(false))
      return Status(StatusCode::system_error, "no key, as a test wants it");
    PartKey key;
    const int number = at(part).file.number();
    if (memory_->by_handle)
      std::memcpy(key.handle.data(), &number, sizeof number);
    else
      key.descriptor = duplicate(number);
    return key;
  }

 private:
  const HostPart& at(std::size_t part) const { return memory_->parts[first_ + part]; }

  HostDevice& device_;
  const std::shared_ptr<const PartedMemory> memory_;
  const std::size_t first_;
  const std::size_t count_;
};

// Counts as one import, as a piece that is imported as a whole does.
class HostDevice::Imported final : public ForeignParts {
 public:
  Imported(HostDevice& device, std::byte* begin, std::size_t bytes)
      : device_(device), begin_(begin), bytes_(bytes) {
    ++device_.imports_;
  }
  ~Imported() override {
    device_.forget([this] { ::munmap(begin_, bytes_); });
  }

  std::byte* begin() const override { return begin_; }
  Status add(const PartKey& key, std::size_t bytes) override {
    int number = key.descriptor.number();
    if (number < 0) std::memcpy(&number, key.handle.data(), sizeof number);
    struct stat status = {};
    if (::fstat(number, &status) != 0 || status.st_size != static_cast<off_t>(bytes) ||
        !map_at(begin_ + used_, bytes, number))
      return Status(StatusCode::unsupported, "that is no part of a device's memory");
    used_ += bytes;
    return Status();
  }
  Status open() override {
    if (device_.importing_) return Status();
    return Status(StatusCode::unsupported,
                  fmt::format("{} cannot load and store another's memory", device_.name()));
  }

 private:
  HostDevice& device_;
  std::byte* const begin_;
  const std::size_t bytes_;
  std::size_t used_ = 0;
};

std::byte* HostDevice::allocate_parts(const std::vector<std::size_t>& bytes, bool by_handle) {
  auto made = std::make_shared<PartedMemory>();
  for (const std::size_t part : bytes) made->bytes += part;
  made->begin = reserved(made->bytes);
  made->by_handle = by_handle;
  std::byte* where = made->begin;
  for (const std::size_t part : bytes) {
    base::Descriptor file(::memfd_create("host-part", MFD_CLOEXEC));
    if (!file.open() || ::ftruncate(file.number(), static_cast<off_t>(part)) != 0 ||
        !map_at(where, part, file.number()))
      return nullptr;
    where += part;
    made->parts.push_back({std::move(file), part});
  }
  const std::lock_guard lock(mutex_);
  made->id = ++last_id_;
  parted_.push_back(made);
  return made->begin;
}

void HostDevice::deallocate_parts(std::byte* memory) {
  wait_for_all();
  const std::lock_guard lock(mutex_);
  std::erase_if(parted_, [&](const auto& piece) { return piece->begin == memory; });
}

Result<SharedMemory> HostDevice::share_memory(const std::byte* memory, std::size_t bytes) {
  if (!is_reachable(memory, bytes))
    return Status(StatusCode::unsupported,
                  "other processes can have memory of cudaMalloc only, as a test wants it");
  SharedMemory shared;
  const std::lock_guard lock(mutex_);
  if (const auto found = made_.upper_bound(memory);
      found != made_.end() && found->second.begin <= memory) {
    shared.allocation = found->second;
    shared.handle = handle_of(found->second);
    return shared;
  }
  for (const auto& piece : parted_) {
    if (memory < piece->begin || memory >= piece->begin + piece->bytes) continue;
    std::size_t first = 0;
    std::byte* begin = piece->begin;
    for (; begin + piece->parts[first].bytes <= memory; ++first) begin += piece->parts[first].bytes;
    std::size_t count = 0;
    std::size_t together = 0;
    while (begin + together < memory + bytes && first + count < piece->parts.size())
      together += piece->parts[first + count++].bytes;
    shared.allocation = {begin, together, piece->id};
    shared.parts = std::make_shared<OwnParts>(*this, piece, first, count);
    return shared;
  }
  return Status(StatusCode::system_error, "this memory is not the device's");
}

Result<std::unique_ptr<ForeignParts>> HostDevice::reserve_parts(std::size_t bytes) {
  if (!options_.reaches_peers)
    return Status(StatusCode::unsupported,
                  fmt::format("{} cannot load and store another's memory", name()));
  std::byte* const begin = reserved(bytes);
  if (begin == nullptr) return Status(StatusCode::unsupported, "there are no such addresses left");
  return std::unique_ptr<ForeignParts>(std::make_unique<Imported>(*this, begin, bytes));
}

}  // namespace tutti::runtime::gpu
