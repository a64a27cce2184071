// Makes the memory, and writes what is written seldom.
#include "runtime/flight/recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace tutti::runtime::flight {
namespace {

template <std::size_t kWords>
void put_text(std::array<std::uint64_t, kWords>& values, std::size_t from, std::string_view text) {
  auto* bytes = reinterpret_cast<char*>(values.data() + from);
  std::copy_n(text.data(), std::min(text.size(), (kWords - from) * sizeof(values[0])), bytes);
}

std::uint64_t word_of(Rank rank) { return static_cast<std::uint64_t>(std::int64_t{rank}); }

// -1 where the kernel does not do it. The size is sealed so that readers can map it without fear.
int make_file() {
  const int file = memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(sizeof(File))) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    return file;
  close(file);
  return -1;
}

}  // namespace

std::shared_ptr<Recorder> Recorder::of_process() {
  static std::mutex mutex;               // the process has one; its communicators meet nowhere else
  static std::weak_ptr<Recorder> known;  // kept by them
  std::lock_guard lock(mutex);
  std::shared_ptr<Recorder> recorder = known.lock();
  if (recorder && !recorder->inherited()) return recorder;
  recorder = make();
  known = recorder;
  return recorder;
}

std::unique_ptr<Recorder> Recorder::make() {
  int file = make_file();
  const int flags = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory != MAP_FAILED)
    // Zeros are what every word begins with; constructing them would touch all pages.
    return std::unique_ptr<Recorder>(
        new Recorder(std::launder(reinterpret_cast<File*>(memory)), file));
  if (file >= 0) close(file);
  return nullptr;
}

Recorder::Recorder(File* file, int descriptor)
    : file_(file), descriptor_(descriptor), process_(getpid()) {
  Header& header = file_->header;
  const Moment now = Moment::now();
  header.file_bytes.store(sizeof(File), std::memory_order_relaxed);
  header.process.store(static_cast<std::uint64_t>(process_), std::memory_order_relaxed);
  header.made_ticks.store(now.ticks, std::memory_order_relaxed);
  header.made_ns.store(now.ns, std::memory_order_relaxed);
  header.magic.store(kMagic, std::memory_order_release);
}

Recorder::~Recorder() {
  munmap(file_, sizeof(File));
  if (descriptor_ >= 0) close(descriptor_);
}

bool Recorder::inherited() const { return process_ != getpid(); }

Slot* Recorder::take() {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < kSlotsMax; ++i) {
    if (taken_[i]) continue;
    taken_[i] = true;
    return &file_->slots[i];
  }
  file_->header.left_out.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

void Recorder::give_back(Slot& slot) {
  std::lock_guard lock(mutex_);
  taken_[static_cast<std::size_t>(&slot - file_->slots)] = false;
}

Log::Log(std::shared_ptr<Recorder> recorder, const Identity& identity)
    : recorder_(std::move(recorder)) {
  if (recorder_) slot_ = recorder_->take();
  if (slot_ == nullptr) return;
  // What an earlier communicator left must not pass for ours.
  slot_->begun.store(0, std::memory_order_relaxed);
  slot_->wait.write({});
  slot_->failure.write({});
  slot_->memory.write({});
  for (auto& call : slot_->calls) call.version.store(0, std::memory_order_relaxed);
  Section<kIdentityWords>::Values values{};
  values[kJob] = identity.job;
  values[kContext] = identity.context;
  values[kRank] = word_of(identity.rank);
  values[kSize] = word_of(identity.size);
  values[kMade] = ticks();
  put_text(values, kTransport, identity.transport);
  slot_->identity.write(values);
  slot_->live.store(1, std::memory_order_release);
}

Log::~Log() {
  // The memory is shared with a parent that forked us, and speaks of the parent.
  if (slot_ == nullptr || recorder_->inherited()) return;
  slot_->live.store(0, std::memory_order_release);
  recorder_->give_back(*slot_);
}

void Log::wait(std::span<const Rank> ranks, std::string_view what, std::uint64_t since) {
  if (slot_ == nullptr) return;
  waits_ = true;
  decltype(slot_->wait)::Values values{};
  values[kWaitCall] = begun_;
  values[kWaitSince] = since;
  for (std::size_t i = 0; i < std::min(ranks.size(), kAwaitedMax); ++i)
    values[kWaitRanks + i] = word_of(ranks[i]) + 1;
  put_text(values, kWaitText, what);
  slot_->wait.write(values);
}

void Log::clear_wait() {
  if (!waits_) return;
  waits_ = false;
  slot_->wait.write({});
}

void Log::fail(const Status& status) {
  if (slot_ == nullptr) return;
  decltype(slot_->failure)::Values values{};
  values[kFailureCode] = static_cast<std::uint64_t>(status.code());
  values[kCulprit] = word_of(status.culprit());
  values[kFailedAt] = ticks();
  put_text(values, kFailureText, status.message());
  slot_->failure.write(values);
}

void Log::memory(std::size_t transport, std::size_t scratch, std::size_t plans,
                 std::size_t queued) {
  if (slot_ != nullptr) slot_->memory.write({transport, scratch, plans, queued});
}

}  // namespace tutti::runtime::flight
