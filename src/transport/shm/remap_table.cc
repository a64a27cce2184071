// How memory comes, is looked for and goes, and how pages are moved.
#include "transport/shm/remap_table.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/assert.hpp"
#include "base/try.hpp"

namespace tutti::transport::shm {
namespace {

// Where memory begins that is still in its place, in the same file and not before what was moved.
std::uint64_t next_in_place(const MappedRange& moved) {
  MapsReader maps;
  MappedRange range;
  while (maps.next(range))
    if (range.shared && range.inode == moved.inode && range.begin == range.offset &&
        range.begin >= moved.offset)
      return range.begin;
  return kAddressEnd;
}

[[noreturn]] void* serve_forever(void* table) { static_cast<RemapTable*>(table)->serve(); }

// The thread takes no signals: those are the program's business, on its own threads.
bool begin_thread(RemapTable* table) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool made = pthread_create(&thread, nullptr, serve_forever, table) == 0;
  if (made) {
    pthread_setname_np(thread, "tutti-memory");
    pthread_detach(thread);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

// What a range must be for its pages to be moved.
Reason why_not(const MappedRange& range) {
  if (range.inode != 0 || range.shared) return "it belongs to a file, or is shared already";
  if (!range.readable || !range.writable || range.executable)
    return "it is read-only or executable";
  const bool ordinary =
      range.name.empty() || range.name == "[heap]" || range.name.substr(0, 6) == "[anon:";
  return ordinary ? nullptr : "it is a stack, or the system's own";
}

// Whoever moves memory must not wait for himself: his stack, also where a program made it itself,
// and what the C library keeps for his thread (errno) stay where they are.
bool is_own(std::uintptr_t begin, std::uintptr_t end) {
  constexpr std::size_t kFramesMost = std::size_t{64} << 10;
  const auto near = [&](const void* memory, std::size_t below) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    return begin < address + kPageBytes && address - below < end;
  };
  return near(__builtin_frame_address(0), kFramesMost) || near(&errno, kPageBytes);
}

}  // namespace

// ---- Start ----

Status RemapTable::start() {
  rlimit longest = {};
  if (getrlimit(RLIMIT_FSIZE, &longest) != 0 || longest.rlim_cur < kAddressEnd)
    return Status(StatusCode::unsupported,
                  "memory in use cannot be shared: the size of files is limited (ulimit -f)");
  TUTTI_TRY(watch_.open());
  TUTTI_TRY(hold_.open());
  if (begin_thread(this)) return {};
  return Status(StatusCode::unsupported, "memory in use cannot be shared: no thread for the watch");
}

// ---- Memory comes ----

Reason RemapTable::add(std::uintptr_t begin, std::uintptr_t end, bool patient) {
  const std::lock_guard lock(mutex_);
  if (forks_.load() != 0) return "the process is forking at this moment";
  if (!watch_.settled()) return "memory is being unmapped at this moment";
  if (patient && !patience_.over(begin)) return "it could not be moved, or did not stay, before";
  if (status_kib("VmLck:") != 0 || status_kib("VmPin:") != 0)
    return "the process has locked or pinned memory, and which that is cannot be told";
  const Patience::Clock::time_point start = Patience::Clock::now();
  bool grew = false;
  const Reason refused = add_gaps(begin, end, grew);
  if (refused != nullptr)
    patience_.refused(begin);
  else if (grew)
    patience_.moved(begin, start, Patience::Clock::now());
  return refused;
}

// What of [begin, end) is in no file yet; `grew`: there was some.
Reason RemapTable::add_gaps(std::uintptr_t begin, std::uintptr_t end, bool& grew) {
  Reason refused = use_file();
  for (std::uintptr_t at = begin; at < end && refused == nullptr;) {
    const Extent* next = extents_.at_or_after(at);
    const std::uintptr_t stop = next == nullptr ? end : std::min(end, next->begin);
    const bool gap = at < stop;
    grew = grew || gap;
    if (gap)
      refused = add_gap(at, stop);
    else if (next->file != current_)
      refused = "part of it lies in a file that takes no more memory";
    at = gap ? stop : next->end;
  }
  return refused;
}

Reason RemapTable::use_file() {
  if (current_ >= 0) return nullptr;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].file.open()) continue;
    Result<Descriptor> made = make_memory_file(kAddressEnd, "tutti-remapped");
    struct stat status = {};
    if (!made.ok() || fstat(made->number(), &status) != 0) return "no memory file could be made";
    files_[i] = {std::move(made).value(), ++last_region_, status.st_ino};
    current_ = static_cast<int>(i);
    return nullptr;
  }
  return "too many calls have failed that used such memory";
}

// All of [begin, end) is of no extent.
Reason RemapTable::add_gap(std::uintptr_t begin, std::uintptr_t end) {
  while (begin < end) {
    Kind kind;
    if (Reason refused = look_at(begin, kind)) return refused;
    // Whole huge pages at a time.
    const std::uintptr_t most = (begin + kMovedAtOnce) / kHugePageBytes * kHugePageBytes;
    const std::uintptr_t stop = std::min({kind.end, end, most});
    if (Reason refused = kind.in_file ? keep(begin, stop) : move(begin, stop)) return refused;
    if (kind.of_break) note_break(begin, stop);
    begin = stop;
  }
  return nullptr;
}

void RemapTable::note_break(std::uintptr_t begin, std::uintptr_t end) {
  break_begin_.store(std::min(begin, break_begin_.load()), std::memory_order_release);
  break_end_.store(std::max(end, break_end_.load()), std::memory_order_release);
}

bool RemapTable::is_current(const MappedRange& range) const {
  return range.shared && range.offset == range.begin &&
         range.inode == files_[static_cast<std::size_t>(current_)].inode;
}

bool RemapTable::owns(const MappedRange& range) const {
  return range.shared && range.inode != 0 &&
         std::any_of(files_.begin(), files_.end(),
                     [&](const File& file) { return file.inode == range.inode; });
}

// What is mapped at an address, if it can be shared. Memory above a small inaccessible range looks
// like the stack of a thread.
Reason RemapTable::look_at(std::uintptr_t address, Kind& kind) const {
  constexpr std::size_t kGuardMost = std::size_t{64} << 10;
  MapsReader maps;
  MappedRange range;
  std::uintptr_t guard_end = 0;
  while (maps.next(range) && range.end <= address) {
    const bool guard = !range.readable && !range.writable && !range.shared;
    guard_end = guard && range.end - range.begin <= kGuardMost ? range.end : 0;
  }
  if (range.begin > address || range.end <= address) return "some of it is not mapped";
  kind = {range.end, is_current(range), range.name == "[heap]"};
  if (kind.in_file) return nullptr;
  if (guard_end == range.begin) return "it looks like the stack of a thread";
  return why_not(range);
}

// Moves memory of no file into the current one, at the same address.
Reason RemapTable::move(std::uintptr_t begin, std::uintptr_t end) {
  const std::size_t bytes = end - begin;
  if (!extents_.has_room()) return "too many pieces of memory are shared";
  if (is_own(begin, end)) return "the stack, or data of the thread, lies there or beside it";
  Result<Mapping> fresh =
      map_part(descriptor(current_).number(), begin, bytes, Pages::when_touched);
  const Extent whole = {begin, end, begin, current_};
  if (!fresh.ok() || !populate(*fresh)) {
    drop_pages(whole);
    return "there is not that much memory";
  }
  if (!make_present(at_address(begin), bytes) || !hold_.begin(begin, bytes)) {
    drop_pages(whole);
    return "something else has its hand on it (userfaultfd)";
  }
  copy_pages(fresh->base(), at_address(begin), bytes);
  if (!put_in_place(*fresh, at_address(begin))) {
    hold_.give_up(begin, bytes);
    drop_pages(whole);
    return "it could not be mapped";
  }
  hold_.end_replaced(begin, bytes);
  return keep(begin, end);
}

// Takes what lies in the current file into the table.
Reason RemapTable::keep(std::uintptr_t begin, std::uintptr_t end) {
  const bool watched = watch_.begin(begin, end - begin);
  if (watched && extents_.insert({begin, end, begin, current_})) {
    in_use_.store(true, std::memory_order_release);
    return nullptr;
  }
  // Nobody will hear when it goes: so nothing else may come to lie there in this file.
  in_use_.store(true, std::memory_order_release);
  current_ = -1;
  return "it cannot be watched";
}

// ---- Memory is looked for ----

std::optional<SharedBlock> RemapTable::find(std::uintptr_t begin, std::uintptr_t end) {
  const std::lock_guard lock(mutex_);
  const Extent* found = extents_.at_or_after(begin);
  if (found == nullptr || found->begin > begin || found->end < end) return std::nullopt;
  if (forks_.load() != 0 || !watch_.settled()) return std::nullopt;
  const File& file = files_[static_cast<std::size_t>(found->file)];
  return SharedBlock{.file = file.file.number(),
                     .region = file.region,
                     .base = at_address(found->begin - found->offset),
                     .bytes = kAddressEnd,
                     .sparse = true};
}

bool RemapTable::exists(std::uint32_t region) {
  const std::lock_guard lock(mutex_);
  return std::any_of(files_.begin(), files_.end(),
                     [&](const File& file) { return file.file.open() && file.region == region; });
}

std::size_t RemapTable::bytes() {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < extents_.size(); ++i) sum += extents_[i].bytes();
  return sum;
}

// ---- Memory goes ----

void RemapTable::withdraw(std::uintptr_t begin, std::uintptr_t end) {
  const std::lock_guard lock(mutex_);
  Extent piece;
  while (extents_.take(begin, end, piece)) {
    generation_.fetch_add(1, std::memory_order_release);
    take_back(piece);
    // A peer that was given up may store into any page of the file. Its pages stay as they are:
    // another one may still be reading them.
    retire(piece.file);
  }
}

// Gives memory back to this process alone. Nobody frees it meanwhile: it is of a call.
void RemapTable::take_back(const Extent& extent) {
  const std::size_t bytes = extent.bytes();
  Mapping fresh = private_memory(bytes);
  TUTTI_ASSERT(static_cast<bool>(fresh), "memory for pages that a lost peer may write to");
  watch_.end(extent.begin, bytes);
  TUTTI_ASSERT(hold_.begin(extent.begin, bytes), "pages that were watched can be held");
  copy_pages(fresh.base(), at_address(extent.begin), bytes);
  TUTTI_ASSERT(put_in_place(fresh, at_address(extent.begin)), "pages can be replaced");
  hold_.end_replaced(extent.begin, bytes);
}

// ---- Forks ----

// A child must not share what it believes to be its own, from its first instruction on: before the
// program's next step the C library repairs the allocator's locks in it. So nothing is shared while
// a process forks. What others, who go on, free meanwhile is not there to be taken back.
void RemapTable::before_fork() {
  generation_.fetch_add(1);  // who remembers, asks; who asks from now on, finds nothing
  { const std::lock_guard lock(mutex_); }  // who had not heard of the fork is done
  if (!in_use()) return;
  wait_for_calls();
  const std::lock_guard lock(mutex_);
  Extent extent;
  while (extents_.take(0, kAddressEnd, extent)) {
    for (std::uintptr_t at = extent.begin; at < extent.end;) {
      const std::uintptr_t next = (at + kHugePageBytes) / kHugePageBytes * kHugePageBytes;
      const Extent piece = extent.part(at, next);
      take_back_what_is_there(piece);
      if (piece.file == current_) drop_pages(piece);
      at = piece.end;
    }
  }
  close_unused();
}

// Peers may be storing into the memory of a call: it cannot be taken back, nor be shared with a
// child. Calls that other threads drive end soon.
void RemapTable::wait_for_calls() const {
  constexpr int kPatienceMs = 1000;
  for (int ms = 0; uses_.load() != 0; ++ms) {
    if (ms == kPatienceMs) {
      constexpr std::string_view kWords =
          "tutti error: fork() while a collective uses plain buffers that are shared: wait for it "
          "first, or do without TUTTI_SHARE_HEAP\n";
      [[maybe_unused]] const ssize_t written = write(2, kWords.data(), kWords.size());
      std::abort();
    }
    poll(nullptr, 0, 1);
  }
}

// Parts of an extent may be gone that nobody has told of yet: whoever unmapped them waits for the
// lock. The others must not lose theirs.
void RemapTable::take_back_what_is_there(Extent extent) {
  constexpr int kTriesMost = 10'000;
  for (int tries = 0;; ++tries) {
    const Extent left = first_left(extent);
    if (left.bytes() == 0) return;
    if (take_back_whole(left)) extent = extent.part(left.end, extent.end);
    // Otherwise some of it went just now, and there is less of it each time.
    TUTTI_ASSERT(tries < kTriesMost, "memory that a forked child must not share can be replaced");
  }
}

// False, and nothing is lost, when some of it is not there any more. Looks for it again last of
// all, because nobody hears by then when it goes.
bool RemapTable::take_back_whole(const Extent& extent) {
  const std::size_t bytes = extent.bytes();
  Mapping fresh = private_memory(bytes);
  TUTTI_ASSERT(static_cast<bool>(fresh), "memory for what a forked child must not share");
  watch_.end(extent.begin, bytes);
  if (!hold_.begin(extent.begin, bytes)) return false;
  // From the file, which is there in any case.
  const bool copied =
      read_pages(fresh.base(), descriptor(extent.file).number(), extent.offset, bytes);
  TUTTI_ASSERT(copied, "pages of a memory file can be read");
  if (first_left(extent).bytes() == bytes && put_in_place(fresh, at_address(extent.begin))) {
    hold_.end_replaced(extent.begin, bytes);
    return true;
  }
  hold_.give_up(extent.begin, bytes);
  return false;
}

// The first piece of an extent that still lies where it did, in one mapping; empty when there is
// none.
Extent RemapTable::first_left(const Extent& extent) const {
  const std::uint64_t inode = files_[static_cast<std::size_t>(extent.file)].inode;
  MapsReader maps;
  MappedRange range;
  while (maps.next(range) && range.begin < extent.end)
    if (range.end > extent.begin && range.shared && range.inode == inode &&
        range.offset - range.begin == extent.offset - extent.begin)
      return extent.part(range.begin, range.end);
  return {};
}

// ---- Files ----

void RemapTable::retire(int file) {
  if (file == current_) current_ = -1;
  close_unused();
}

void RemapTable::close_unused() {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const int file = static_cast<int>(i);
    if (files_[i].file.open() && file != current_ && !extents_.uses(file)) files_[i] = {};
  }
}

void RemapTable::drop_pages(const Extent& extent) {
  fallocate(descriptor(extent.file).number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(extent.offset), static_cast<off_t>(extent.bytes()));
}

// ---- The watch ----

// Answers that are remembered without the lock end before the thread that unmaps goes on, and
// those who ask under the lock wait until the table is right.
void RemapTable::serve() {
  for (;;) {
    watch_.wait();
    const std::lock_guard lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
    bring_home_moved();
    hear(watch_.next());
  }
}

void RemapTable::hear(const WatchEvent& event) {
  switch (event.kind) {
    case WatchEvent::Kind::unmapped:
      return forget(event.begin, event.end);
    case WatchEvent::Kind::moved:
      bring_home_moved();  // as a rule there is none left
      return forget(event.begin, event.end);
    case WatchEvent::Kind::emptied:
      return empty(event);
    case WatchEvent::Kind::touched:
      return watch_.show(event.begin);
    case WatchEvent::Kind::nothing:
      return;
  }
}

void RemapTable::forget(std::uintptr_t begin, std::uintptr_t end) {
  Extent piece;
  while (extents_.take(begin, end, piece)) {
    patience_.lost(piece.begin, Patience::Clock::now());
    if (piece.file == current_) drop_pages(piece);
  }
  close_unused();
}

// Watched memory that is not where its file says. (What is not watched a rank of this very process
// may have imported.)
bool RemapTable::find_moved(MappedRange& moved) const {
  MapsReader maps;
  while (maps.next(moved))
    if (moved.begin != moved.offset && owns(moved) && hold_.is_watched(moved.begin, kPageBytes))
      return true;
  return false;
}

// What realloc() moved lies at other addresses than offsets, and where it grew it maps what others
// have in the file. The thread that moved it waits, and nobody else knows the new address yet: it
// gets memory of its own there, zeros where it grew.
void RemapTable::bring_home_moved() {
  MappedRange moved;
  while (find_moved(moved)) {
    const std::size_t bytes = moved.end - moved.begin;
    Mapping fresh = private_memory(bytes);
    TUTTI_ASSERT(static_cast<bool>(fresh), "memory for a buffer that realloc moved");
    // First, or to touch it would wait for us.
    watch_.end(moved.begin, bytes);
    copy_pages(fresh.base(), at_address(moved.begin),
               std::min<std::uint64_t>(bytes, next_in_place(moved) - moved.offset));
    TUTTI_ASSERT(put_in_place(fresh, at_address(moved.begin)), "pages can be replaced");
  }
}

// Whoever looks waits for us, because there are no entries in the page tables.
void RemapTable::empty(const WatchEvent& event) {
  for (std::uintptr_t at = event.begin; at < event.end;) {
    const Extent* extent = extents_.at_or_after(at);
    if (extent == nullptr || extent->begin >= event.end) break;
    drop_pages(extent->part(at, event.end));
    at = extent->end;
  }
  watch_.wake(event.begin, event.end - event.begin);
}

void RemapTable::close_in_child() {
  watch_.close();
  hold_.close();
  for (File& file : files_) file.file.close();
}

}  // namespace tutti::transport::shm
