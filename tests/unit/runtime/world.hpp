// world.hpp: a handful of ranks in one thread, for tests of the executor. Their executors are
// advanced in turn, so every run is the same run; inputs and expected outputs are plain integers,
// told here independently of any schedule.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "collectives/plan.hpp"
#include "runtime/executor.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime::testing {

inline std::size_t idx(int value) { return static_cast<std::size_t>(value); }

// What rank `rank` contributes as element `i` of its input: distinct, small, never zero.
inline std::int64_t contribution(Rank rank, std::size_t i) {
  return static_cast<std::int64_t>((i * 7 + idx(rank) * 13) % 101 + 1);
}

struct Shape {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  Rank root = 0;
  std::size_t count = 0;
  ReduceOp op = ReduceOp::sum;
};

inline std::size_t input_elements(const Shape& s) {
  const bool many = s.collective == Collective::reduce_scatter ||
                    s.collective == Collective::all_to_all || s.collective == Collective::scatter;
  return many ? s.count * idx(s.ranks) : s.count;
}

inline std::size_t output_elements(const Shape& s) {
  const bool many = s.collective == Collective::all_gather ||
                    s.collective == Collective::all_to_all || s.collective == Collective::gather;
  return many ? s.count * idx(s.ranks) : s.count;
}

inline std::int64_t folded(const Shape& s, std::size_t i) {
  std::int64_t value = contribution(0, i);
  for (Rank q = 1; q < s.ranks; ++q) {
    const std::int64_t other = contribution(q, i);
    switch (s.op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        value += other;
        break;
      case ReduceOp::prod:
        value = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) *
                                          static_cast<std::uint64_t>(other));
        break;
      case ReduceOp::min:
        value = std::min(value, other);
        break;
      case ReduceOp::max:
        value = std::max(value, other);
        break;
    }
  }
  return s.op == ReduceOp::avg ? value / s.ranks : value;
}

// Element `i` of what `rank` must hold afterwards; `untouched` where the collective says nothing.
inline std::int64_t expected(const Shape& s, Rank rank, std::size_t i, std::int64_t untouched) {
  switch (s.collective) {
    case Collective::all_reduce:
      return folded(s, i);
    case Collective::reduce_scatter:
      return folded(s, idx(rank) * s.count + i);
    case Collective::reduce:
      return rank == s.root ? folded(s, i) : untouched;
    case Collective::broadcast:
      return contribution(s.root, i);
    case Collective::gather:
      return rank == s.root ? contribution(static_cast<Rank>(i / s.count), i % s.count) : untouched;
    case Collective::scatter:
      return contribution(s.root, idx(rank) * s.count + i);
    case Collective::all_gather:
      return contribution(static_cast<Rank>(i / s.count), i % s.count);
    case Collective::all_to_all:
      return contribution(static_cast<Rank>(i / s.count), idx(rank) * s.count + i % s.count);
    case Collective::send_recv:
      return contribution(((rank - s.root) % s.ranks + s.ranks) % s.ranks, i);
    case Collective::barrier:
      return untouched;
  }
  return untouched;
}

// Whether each value is what `right` says of its index. A macro for each would be most of a test's
// time where the thread sanitizer looks at all that it does.
template <class Right>
::testing::AssertionResult all_are(const std::int64_t* values, std::size_t count,
                                   const Right& right) {
  for (std::size_t i = 0; i < count; ++i)
    if (values[i] != right(i))
      return ::testing::AssertionFailure()
             << "element " << i << " is " << values[i] << ", not " << right(i);
  return ::testing::AssertionSuccess();
}

// Buffers of one rank, in place or not. Memory comes from `allocate` so that tests can choose
// memory that peers may address.
struct Buffers {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<std::int64_t> input_memory;
  std::vector<std::int64_t> output_memory;
};

inline constexpr std::int64_t kUntouched = -77;

// Gather and scatter have both buffers, and so one place for both, on the root only.
inline bool shares_buffers(const Shape& s, Rank rank) {
  const bool only_root = s.collective == Collective::gather || s.collective == Collective::scatter;
  return !only_root || rank == s.root;
}

inline Buffers make_buffers(const Shape& s, Rank rank, bool in_place) {
  in_place = in_place && shares_buffers(s, rank);
  Buffers b;
  b.output_memory.assign(output_elements(s), kUntouched);
  b.input_memory.resize(input_elements(s));
  for (std::size_t i = 0; i < b.input_memory.size(); ++i) b.input_memory[i] = contribution(rank, i);
  std::int64_t* input = b.input_memory.data();
  std::int64_t* output = b.output_memory.data();
  const bool scatters =
      s.collective == Collective::reduce_scatter || s.collective == Collective::scatter;
  const bool gathers = s.collective == Collective::all_gather || s.collective == Collective::gather;
  if (in_place && scatters) {
    output = input + idx(rank) * s.count;
  } else if (in_place) {
    const std::size_t at = gathers ? idx(rank) * s.count : 0;
    if (!b.input_memory.empty())
      std::memcpy(output + at, input, b.input_memory.size() * sizeof(std::int64_t));
    input = output + at;
  }
  b.input = reinterpret_cast<std::byte*>(input);
  b.output = reinterpret_cast<std::byte*>(output);
  return b;
}

inline bool can_run_in_place(Collective collective) {
  return collective != Collective::all_to_all && collective != Collective::send_recv;
}

}  // namespace tutti::runtime::testing
