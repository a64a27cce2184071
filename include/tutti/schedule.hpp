// schedule.hpp: a collective algorithm as data. Everything that Tutti does with an algorithm
// (prove it, cost it, draw it, run it) reads these values; nothing is told a second time.
//
// A Schedule holds a Program for every rank. A Program is a list of steps; a step copies or reduces
// any number of sources into any number of destinations, and each of them is either a range of
// chunks in the rank's own memory or a message from or to a peer. A `send` is a copy from memory to
// a message, a `recv` is a copy from a message to memory.
//
// Meaning. Steps take effect in program order as far as they touch the same chunks; messages from
// one rank to another arrive in the order they were sent. A message moves exactly one chunk range,
// and both ends name ranges of the same length and the same positions within their blocks.
//
// Geometry. A buffer is `blocks` blocks, each cut into `chunks` chunks: chunk c lies in block
// c / chunks at position c % chunks. How many elements a chunk has is decided when a call starts;
// chunks at the same position have the same length in every block of every buffer.
//
// In place. input and output may be the same memory (see `aliased_chunk`); every Schedule must be
// right either way.
//
// Knows nothing of bytes, addresses, transports or time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/types.hpp"

#pragma GCC visibility push(default)
namespace tutti {

// base + stride * ((rank_factor * rank + loop_factor * i + constant) mod modulus), where i is the
// index of the loop around it. modulus 0 means no mod; mod is never negative. Regular schedules
// stay small for any number of ranks because of it.
class AffineIndex {
 public:
  constexpr AffineIndex() = default;
  constexpr AffineIndex(int constant)
      : constant_(constant) {}  // implicit: plain numbers are indices

  static constexpr AffineIndex of_rank() { return raw(0, 1, 1, 0, 0, 0); }
  static constexpr AffineIndex of_loop() { return raw(0, 1, 0, 1, 0, 0); }
  static constexpr AffineIndex raw(int base, int stride, int rank_factor, int loop_factor,
                                   int constant, int modulus) {
    AffineIndex index;
    index.base_ = base;
    index.stride_ = stride;
    index.rank_factor_ = rank_factor;
    index.loop_factor_ = loop_factor;
    index.constant_ = constant;
    index.modulus_ = modulus;
    return index;
  }

  int at(Rank rank, int loop_index) const;

  int base() const { return base_; }
  int stride() const { return stride_; }
  int rank_factor() const { return rank_factor_; }
  int loop_factor() const { return loop_factor_; }
  int constant() const { return constant_; }
  int modulus() const { return modulus_; }
  bool is_constant() const { return rank_factor_ == 0 && loop_factor_ == 0; }

  // Requires  the result can be written in the form above (a broken telling is our own bug).
  friend AffineIndex operator+(AffineIndex a, AffineIndex b);
  friend AffineIndex operator-(AffineIndex a, AffineIndex b);
  friend AffineIndex operator*(AffineIndex a, int factor);
  friend AffineIndex operator%(AffineIndex a, int modulus);
  friend bool operator==(const AffineIndex&, const AffineIndex&) = default;

 private:
  int base_ = 0;
  int stride_ = 1;
  int rank_factor_ = 0;
  int loop_factor_ = 0;
  int constant_ = 0;
  int modulus_ = 0;
};

enum class Buffer : std::uint8_t { input, output, scratch };

std::string_view to_string(Buffer buffer);

// How a message travels where one end can address the other's memory. Elsewhere it makes no
// difference.
enum class Travel : std::uint8_t {
  automatic,  // read in place from the sender's memory where its content lies there, else stored
              // where the receiver wants it, else queued
  queued,     // through the transport's queue, because both ends overwrite what they send
  pushed,     // stored by its sender, who would be idle while the receiver read it
};

// What a step reads or writes: `count` consecutive chunks of a buffer from `index` on, or a message
// from or to the rank `index`.
struct Operand {
  enum class Kind : std::uint8_t { chunks, message };

  Kind kind = Kind::chunks;
  Buffer buffer = Buffer::input;      // of chunks
  AffineIndex index;                  // first chunk, or the peer's rank
  int count = 1;                      // of chunks
  Travel travel = Travel::automatic;  // of a message

  friend bool operator==(const Operand&, const Operand&) = default;
};

enum class StepKind : std::uint8_t { copy, reduce };

// One action of one rank. All operands cover the same positions; at least one is in memory; at most
// one source and one destination per peer.
struct Step {
  StepKind kind = StepKind::copy;
  bool finish = false;           // of a reduce: all contributions are in, `avg` divides here
  std::vector<Operand> sources;  // exactly one for copy
  std::vector<Operand> destinations;

  friend bool operator==(const Step&, const Step&) = default;
};

// `body` done `times` times, with i = 0 .. times-1. Straight code is a Repeat of once.
struct Repeat {
  int times = 1;
  std::vector<Step> body;

  friend bool operator==(const Repeat&, const Repeat&) = default;
};

// One rank's part, or that of every rank of a class when its indices use the rank.
struct Program {
  std::vector<Repeat> parts;

  friend bool operator==(const Program&, const Program&) = default;
};

// What a schedule is for.
struct ScheduleShape {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  Rank root = 0;           // of broadcast and reduce; for send_recv: how far to the right to send
  int chunks = 1;          // per block
  int scratch_blocks = 0;  // private to each rank, undefined at the start
  int message_chunks_max = 1;  // no message moves more chunks than this

  friend bool operator==(const ScheduleShape&, const ScheduleShape&) = default;
};

// Blocks of a buffer under the collective's contract (all_gather's output has one per rank, ...).
int block_count(const ScheduleShape& shape, Buffer buffer);

// In place: the output chunk that is the same memory as input chunk `input_chunk` of `rank`, or -1.
// For reduce_scatter the output is the rank's own block of the input, for all_gather the input is
// the rank's own block of the output; all_to_all and send_recv are never in place.
int aliased_chunk(const ScheduleShape& shape, Rank rank, int input_chunk);

// All ranks' programs. Ranks with equal programs share one.
struct Schedule {
  std::string algorithm;
  ScheduleShape shape;
  std::vector<Program> programs;
  std::vector<int> program_of_rank;  // index into programs

  const Program& program(Rank rank) const {
    return programs[static_cast<std::size_t>(program_of_rank[static_cast<std::size_t>(rank)])];
  }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// ---- Expanded form: loops unrolled, indices evaluated, dependencies written out. ----

struct ExpandedOperand {
  Operand::Kind kind = Operand::Kind::chunks;
  Buffer buffer = Buffer::input;
  int index = 0;  // first chunk, or the peer
  int count = 1;
  Travel travel = Travel::automatic;

  friend bool operator==(const ExpandedOperand&, const ExpandedOperand&) = default;
};

struct ExpandedStep {
  StepKind kind = StepKind::copy;
  bool finish = false;
  std::vector<ExpandedOperand> sources;
  std::vector<ExpandedOperand> destinations;
  // Earlier steps of the same rank that must be complete before this one takes any effect.
  std::vector<int> depends;

  friend bool operator==(const ExpandedStep&, const ExpandedStep&) = default;
};

using ExpandedProgram = std::vector<ExpandedStep>;

}  // namespace tutti
#pragma GCC visibility pop
