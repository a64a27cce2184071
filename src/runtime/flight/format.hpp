// format.hpp: the memory of a flight recorder: one file for each process, which others may read at
// any moment, also while its owner is stopped or hangs.
//
//   | header | slot of a communicator | slot | ...
//              identity, wait, failure, memory, the latest calls
//
// A process writes here on every call, so a writer pays a few stores and no more: every part has a
// version that is odd while the part is being written, and a reader that sees it change reads
// again (a seqlock). Nobody waits for anybody.
//
// Knows the layout only. Readers trust none of it: reader.hpp.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/arrival.hpp"

namespace tutti::runtime::flight {

inline constexpr char kFileName[] = "tutti-flight";
inline constexpr std::uint64_t kMagic = 0x3130726674747574;  // "tuttfr01"
inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kSlotsMax = 64;   // communicators of a process
inline constexpr std::size_t kCallsKept = 48;  // of a communicator

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

// Words that belong together.
//
// Threading  one writer, any number of readers, also in other processes.
template <std::size_t kWords>
struct Section {
  using Values = std::array<std::uint64_t, kWords>;

  Word version;  // odd: being written; 0: never written
  Word words[kWords];

  // The release on every word keeps it behind the odd version; it costs nothing on x86.
  void write(const Values& values) {
    const std::uint64_t before = version.load(std::memory_order_relaxed);
    version.store(before + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kWords; ++i) words[i].store(values[i], std::memory_order_release);
    version.store(before + 2, std::memory_order_release);
  }

  // The version of what was read, or an odd one when the writer did not let us, or stopped midway.
  std::uint64_t read(Values& values) const {
    std::uint64_t before = 1;
    for (int tries = 0; tries < kTries; ++tries) {
      before = version.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < kWords; ++i) values[i] = words[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && version.load(std::memory_order_relaxed) == before) return before;
    }
    return before | 1;
  }

 private:
  static constexpr int kTries = 64;
};

// Text in words, cut where it does not fit and filled with zeros.
inline constexpr std::size_t kWaitTextWords = 20;
inline constexpr std::size_t kAwaitedMax = 8;  // ranks that one waits for at the same time
inline constexpr std::size_t kFailureTextWords = 64;

enum IdentityWord : std::size_t { kJob, kContext, kRank, kSize, kMade, kTransport, kIdentityWords };
// kWaitRanks: each rank plus one, the one that kWaitText speaks of first; then zeros.
enum WaitWord : std::size_t { kWaitCall, kWaitSince, kWaitRanks, kWaitText = 2 + kAwaitedMax };
enum FailureWord : std::size_t { kFailureCode, kCulprit, kFailedAt, kFailureText };
enum MemoryWord : std::size_t { kTransportBytes, kScratchBytes, kPlanBytes, kQueued, kMemoryWords };
enum CallWord : std::size_t { kStarted, kEnded, kOutcome, kSignature };
inline constexpr std::size_t kSignatureWords = kArrivalBytes / sizeof(std::uint64_t);
inline constexpr std::size_t kCallWords = kSignature + kSignatureWords;

// Outcome of a call: this, or kFinished plus its StatusCode.
inline constexpr std::uint64_t kRunning = 0;
inline constexpr std::uint64_t kFinished = 1;

// One communicator's. Written by whoever holds the communicator's lock.
struct alignas(kPageBytes) Slot {
  alignas(64) Section<kIdentityWords> identity;
  Word live;  // 1: there is such a communicator
  // How many calls were begun. Call n (from 1) lies in calls[(n - 1) % kCallsKept], and was the
  // ((n - 1) / kCallsKept + 1)th to be written there; ending it changes only kEnded and kOutcome.
  alignas(64) Word begun;
  alignas(64) Section<kWaitText + kWaitTextWords> wait;  // of call 0: none
  alignas(64) Section<kFailureText + kFailureTextWords> failure;
  alignas(64) Section<kMemoryWords> memory;
  alignas(64) Section<kCallWords> calls[kCallsKept];
};
static_assert(sizeof(Section<kCallWords>) == 64, "beginning a call touches one line for it");
static_assert(sizeof(Slot) == kPageBytes);

struct alignas(kPageBytes) Header {
  Word magic;  // written last
  Word file_bytes;
  Word process;     // as its own PID namespace counts
  Word made_ticks;  // ticks() and the monotonic clock at the same moment, to tell times from ticks
  Word made_ns;
  Word left_out;  // communicators that found no slot
};

// Also what a copy for tests consists of.
struct alignas(kPageBytes) Page {
  std::uint64_t words[kPageBytes / sizeof(std::uint64_t)];
};

struct File {
  Header header;
  Slot slots[kSlotsMax];
};
static_assert(sizeof(File) == (1 + kSlotsMax) * kPageBytes);

}  // namespace tutti::runtime::flight
