// stage.cc: the shared page; see stage.hpp. A new file is full of zeros, which is how every counter
// here begins, so no rank needs to set it up before the others come.
#include "perf/comparison/stage.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace tutti::comparison {
namespace {

constexpr std::size_t kLine = 64;
constexpr Nanoseconds kPatience = 60'000'000'000;
// With a core for every rank, nobody yields before the other must have lost its core. A yield has
// consequences: Linux takes from who yields the rest of its time slice, and a library whose threads
// sleep within the measured call, and are woken, is then not let in before the next tick where
// anything else runs (Gloo: 4 ms a call, which is the tick, instead of 0.1).
constexpr Nanoseconds kSpinning = 20'000'000;
constexpr useconds_t kNapUs = 20;
// Long enough for the news of the moment to reach the others, which takes a cache line's travel.
constexpr Nanoseconds kLeadPerRank = 500;
// A line travels so often at a time, which is timed, and so many times: the least counts.
constexpr std::uint64_t kTravels = 25;
constexpr std::uint64_t kJourneys = 4;
// In which two ranks that have a core each are through with that; others never meet.
constexpr Nanoseconds kMostTravelling = 2'000'000;
constexpr int kLooksBetween = 1000;  // two at the clock, which would lengthen the way

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Nanoseconds now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// Written by rank 0 only.
struct alignas(kLine) Stage::Podium {
  std::atomic<std::uint64_t> meetings;
  std::atomic<Nanoseconds> start;
  std::atomic<std::uint64_t> value;
  alignas(kLine) std::atomic<std::uint64_t> travels;
};

// Written by its rank only.
struct alignas(kLine) Stage::Seat {
  std::atomic<std::uint64_t> meetings;
  std::size_t wrong;
  Nanoseconds price;
  int cpu;
  cpu_set_t cpus;
  alignas(kLine) std::atomic<std::uint64_t> travels;
  alignas(kLine) Nanoseconds times[kMaxCalls];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

std::unique_ptr<Stage> Stage::open(const char* path, int rank, int size) {
  const std::size_t bytes = sizeof(Podium) + static_cast<std::size_t>(size) * sizeof(Seat);
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    std::perror(path);
    return nullptr;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return nullptr;
  }
  return std::unique_ptr<Stage>(new Stage(memory, bytes, rank, size));
}

Stage::Stage(void* memory, std::size_t bytes, int rank, int size)
    : memory_(memory), bytes_(bytes), rank_(rank), size_(size) {
  sched_getaffinity(0, sizeof(cpu_set_t), &seat(rank).cpus);
}

Stage::~Stage() { munmap(memory_, bytes_); }

template <typename Condition>
void Stage::wait_until(Condition condition) const {
  const Nanoseconds begin = now_ns();
  while (!condition()) {
    const Nanoseconds waited = now_ns() - begin;
    if (crowded_)
      usleep(kNapUs);
    else if (waited < kSpinning)
      pause_briefly();
    else
      sched_yield();
    if (waited < kPatience) continue;
    std::fprintf(stderr, "a rank did not come to the start barrier within a minute\n");
    std::_Exit(1);
  }
}

bool Stage::settle(int ranks) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int rank = 0; rank < size_; ++rank) CPU_OR(&all, &all, &seat(rank).cpus);
  crowded_ = ranks > CPU_COUNT(&all);
  return crowded_;
}

Stage::Seat& Stage::seat(int rank) const {
  return reinterpret_cast<Seat*>(static_cast<Podium*>(memory_) + 1)[rank];
}

void Stage::meet() {
  ++meetings_;
  Podium& podium = *static_cast<Podium*>(memory_);
  if (rank_ != 0) {
    seat(rank_).meetings.store(meetings_, std::memory_order_release);
    wait_until([&] { return podium.meetings.load(std::memory_order_acquire) >= meetings_; });
    return;
  }
  for (int other = 1; other < size_; ++other)
    wait_until([&] { return seat(other).meetings.load(std::memory_order_acquire) >= meetings_; });
  podium.start.store(now_ns() + kLeadPerRank * size_, std::memory_order_relaxed);
  podium.meetings.store(meetings_, std::memory_order_release);
}

Nanoseconds Stage::yield_price() {
  // Who has slept is given the core back at once for some time.
  constexpr int kYields = 50;
  const Nanoseconds begin = now_ns();
  Nanoseconds took = 0;
  for (int i = 0; i < kYields && took <= kYields * kQuietYield; ++i) {
    sched_yield();
    took = now_ns() - begin;
  }
  return took / kYields;
}

Nanoseconds Stage::await_quiet(int tries) {
  constexpr useconds_t kPauseUs = 2000;
  Nanoseconds price = 0;
  for (int attempt = 0; attempt < tries; ++attempt) {
    if (attempt > 0) usleep(kPauseUs);
    price = yield_price();
    seat(rank_).price = price;
    meet();
    bool quiet = true;
    for (int rank = 0; rank < size_; ++rank) quiet = quiet && seat(rank).price <= kQuietYield;
    meet();  // nobody writes before all have read
    if (quiet) break;
  }
  return price;
}

// A rank that runs on another core than rank 0; 0 if there is none.
int Stage::first_elsewhere() const {
  int rank = 1;
  while (rank < size_ && seat(rank).cpu == seat(0).cpu) ++rank;
  return rank < size_ ? rank : 0;
}

Nanoseconds Stage::ask(const Seat& partner, std::uint64_t first) {
  std::atomic<std::uint64_t>& line = static_cast<Podium*>(memory_)->travels;
  const Nanoseconds end = now_ns() + kMostTravelling;
  Nanoseconds least = 0;
  for (std::uint64_t journey = 0; journey < kJourneys; ++journey) {
    const Nanoseconds begin = now_ns();
    for (std::uint64_t travel = 0; travel < kTravels; ++travel) {
      line.store(++first, std::memory_order_release);
      for (int looks = 1; partner.travels.load(std::memory_order_acquire) < first; ++looks)
        if (looks % kLooksBetween == 0 && now_ns() > end) return least;
    }
    const Nanoseconds took = (now_ns() - begin) / static_cast<Nanoseconds>(kTravels);
    least = journey == 0 ? took : std::min(least, took);
  }
  return least;
}

void Stage::answer(std::uint64_t first) {
  const std::atomic<std::uint64_t>& line = static_cast<Podium*>(memory_)->travels;
  const Nanoseconds end = now_ns() + kMostTravelling;
  const std::uint64_t last = first + kJourneys * kTravels;
  for (std::uint64_t told = first; told < last;) {
    std::uint64_t heard = told;
    for (int looks = 1; heard <= told; ++looks) {
      heard = line.load(std::memory_order_acquire);
      if (looks % kLooksBetween == 0 && now_ns() > end) return;
    }
    seat(rank_).travels.store(told = heard, std::memory_order_release);
  }
}

Nanoseconds Stage::line_price() {
  const std::uint64_t first = travels_;
  travels_ += kJourneys * kTravels;
  seat(rank_).cpu = sched_getcpu();
  meet();
  const int partner = first_elsewhere();
  Nanoseconds price = 0;
  if (partner != 0 && rank_ == 0) price = ask(seat(partner), first);
  if (partner != 0 && rank_ == partner) answer(first);
  meet();  // nobody moves on, and says where he is, while others look
  return price;
}

Nanoseconds Stage::start_together() {
  meet();
  const Nanoseconds start = announced_start();
  Nanoseconds now = now_ns();
  while (now < start) now = now_ns();
  return now;
}

Nanoseconds Stage::announced_start() const {
  return static_cast<Podium*>(memory_)->start.load(std::memory_order_relaxed);
}

std::uint64_t Stage::agree(std::uint64_t value_of_rank_0) {
  Podium& podium = *static_cast<Podium*>(memory_);
  if (rank_ == 0) podium.value.store(value_of_rank_0, std::memory_order_relaxed);
  meet();
  const std::uint64_t value = podium.value.load(std::memory_order_relaxed);
  meet();  // so that rank 0 cannot say the next before all have heard this
  return value;
}

void Stage::record(std::size_t call, Nanoseconds took) { seat(rank_).times[call] = took; }

Nanoseconds Stage::slowest(std::size_t call) const {
  Nanoseconds result = 0;
  for (int rank = 0; rank < size_; ++rank) result = std::max(result, seat(rank).times[call]);
  return result;
}

void Stage::add_wrong(std::size_t elements) { seat(rank_).wrong += elements; }

std::size_t Stage::wrong() const {
  std::size_t result = 0;
  for (int rank = 0; rank < size_; ++rank) result += seat(rank).wrong;
  return result;
}

const cpu_set_t& Stage::cpus(int rank) const { return seat(rank).cpus; }

}  // namespace tutti::comparison
