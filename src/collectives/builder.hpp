// builder.hpp: the language in which algorithms are told. An algorithm is a function that is
// called once for a rank and says, two-sided, what that rank sends, receives, copies and reduces.
//
// To stay small for any number of ranks, tell regular algorithms with me() and repeat(), which keep
// the rank and the loop index symbolic; rank() is the plain number for algorithms that branch on
// it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/schedule.hpp"

namespace tutti::collectives {

// A set of ranks base, base + stride, ... and this rank's place in it. Algorithms are written for a
// group, so that they compose: inside a node, across nodes.
struct Group {
  int base = 0;
  int stride = 1;
  int size = 1;
  AffineIndex me;  // this rank's number in the group; symbolic for the whole world
  int number = 0;  // the same as a plain number

  // The world rank of member `index`.
  AffineIndex rank_of(AffineIndex index) const { return index * stride + base; }
};

// The sizes of groups within groups, from the inside out: ranks of the innermost group, groups of
// the one around it, ... What holds the outermost groups is the world, whose size says how many
// there are. None: nothing is known of groups.
class GroupSizes {
 public:
  GroupSizes() = default;
  GroupSizes(int group) {  // implicit: nodes of so many ranks; 1 is none
    if (group > 1) sizes_.push_back(group);
  }
  explicit GroupSizes(std::vector<int> sizes) : sizes_(std::move(sizes)) {}

  std::span<const int> sizes() const { return sizes_; }
  int outermost() const;     // ranks of an outermost group; 1 when there are none
  std::string text() const;  // "2x4"

  friend bool operator==(const GroupSizes&, const GroupSizes&) = default;

 private:
  std::vector<int> sizes_;
};

class Builder {
 public:
  Builder(const ScheduleShape& shape, Rank rank);

  // ---- What is told about ----
  const ScheduleShape& shape() const { return shape_; }
  int ranks() const { return shape_.ranks; }
  Rank rank() const { return rank_; }
  Rank root() const { return shape_.root; }
  AffineIndex me() const { return AffineIndex::of_rank(); }
  Group world() const;
  Group subgroup(int base, int stride, int size) const;  // Requires  rank() is a member

  // ---- Operands ----
  static Operand input(AffineIndex chunk, int count = 1) {
    return chunks(Buffer::input, chunk, count);
  }
  static Operand output(AffineIndex chunk, int count = 1) {
    return chunks(Buffer::output, chunk, count);
  }
  static Operand scratch(AffineIndex chunk, int count = 1) {
    return chunks(Buffer::scratch, chunk, count);
  }
  static Operand chunks(Buffer buffer, AffineIndex first, int count = 1);
  static Operand to(AffineIndex peer) { return message(peer, Travel::automatic); }
  static Operand from(AffineIndex peer) { return message(peer, Travel::automatic); }
  // As to(): but through the queue even between ranks that can address each other.
  static Operand to_queue(AffineIndex peer) { return message(peer, Travel::queued); }
  // As to(): but between ranks that can address each other, the sender stores what it has.
  static Operand into(AffineIndex peer) { return message(peer, Travel::pushed); }

  // ---- Steps ----
  void send(AffineIndex peer, const Operand& source);
  void recv(AffineIndex peer, const Operand& destination);
  void copy(const Operand& source, std::vector<Operand> destinations);
  void reduce(std::vector<Operand> sources, std::vector<Operand> destinations);
  // As reduce, where all contributions are in: `avg` divides here.
  void finish(std::vector<Operand> sources, std::vector<Operand> destinations);

  // body(i) for i = 0 .. times-1, kept as a loop. Not nested.
  void repeat(int times, const std::function<void(AffineIndex)>& body);

  Program take() { return std::move(program_); }

 private:
  static Operand message(AffineIndex peer, Travel travel);
  void add(Step step);

  ScheduleShape shape_;
  Rank rank_;
  Program program_;
  bool in_loop_ = false;
};

// Whom a rank has messages for.
enum class Meeting : std::uint8_t {
  some,        // of the others
  all,         // every other one, in every call
  all_copies,  // and they are copies that are stored there, or could as well be read
};

// One entry of the table of algorithms (algorithms/table.hpp).
struct Algorithm {
  std::string_view name;
  Collective collective;
  // The shape for so many ranks (chunks, scratch), or the reason why it cannot serve.
  Result<ScheduleShape> (*shape)(int ranks, Rank root, const GroupSizes& groups);
  void (*tell)(Builder&, const GroupSizes& groups);
  std::string_view summary;  // one line for `tutti plan` and the docs
  bool grouped = false;      // `groups` matter
  Meeting meeting = Meeting::some;
  // Not chosen where any order of a reduction will do: another one is quicker then, which the model
  // does not tell apart from it.
  bool for_order_only = false;
  // Told twice, if this is more than 0: calls of even numbers have root 0, those of odd numbers
  // root 1 (Plan::odd). Not chosen for more bytes: then others are soon quicker, which the model
  // does not see, or those that take no turns as quick.
  std::size_t in_turn_bytes = 0;

  // Groups combine in memory that all ranks see (Plan::combining_group), if this is more than 0: up
  // to so many bytes, where the ranks have such memory and some of them share a core. What is told
  // are the same sums by messages.
  std::size_t combined_bytes = 0;

  bool in_turn() const { return in_turn_bytes > 0; }
  bool combines() const { return combined_bytes > 0; }
  bool all_meet() const { return meeting != Meeting::some; }
  bool all_copy() const { return meeting == Meeting::all_copies; }
};

// Tells `algorithm` for every rank. `groups`: of neighbours, for algorithms of several levels.
Result<Schedule> build(const Algorithm& algorithm, int ranks, Rank root,
                       const GroupSizes& groups = {});

// Tells it for the given shape (as another number of chunks).
Schedule build(const Algorithm& algorithm, const ScheduleShape& shape,
               const GroupSizes& groups = {});

}  // namespace tutti::collectives
