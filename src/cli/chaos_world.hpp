// chaos_world.hpp: one seeded world for `tutti chaos`: some ranks, a simulated network, and a few
// random calls that the production executor runs, checked against results computed without it. With
// faults, ranks die; then whoever survives gets the right result or an error that names the dead.
//
// Everything follows from the seed, so a world that goes wrong can be looked at again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::cli {

struct ChaosLimits {
  int ranks_min = 2;
  int ranks_max = 16;
  int calls_max = 4;
  bool faults = false;  // ranks die
};

struct ChaosVerdict {
  enum class Outcome : std::uint8_t { right, wrong, hang, error };

  Outcome outcome = Outcome::right;
  std::string trouble;  // empty when right
  int calls = 0;
  int kills = 0;
  int failed_calls = 0;  // as they should: a rank had died
  std::uint64_t events = 0;
  std::uint64_t event_hash = 0;
  std::vector<std::string> story;  // the world, its calls and (when asked for) its events
};

// Runs the world of `seed`. `tell_events`: every delivery becomes a line of the story.
// Cost  a fraction of a millisecond to a few milliseconds. Threading  any thread.
ChaosVerdict run_chaos_world(std::uint64_t seed, const ChaosLimits& limits, bool tell_events);

}  // namespace tutti::cli
