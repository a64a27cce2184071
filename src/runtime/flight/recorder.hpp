// recorder.hpp: the writing side of the flight recorder: what each communicator of this process is
// doing, always on, in memory that `tutti doctor` and the other ranks of the job can read while
// this process is stopped or hangs.
//
// Does not read clocks that cost a system call, allocates nothing after it was made, and has no
// idea of what the calls do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "runtime/arrival.hpp"
#include "runtime/flight/format.hpp"
#include "runtime/flight/ticks.hpp"
#include "tutti/status.hpp"

namespace tutti::runtime::flight {

// The memory of one process. Where the kernel has no memory files it is ordinary memory, which only
// this process can read.
//
// Threading  any thread.
class Recorder {
 public:
  // The one of this process, shared by its communicators; it goes away with the last of them. A
  // child of fork() gets a new one: the old one goes on describing its parent.
  // Errors  null when there is no memory.
  static std::shared_ptr<Recorder> of_process();

  // Null when there is no memory. For tests, and for of_process().
  static std::unique_ptr<Recorder> make();
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Null when all are taken.
  Slot* take();
  void give_back(Slot& slot);

  const File& file() const { return *file_; }
  bool readable_from_outside() const { return descriptor_ >= 0; }
  bool inherited() const;  // by fork(): it describes the parent

 private:
  Recorder(File* file, int descriptor);

  std::mutex mutex_;
  File* file_;
  int descriptor_;
  long process_;
  bool taken_[kSlotsMax] = {};
};

// Who a communicator is. `job` is equal on all ranks of a job and on no other's.
struct Identity {
  std::uint64_t job = 0;
  std::uint64_t context = 0;
  Rank rank = 0;
  int size = 1;
  std::string_view transport;
};

// One communicator's part. Default-made, it records nothing.
//
// Threading  one thread at a time.
class Log {
 public:
  Log() = default;
  Log(std::shared_ptr<Recorder> recorder, const Identity& identity);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool on() const { return slot_ != nullptr; }
  std::size_t memory_bytes() const { return on() ? sizeof(Slot) : 0; }
  // Requires  on().
  const Slot* slot() const { return slot_; }
  const Header& header() const { return recorder_->file().header; }

  // A call begins (with this record of it), or ends. Cost: a line of memory and a look at the
  // processor's own clock, which costs more than the rest (some 20 ns on virtual machines). So
  // begin() gives what it saw, in ticks, and whoever knows of a later moment tells end() of that.
  std::uint64_t begin(std::span<const std::byte, kArrivalBytes> signature);
  void end(StatusCode outcome) { end(outcome, ticks()); }
  void end(StatusCode outcome, std::uint64_t at);

  // The call in progress has waited for these ranks since `since` (ticks), for the first of them
  // as `what` says; until end() or clear_wait().
  void wait(std::span<const Rank> ranks, std::string_view what, std::uint64_t since);
  void clear_wait();

  void fail(const Status& status);
  void memory(std::size_t transport, std::size_t scratch, std::size_t plans, std::size_t queued);

 private:
  std::shared_ptr<Recorder> recorder_;
  Slot* slot_ = nullptr;
  std::uint64_t begun_ = 0;
  std::size_t next_ = 0;  // where the next call goes
  std::size_t current_ = 0;
  bool waits_ = false;
};

// ---- The hot path ----

inline std::uint64_t Log::begin(std::span<const std::byte, kArrivalBytes> signature) {
  if (slot_ == nullptr) return 0;
  current_ = next_;
  next_ = next_ + 1 == kCallsKept ? 0 : next_ + 1;
  Section<kCallWords>::Values values;
  values[kStarted] = ticks();
  values[kEnded] = 0;
  values[kOutcome] = kRunning;
  std::memcpy(&values[kSignature], signature.data(), kArrivalBytes);
  slot_->calls[current_].write(values);
  slot_->begun.store(++begun_, std::memory_order_release);
  return values[kStarted];
}

inline void Log::end(StatusCode outcome, std::uint64_t at) {
  if (slot_ == nullptr) return;
  Section<kCallWords>& call = slot_->calls[current_];
  call.words[kEnded].store(at, std::memory_order_relaxed);
  call.words[kOutcome].store(kFinished + static_cast<std::uint64_t>(outcome),
                             std::memory_order_release);
  if (waits_) [[unlikely]]
    clear_wait();
}

}  // namespace tutti::runtime::flight
