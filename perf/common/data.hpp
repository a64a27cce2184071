// data.hpp: what the perf tools send, and what must come out of it, told for one element at a time.
//
// Every element is a function of (seed, source, index), so that any rank can compute what any
// other rank sent, and the result of a reduction, without communication and in constant time.
// Reductions are exact: see data.cc for the construction. A result is therefore right bit by bit,
// in whatever order and grouping the library combined it, and one that is not shows as #wrong.
//
// Knows nothing of collectives: which rank must hold which elements is said by a Tool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/common/operation.hpp"
#include "tutti/types.hpp"

namespace tutti::perf {

// The source of elements that are the combination of all ranks' contributions.
inline constexpr Rank kReduced = -1;

// n whole numbers, as different from each other as a sum of at most `budget` allows.
struct Shares {
  std::vector<std::uint64_t> of;  // zeros only when n > budget
  std::uint64_t total = 0;
};
Shares make_shares(int n, std::uint64_t budget);

// How many elements differ from what they must be, and where the first of them is.
struct Mismatch {
  std::size_t count = 0;
  std::size_t first = 0;
};

// The data of one call: what each rank contributes and what it must become.
//
// Threading  const members from any thread.
class Pattern {
 public:
  // Arbitrary bit patterns, for collectives that only move elements.
  static Pattern moved(DataType type, std::uint64_t seed);
  // Values whose reduction over `ranks` is exact in any order.
  static Pattern reduced(DataType type, const Operation& operation, int ranks, std::uint64_t seed);

  // Writes elements [first, first + count) of `source`: a rank, or (reduced() only) kReduced.
  // Requires  out aligned for the element type.
  void fill(void* out, Rank source, std::size_t first, std::size_t count) const;

  // Compares with what fill() would have written; elements may be `tolerance()` bit patterns off.
  Mismatch compare(const void* got, Rank source, std::size_t first, std::size_t count) const;

  // 0 for all but averages of floats of 16 bits and more, where dividing may be rounded in more
  // than one way: 2.
  std::uint64_t tolerance() const { return tolerance_; }

 private:
  Pattern(DataType type, std::uint64_t mixed_seed) : type_(type), seed_(mixed_seed) {}

  enum class Kind { moved, sum, prod, extreme };

  template <typename T>
  void generate(void* out, Rank source, std::size_t first, std::size_t count) const;
  template <typename T>
  T sum_element(std::uint64_t hash, Rank source) const;
  template <typename T>
  T prod_element(std::uint64_t hash, Rank source) const;
  template <typename T>
  T extreme_element(std::uint64_t hash, Rank source) const;

  // The number of ranks by which the places of this element are turned.
  std::uint64_t turn(std::uint64_t hash) const;
  // The place of a rank in this element's round-robin: 0 .. ranks_-1, different for every rank.
  std::size_t place(std::uint64_t hash, Rank rank) const;

  DataType type_;
  std::uint64_t seed_;
  Kind kind_ = Kind::moved;
  ReduceOp op_ = ReduceOp::sum;
  int ranks_ = 1;
  std::uint64_t tolerance_ = 0;
  Shares shares_;                             // by place
  std::vector<std::uint64_t> scaled_totals_;  // of mulsum: of shares times factors, by turn
  int minus_ones_ = 0;                        // prod: contributions of -1
  std::uint64_t unit_mask_ = 0;               // sum: a share is multiplied by 1 .. unit_mask_ + 1
};

}  // namespace tutti::perf
