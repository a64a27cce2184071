// stage.hpp: where the ranks of one launch meet between measured calls: a page of memory that they
// share beside the library under test, so that neither starting together nor comparing times says
// anything to that library, and is the same for all of them.
//
// Knows nothing of libraries or buffers. Ranks are processes of one host.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::comparison {

using Nanoseconds = std::int64_t;

// The clock of all measurements; it runs alike on all cores of a host.
Nanoseconds now_ns();

// All ranks call the same members in the same order.
//
// Threading  one thread per rank.
class Stage {
 public:
  static constexpr std::size_t kMaxCalls = 1 << 16;

  // Requires  `path` names an empty file that all ranks of the launch see, and no others.
  // Errors    null, with the reason on stderr.
  static std::unique_ptr<Stage> open(const char* path, int rank, int size);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage();

  // Whether there are more ranks than CPUs for them. Then whoever waits here sleeps, so that those
  // who still work have the core; otherwise he spins. Requires  a meet() since open().
  bool settle(int ranks);

  // A barrier. Ends the process when a rank stays away for a minute.
  void meet();

  // What giving the core up takes now, over a few tries: at most kQuietYield where nothing but
  // these ranks runs; otherwise it is the time slice that something else got for it.
  static Nanoseconds yield_price();
  static constexpr Nanoseconds kQuietYield = 5'000;
  // Waits, if need be, until nothing else runs, at most so many times two milliseconds; returns
  // this rank's last price. All ranks call it, and say the same.
  Nanoseconds await_quiet(int tries);

  // What a cache line costs that travels from rank 0's core to another rank's and back; 0 where no
  // other core answered. Only rank 0 is told. Virtual cores are moved about: now they share a
  // cache, now they do not, and lines then take three times as long or more.
  Nanoseconds line_price();

  // A barrier that all ranks leave at the same moment, if each has a core; returns when this one
  // left it.
  Nanoseconds start_together();
  // The moment at which the last start_together() let them go.
  Nanoseconds announced_start() const;

  // Every rank learns what rank 0 says.
  std::uint64_t agree(std::uint64_t value_of_rank_0);

  // Requires  call < kMaxCalls.
  void record(std::size_t call, Nanoseconds took);
  // The slowest rank's time. Requires  a meet() since that call was recorded.
  Nanoseconds slowest(std::size_t call) const;

  void add_wrong(std::size_t elements);
  // Over all ranks and sizes so far. Requires  a meet() since.
  std::size_t wrong() const;

  // The CPUs that a rank may use. Requires  a meet() since open().
  const cpu_set_t& cpus(int rank) const;

 private:
  struct Podium;
  struct Seat;

  Stage(void* memory, std::size_t bytes, int rank, int size);
  Seat& seat(int rank) const;
  int first_elsewhere() const;
  Nanoseconds ask(const Seat& partner, std::uint64_t first);
  void answer(std::uint64_t first);
  template <typename Condition>
  void wait_until(Condition condition) const;

  void* memory_;
  std::size_t bytes_;
  int rank_;
  int size_;
  bool crowded_ = false;
  std::uint64_t meetings_ = 0;
  std::uint64_t travels_ = 0;  // of a line, before the next line_price()
};

}  // namespace tutti::comparison
