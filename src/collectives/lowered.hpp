// lowered.hpp: one rank's program in the form that an executor runs.
//
// Lowering knows both ends of every message (it expands the peers' programs too), so it can say
// what a message becomes where one rank can load and store the other's memory:
//
//   pull  the sender has the content in memory: it only announces it, and the receiver reads it in
//         place, as a source of its own step. The sender's step is complete when that has happened.
//   push  the sender computes the content, or the algorithm wants it to do the work, and the
//         receiver only wants it in memory: the receiver grants its memory, and the sender's step
//         stores into it. Only between ranks that share what both touch of each other.
//   none  content that is computed at one end and consumed at the other: it goes through the queue.
//
// Every message can also go through the transport's queue (staged); which form is used is decided
// when a call starts, message by message, by the one function `travels_direct`, from the arrival
// records that both ends hold. So a program is right under any mixture, and that is verified.
//
// What a step does, in order (the executor and the verifier both follow this):
//   1. wait until every dependency is complete;
//   2. for a direct push source: grant the memory; pushes of one stream are granted in order;
//   3. wait until every source can be read (pull: offered; push: produced; staged: frame at the
//      head of the queue) and every destination can be written (push: granted; staged: room);
//   4. read all sources, write all destinations, in one pass;
//   5. tell the peers, in message order of each stream: staged frames are released and committed,
//      a pulled source is taken, a destination in the own memory is offered, one in the peer's is
//      produced;
//   6. wait until every offered destination (pull) has been taken by its consumer: complete.
//
// An owner's record says that it has entered the call. What is ready by then is neither offered nor
// granted once more (`at_arrival`): inputs that nobody writes before they are sent, and memory that
// is not touched before something is pushed there, unless it is what the same step of the peer
// pulls.
//
// Messages of a directed stream that travel the same way (staged, pull, push) are sent and taken in
// their order; those that travel differently do not wait for each other. So a rank can offer what a
// peer wants next while it still computes what it pushes now.
//
// A queue must hold two messages of a directed stream: a ring that receives, reduces and sends in
// one step would wait for itself with one.
//
// Knows nothing of bytes, addresses or time.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/schedule.hpp"

namespace tutti::collectives {

enum class DirectForm : std::uint8_t { none, pull, push };

struct LoweredOperand {
  Operand::Kind kind = Operand::Kind::chunks;
  DirectForm direct = DirectForm::none;  // of a message
  // Memory: the rank's own chunks. Message: the chunks that the direct form touches, in the peer's
  // memory or in the rank's own (`mine`).
  Buffer buffer = Buffer::input;
  bool mine = false;  // of a message: the peer touches this rank's memory
  std::int32_t chunk = 0;
  std::int32_t count = 1;
  std::int32_t stream = 0;   // of a message: index into LoweredProgram::peers
  std::int32_t ordinal = 0;  // of a message: its number on the directed stream, from 0
  // Of a direct message: what is touched is ready as soon as its owner has entered the call.
  bool at_arrival = false;
  // Of a push at arrival: only if that message of the opposite stream, by its ordinal, is pulled.
  std::int32_t beside = -1;

  friend bool operator==(const LoweredOperand&, const LoweredOperand&) = default;
};

struct LoweredDependency {
  std::int32_t step = 0;
  // The earlier step only offers what this step lets the same peer overwrite, and the peer reads
  // and writes in one pass: no need to wait when both messages travel direct.
  bool fused = false;

  friend bool operator==(const LoweredDependency&, const LoweredDependency&) = default;
};

struct LoweredStep {
  StepKind kind = StepKind::copy;
  bool finish = false;
  // Index into `destinations` of the memory where a direct push source lands and from which a
  // direct pull destination is offered; -1 when there is none. A copy from memory offers its
  // source.
  std::int32_t landing = -1;
  std::vector<LoweredOperand> sources;
  std::vector<LoweredOperand> destinations;
  std::vector<LoweredDependency> depends;

  friend bool operator==(const LoweredStep&, const LoweredStep&) = default;
};

struct LoweredProgram {
  ScheduleShape shape;
  Rank rank = 0;
  std::vector<Rank> peers;             // every rank this one sends to or receives from
  std::vector<std::int32_t> sends;     // messages to peers[k]
  std::vector<std::int32_t> receives;  // messages from peers[k]
  std::vector<LoweredStep> steps;
  // Reductions fold their sources by the canonical tree (verifier_expression.hpp), not one after
  // the other; sources stand in the order of ranks then.
  bool ordered = false;

  friend bool operator==(const LoweredProgram&, const LoweredProgram&) = default;
};

// Which buffers of a rank its peer can address, as both ends read it from an arrival record.
struct Addressable {
  bool input = false;
  bool output = false;
  bool scratch = false;

  bool operator()(Buffer buffer) const {
    return buffer == Buffer::input ? input : buffer == Buffer::output ? output : scratch;
  }
  void add(Buffer buffer) {
    (buffer == Buffer::input ? input : buffer == Buffer::output ? output : scratch) = true;
  }
  bool covers(const Addressable& other) const {
    return input >= other.input && output >= other.output && scratch >= other.scratch;
  }

  friend bool operator==(const Addressable&, const Addressable&) = default;
};

// One of two ranks that talk to each other.
struct Side {
  Addressable addressable;  // for the other: what this rank's arrival record says
  Addressable wanted;       // what direct messages between the two touch of this rank's memory

  bool shares_all() const { return addressable.covers(wanted); }
};

// Whether a message travels direct, as both of its ends decide it: its direct form exists, and the
// end whose memory the other one touches is addressable there. Who cannot share what the receiver
// would touch does not push either: it sends at once then, before the receiver has arrived.
// `touched` is the buffer that is touched.
inline bool travels_direct(DirectForm form, Buffer touched, const Side& sender,
                           const Side& receiver) {
  if (form == DirectForm::pull) return sender.addressable(touched);
  return form == DirectForm::push && receiver.addressable(touched) && sender.shares_all();
}

}  // namespace tutti::collectives
