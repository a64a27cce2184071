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

// Worlds of more steps are refused as malformed: the proof keeps what happens before what.
inline constexpr int kVerifiedStepsMax = 1 << 16;

// The two-sided form: every message goes through a queue.
// Requires  one program per rank.
Verdict verify(const ScheduleShape& shape, std::span<const ExpandedProgram> programs,
               const VerifyOptions& options = {});

// Who can address whose buffers in one call: what the arrival records of all pairs say.
class Addressability {
 public:
  explicit Addressability(int ranks, Addressable everywhere = {});

  int ranks() const { return ranks_; }
  // Which of the owner's buffers the peer can load and store.
  Addressable& of(Rank owner, Rank peer) { return pairs_[index(owner, peer)]; }
  const Addressable& of(Rank owner, Rank peer) const { return pairs_[index(owner, peer)]; }

 private:
  std::size_t index(Rank owner, Rank peer) const {
    return static_cast<std::size_t>(owner) * static_cast<std::size_t>(ranks_) +
           static_cast<std::size_t>(peer);
  }
  int ranks_;
  std::vector<Addressable> pairs_;
};

// All ranks alike: everything direct that can be, or everything staged.
Addressability all_direct(int ranks);
Addressability all_staged(int ranks);
// Direct between ranks of one node of `group`, staged across.
Addressability direct_within(int ranks, int group);
// As the seed says: for even seeds a buffer is addressable for all peers or for none (it is
// registered or not), for odd ones each pair of ranks differs (some can map it, some cannot).
Addressability some_direct(int ranks, std::uint64_t seed);

// The lowered form. Requires  one program per rank, and addressability among so many ranks.
Verdict verify_lowered(std::span<const LoweredProgram> programs, const Addressability& addressable,
                       const VerifyOptions& options = {});

}  // namespace tutti::collectives
