// verifier.hpp: proves schedules, in their two-sided and in their lowered form, for one world at a
// time. What is proved, and why one run is enough, stands at the top of verifier.cc.
//
// Shares no code with what builds, expands or lowers schedules. Knows nothing of time or cost.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/lowered.hpp"

namespace tutti::collectives {

// The first thing that is wrong with a schedule, in the order in which it is looked at.
enum class Fault : std::uint8_t {
  none,
  malformed,  // a step makes no sense by itself
  unmatched,  // the two ends of a message disagree, or there is only one
  deadlock,   // some steps wait for each other for ever
  race,       // two accesses to the same memory have no order
  contract,   // a value is wrong: undefined, incomplete, twice, finished too early or never
};

std::string_view to_string(Fault fault);

struct Verdict {
  Fault fault = Fault::none;
  std::string reason;      // names rank, step and chunk
  std::int64_t steps = 0;  // carried out by the abstract machine
  std::int64_t messages = 0;

  bool ok() const { return fault == Fault::none; }
};

// Room that every transport must give: messages that a directed stream holds while nobody takes
// them. Two, because a step that passes on what it receives needs its own message to be out of the
// way; with one, a ring of such steps waits for itself.
inline constexpr int kQueueMessagesMin = 2;

struct VerifyOptions {
  int queue_messages = kQueueMessagesMin;
  // Prove it with separate buffers, with input and output in the same memory (where the collective
  // allows that), or both.
  bool out_of_place = true;
  bool in_place = true;
};

// The two-sided form: every message goes through a queue.
// Requires  one program per rank.
Verdict verify(const ScheduleShape& shape, std::span<const ExpandedProgram> programs,
               const VerifyOptions& options = {});

// The lowered form where the buffers of rank r can be addressed as `addressable[r]` says.
// Requires  one program and one entry of `addressable` per rank.
Verdict verify_lowered(std::span<const LoweredProgram> programs,
                       std::span<const Addressable> addressable, const VerifyOptions& options = {});

// All ranks alike: everything direct that can be, or everything staged.
std::vector<Addressable> all_direct(int ranks);
std::vector<Addressable> all_staged(int ranks);
// Each buffer of each rank by itself, as the seed says.
std::vector<Addressable> some_direct(int ranks, std::uint64_t seed);

}  // namespace tutti::collectives
