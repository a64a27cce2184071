// call_program.hpp: a lowered program as the executor steps through it: flat arrays, and for every
// message the way that it travels in the call at hand.
//
// A small call takes less time than a handful of cache misses, so what it walks through lies in one
// piece. What never changes is laid out once per program; ways are decided call by call, from the
// arrival records, as lowered.hpp says.
//
// Knows nothing of bytes, transports or time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/lowered.hpp"

namespace tutti::runtime {

// Messages of a directed stream that travel the same way keep their order.
enum class Way : std::uint8_t {
  staged,     // through the queue
  pull,       // the receiver reads it in the sender's memory
  push,       // the sender stores it in the receiver's memory
  undecided,  // not known before both arrival records are
};
inline constexpr std::size_t kWayCount = 3;

struct CallOperand {
  bool is_message = false;
  Way way = Way::staged;              // of a message
  bool mine = false;                  // of a message: direct, the peer touches us
  Buffer buffer = Buffer::input;      // of memory; of a message: that is touched
  collectives::DirectForm form = {};  // of a message: what it can be
  bool at_arrival = false;            // of a message: ready then, if it travels direct; and if ...
  bool ready = false;                 // of a message that travels direct: no word is waited for
  std::int32_t beside = -1;           // ... this one of the other direction is pulled
  std::int32_t chunk = 0;             // the first, in that buffer
  std::uint32_t stream = 0;           // of a message: which peer
  std::uint32_t ordinal = 0;          // among all messages of its directed stream
  std::uint32_t place = 0;            // among those that travel its way
};

struct CallStep {
  StepKind kind = StepKind::copy;
  bool finish = false;
  bool may_land = false;      // a source can be pushed by the peer
  bool may_offer = false;     // a destination can be pulled by the peer
  std::uint32_t sources = 0;  // where its operands begin
  std::uint32_t destinations = 0;
  std::uint32_t end = 0;
  std::uint32_t depends = 0;  // where its dependencies begin, and
  std::uint32_t depends_end = 0;
  std::uint32_t in_memory = 0;  // an operand that is no message; there always is one
  std::int32_t pieces = 1;      // chunks of every operand
};

// What the program has to do with one peer.
struct CallPeer {
  Rank rank = 0;
  collectives::Addressable ours;     // which of our buffers direct messages would touch
  collectives::Addressable theirs;   // and which of the peer's
  std::vector<std::uint32_t> sends;  // operands, in the order of the stream
  std::vector<std::uint32_t> receives;
  // Of one slice, by Way; right once the ways are decided.
  std::array<std::uint32_t, kWayCount> sent = {};
  std::array<std::uint32_t, kWayCount> received = {};
};

class CallProgram {
 public:
  explicit CallProgram(std::shared_ptr<const collectives::LoweredProgram> program);

  const collectives::LoweredProgram& lowered() const { return *program_; }
  const std::vector<CallStep>& steps() const { return steps_; }
  const std::vector<CallPeer>& peers() const { return peers_; }
  const collectives::LoweredDependency* dependencies() const { return dependencies_.data(); }

  const CallOperand& operand(std::uint32_t index) const { return operands_[index]; }
  std::span<const CallOperand> sources(const CallStep& step) const {
    return {operands_.data() + step.sources, step.destinations - step.sources};
  }
  std::span<const CallOperand> destinations(const CallStep& step) const {
    return {operands_.data() + step.destinations, step.end - step.destinations};
  }
  std::size_t operands_max() const { return operands_max_; }  // of one step
  std::size_t memory_bytes() const;                           // an estimate, without lowered()

  // Before a call. Staged: everything goes through queues, nothing is left to decide.
  void begin(bool staged);
  // Once the peer was told which of our buffers it can address: what we offer it, and what we send
  // through the queue because it cannot, as far as its place there is known.
  void decide_offers(std::size_t peer, const collectives::Addressable& mine);
  // Once we know which of its buffers we can address, too: all else.
  void decide_all(std::size_t peer, const collectives::Addressable& mine,
                  const collectives::Addressable& theirs);
  // Whether any message is decided to be staged.
  bool any_staged() const;

 private:
  void decide_ready(const std::vector<std::uint32_t>& messages,
                    const std::vector<std::uint32_t>& others);
  void add_operands(const std::vector<collectives::LoweredOperand>& operands, bool sent);

  std::shared_ptr<const collectives::LoweredProgram> program_;
  std::vector<CallStep> steps_;
  std::vector<CallOperand> operands_;
  std::vector<collectives::LoweredDependency> dependencies_;
  std::vector<CallPeer> peers_;
  std::size_t operands_max_ = 0;
  bool staged_ = false;  // all ways are, since the last begin()
};

}  // namespace tutti::runtime
