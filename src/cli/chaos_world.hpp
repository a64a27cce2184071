// chaos_world.hpp: one seeded world for `tutti chaos`: some ranks, a simulated network, and a few
// random calls that the production communicator runs, checked against results computed without it.
//
// With faults, ranks die (heard of, or silently), pause, abort, and frames are damaged; then
// whoever survives gets the right result or an error that names the cause, and the survivors agree
// on who is left, go on as a smaller communicator, and get right results there. With mismatches,
// one rank makes another call than the others, and all of them get to know.
//
// Everything follows from the seed, so a world that goes wrong can be looked at again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tutti::cli {

struct ChaosLimits {
  int ranks_min = 2;
  int ranks_max = 32;
  int calls_max = 4;
  bool faults = false;
  bool mismatches = false;
  bool strict = false;  // with mismatches: found before anything is written
};

struct ChaosVerdict {
  enum class Outcome : std::uint8_t { right, wrong, hang, leak, error };

  Outcome outcome = Outcome::right;
  std::string trouble;  // empty when right
  int calls = 0;
  int kills = 0;
  int silent_kills = 0;
  int pauses = 0;
  int aborts = 0;
  int leavers = 0;  // after a failure
  std::uint64_t damaged_frames = 0;
  int mismatches = 0;
  int failed_calls = 0;  // as they should
  int shrinks = 0;       // communicators that survivors went on with
  std::uint64_t events = 0;
  std::uint64_t event_hash = 0;
};

// Hears what happens in a world, line by line: its calls, what befalls its ranks and, if wanted,
// every event.
struct ChaosListener {
  std::function<void(const std::string&)> line;
  bool events = false;
};

// Runs the world of `seed`.
// Cost  a fraction of a millisecond to a few milliseconds. Threading  any thread.
ChaosVerdict run_chaos_world(std::uint64_t seed, const ChaosLimits& limits,
                             const ChaosListener& listener = {});

}  // namespace tutti::cli
